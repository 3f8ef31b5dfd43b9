"""Churn: subscriptions that come and go while others publish, on brokers with a real protocol (STOCH 3.1).

Arrivals are Poisson, lifetimes have any of the distributions in `LIFETIMES`. A run begins in equilibrium: there are as many
subscriptions as M/G/infinity has, each with a residual lifetime. Beginning with none would need a warm-up that is never long
enough where lifetimes are heavy-tailed. Measures are read from the brokers: sizes of tables, messages sent.

Delays are zero, as in the paper: a message arrives before anything else happens.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.broker.modules.tracer import Tracer
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.scheduler import gc_frozen
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS

Reals = NDArray[np.float64]
#: How heavy the tail of Pareto lifetimes is: their variance is infinite.
PARETO_SHAPE = 1.5


class Lifetimes(NamedTuple):
    """A distribution with mean 1: lifetimes, and residual lifetimes at a random moment."""

    whole: Callable[[np.random.Generator, int], Reals]
    rest: Callable[[np.random.Generator, int], Reals]


def _pareto(shape: float) -> Callable[[np.random.Generator, int], Reals]:
    """Pareto of the second kind, scaled so that lifetimes of `PARETO_SHAPE` have mean 1; residuals have one less."""
    return lambda dice, count: (PARETO_SHAPE - 1) * dice.pareto(shape, count)


LIFETIMES: Mapping[str, Lifetimes] = {
    "exponential": Lifetimes(lambda dice, n: dice.exponential(1, n), lambda dice, n: dice.exponential(1, n)),
    "constant": Lifetimes(lambda _, n: np.ones(n), lambda dice, n: dice.random(n)),
    "pareto": Lifetimes(_pareto(PARETO_SHAPE), _pareto(PARETO_SHAPE - 1)),
}


class Process(NamedTuple):
    """Things of one kind that come and go, by broker and class: arrivals per second, and mean lifetimes."""

    arrival_hz: Reals
    lifetime_s: Reals


class Churn(msgspec.Struct, frozen=True, kw_only=True):
    """The actions of clients; brokers are in the order of the overlay."""

    subscriptions: Process
    publication_hz: Reals
    #: None: who publishes has always advertised. Else who advertises publishes, at the class's rate on average.
    advertisements: Process | None = None
    #: For each class the classes that include it, near and far.
    wider: Sequence[Sequence[int]] = ()
    lifetimes: str = "exponential"


class Measured(msgspec.Struct, frozen=True):
    """Means over the measured time."""

    #: Remote entries in the tables of all brokers.
    routing_entries: float
    #: Publications and control messages per second, between brokers.
    notification_rate: float
    control_rate: float


def measure(
    overlay: Overlay, protocol: str, churn: Churn, seed: int, *, warm_up_s: float, duration_s: float, samples: int = 50
) -> Measured:
    """One run: ``warm_up_s`` is not measured, then tables are looked at ``samples`` times, evenly."""
    run = _Run(overlay, protocol, churn, seed, warm_up_s + duration_s)
    with gc_frozen():
        run.run_until(warm_up_s)
        before = run.sent()
        entries = []
        for number in range(1, samples + 1):
            run.run_until(warm_up_s + duration_s * number / samples)
            entries.append(run.remote_entries())
    publications, control = (now - then for now, then in zip(run.sent(), before, strict=True))
    return Measured(float(np.mean(entries)), publications / duration_s, control / duration_s)


class Loaded(msgspec.Struct, frozen=True):
    """The utilisation of each broker, in the order of the overlay, and the mean delay."""

    input_utilisation: tuple[float, ...]
    output_utilisation: tuple[float, ...]
    delivery_s: float


def measure_load(
    overlay: Overlay, protocol: str, churn: Churn, seed: int, costs: Costs, *, warm_up_s: float, duration_s: float
) -> Loaded:
    """One run of brokers that take time; every subscription is a client of its own, which gets its own copy."""
    run = _BusyRun(overlay, protocol, churn, seed, warm_up_s + duration_s, costs)
    run.run_until(warm_up_s)
    busy_s, sending_s, _ = run.worked()
    run.run_until(warm_up_s + duration_s)
    busy_s_then, sending_s_then, delays_s = run.worked()
    return Loaded(
        tuple((busy_s_then - busy_s) / duration_s), tuple((sending_s_then - sending_s) / duration_s), float(np.mean(delays_s))
    )


class _Run:
    def __init__(
        self, overlay: Overlay, protocol: str, churn: Churn, seed: int, end_s: float, costs: Costs | None = None
    ) -> None:
        self._dice = np.random.default_rng(seed)
        self._overlay = overlay
        self._churn = churn
        self._end_s = end_s
        self._present = 0
        self._count = 0
        self._network = SimulatedNetwork(
            overlay,
            PROTOCOLS[protocol].make,
            seed,
            costs=costs or Costs(link_delay_s=0.0),
            config=_CONFIG,
            make_modules=lambda at: {"tracer": Tracer(at.broker, "churn")} if costs else {},
            on_delivery=_ignore,
        )
        self._filters = [_filter(each, churn.wider) for each in range(churn.publication_hz.shape[1])]
        self._publications = [Publication({predicate.attribute: 1 for predicate in each.predicates}) for each in self._filters]
        for broker in overlay.ids:
            self._network.add_client(_client(broker), broker)
        self._network.run_until_quiescent()
        self._start_s = self._network.scheduler.now_s
        self._plan_advertisements()
        self._plan_lifetimes(churn.subscriptions, self._subscribe)

    def run_until(self, until_s: float) -> None:
        self._network.scheduler.run(self._start_s + until_s)

    def sent(self) -> tuple[int, int]:
        """Publications and control messages so far."""
        statistics = [self._network.broker(id).statistics() for id in self._overlay.ids]
        return sum(each.publications_out for each in statistics), sum(each.control_out for each in statistics)

    def remote_entries(self) -> int:
        """All entries but those of local subscriptions."""
        tables = [self._network.broker(id).statistics().tables for id in self._overlay.ids]
        return sum(each["subscriptions"] for each in tables) - self._present

    # ---- planned actions

    def _plan_lifetimes(self, process: Process, begin: Callable[[tuple[int, int, float]], None]) -> None:
        """Present and future ones, of every broker and class."""
        lifetimes, dice = LIFETIMES[self._churn.lifetimes], self._dice
        for (broker, of), arrival_hz in np.ndenumerate(process.arrival_hz):
            mean_s = float(process.lifetime_s[broker, of])
            for length_s in mean_s * lifetimes.rest(dice, int(dice.poisson(arrival_hz * mean_s))):
                begin((broker, of, float(length_s)))
            times_s = dice.random(dice.poisson(arrival_hz * self._end_s)) * self._end_s
            for time_s, length_s in zip(times_s, mean_s * lifetimes.whole(dice, len(times_s)), strict=True):
                self._at(float(time_s), begin, (broker, of, float(length_s)))

    def _plan_advertisements(self) -> None:
        advertisements, rates = self._churn.advertisements, self._churn.publication_hz
        if advertisements is not None:
            self._plan_lifetimes(advertisements, self._advertise)
            return
        for (broker, of), rate_hz in np.ndenumerate(rates):
            if rate_hz > 0:
                self._network.say(_client(self._overlay.ids[broker]), Advertise(self._new("a"), self._filters[of]))
                self._plan_publications(broker, of, rate_hz, self._end_s)

    def _plan_publications(self, broker: int, of: int, rate_hz: float, length_s: float) -> None:
        now_s = self._network.scheduler.now_s - self._start_s
        length_s = min(length_s, self._end_s - now_s)
        for time_s in now_s + self._dice.random(self._dice.poisson(rate_hz * length_s)) * length_s:
            self._at(float(time_s), self._publish, (broker, of))

    def _at(self, time_s: float, action: Callable[..., None], argument: object) -> None:
        self._network.scheduler.at(self._start_s + time_s, action, argument)

    # ---- actions

    def _subscribe(self, lifetime: tuple[int, int, float]) -> None:
        broker, of, length_s = lifetime
        client, id = _client(self._overlay.ids[broker]), self._new("s")
        self._present += 1
        self._network.say(client, Subscribe(id, self._filters[of]))
        self._later(length_s, self._unsubscribe, (client, id))

    def _unsubscribe(self, which: tuple[str, str]) -> None:
        self._present -= 1
        self._network.say(which[0], Unsubscribe(which[1]))

    def _advertise(self, lifetime: tuple[int, int, float]) -> None:
        broker, of, length_s = lifetime
        client, id = _client(self._overlay.ids[broker]), self._new("a")
        self._network.say(client, Advertise(id, self._filters[of]))
        self._later(length_s, lambda _: self._network.say(client, Unadvertise(id)), None)
        assert self._churn.advertisements is not None
        mean = self._churn.advertisements.arrival_hz[broker, of] * self._churn.advertisements.lifetime_s[broker, of]
        self._plan_publications(broker, of, self._churn.publication_hz[broker, of] / mean, length_s)

    def _later(self, length_s: float, action: Callable[..., None], argument: object) -> None:
        now_s = self._network.scheduler.now_s - self._start_s
        if now_s + length_s <= self._end_s:
            self._at(now_s + length_s, action, argument)

    def _publish(self, which: tuple[int, int]) -> None:
        self._network.publish(_client(self._overlay.ids[which[0]]), self._publications[which[1]])

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"


class _BusyRun(_Run):
    """Brokers take time, and subscriptions are clients."""

    def worked(self) -> tuple[Reals, Reals, list[float]]:
        """Seconds of matching and sending offered to each broker, and the delays of deliveries since the last call."""
        stations = [station for id in self._overlay.ids if (station := self._network.station(id)) is not None]
        records = self._network.records
        delays_s = [each.arrived_at_s - each.published_at_s for each in records if each.subscription is not None]
        records.clear()
        return (
            np.array([each.offered_s() for each in stations]),
            np.array([each.uplink_offered_s() for each in stations]),
            delays_s,
        )

    def _subscribe(self, lifetime: tuple[int, int, float]) -> None:
        broker, of, length_s = lifetime
        id = self._new("s")
        self._present += 1
        self._network.add_client(id, self._overlay.ids[broker])
        self._network.say(id, Subscribe(id, self._filters[of]))
        self._later(length_s, self._leave, id)

    def _leave(self, client: str) -> None:
        self._present -= 1
        self._network.remove_client(client)


#: Acknowledgements change nothing here, and take time: few are sent.
_CONFIG = BrokerConfig(SessionConfig(window=1 << 16, acknowledge_every=256, acknowledge_delay_s=60.0))


def _client(broker: str) -> str:
    return f"client of {broker}"


def _filter(of: int, wider: Sequence[Sequence[int]]) -> Filter:
    """An attribute for the class and for each that includes it: so the filter of a wider class covers that of a narrower one."""
    classes = sorted({of, *(wider[of] if wider else ())})
    return Filter(tuple(Predicate(f"F{each + 1}", Operator.EQ, 1) for each in classes))


def _ignore(*_: object) -> None:
    pass
