"""One simulated run of a scenario: faults while clients come, go and publish, then quiet, then everybody leaves."""

import random
import traceback
from collections.abc import Callable, Collection, Iterator

import msgspec

from overweave.contract.effects import Parts
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.routing import PROTOCOLS
from overweave.testing.seeds.checks import Delivered, Failure, History, Published, Subscribed, check, is_expected
from overweave.testing.seeds.reach import Reach
from overweave.testing.seeds.scenario import ACTIVE_UNTIL_S, CLASSES, FAULTS_UNTIL_S, ClientPlan, Life, Scenario, draw

#: The last fault has ended by then, and clients do nothing more.
HEALED_S = FAULTS_UNTIL_S + 2.0
#: So long after the last fault deliveries equal the oracle, for every protocol.
CONVERGENCE_S = 15.0
#: So long everything may take to settle when all is well, and tables to be empty.
SETTLE_S, EMPTY_S = 30.0, 10.0
#: More is not published in the time of faults.
PUBLICATIONS_MAX = 120


class Outcome(msgspec.Struct, frozen=True):
    """What came out of a seed."""

    seed: int
    protocol: str
    failures: tuple[Failure, ...]
    publications: int = 0
    #: Deliveries that the oracle expects, and those of them that a rule of the protocol excuses.
    expected: int = 0
    excused: int = 0


def run_seed(seed: int, protocol: str | None = None, classes: Collection[str] | None = None) -> Outcome:
    """Run one seed.

    >>> run_seed(3, classes=()).failures
    ()
    """
    return run_scenario(draw(seed, protocol, classes))


def run_scenario(scenario: Scenario) -> Outcome:
    """Run one scenario; an error of a core is a failure like others."""
    run, failures = None, []
    try:
        run = _Run(scenario)
        for failure in run.failures():
            failures.append(failure)  # noqa: PERF402 - those before an error are kept
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        failures.append(Failure("error", f"{type(error).__name__}: {error} ({where.name}, line {where.lineno})"))
    return Outcome(scenario.seed, scenario.protocol, tuple(failures), *(run.counts() if run is not None else ()))


class _Run:
    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._dice = random.Random(f"{scenario.seed} run")
        self._network = network = SimulatedNetwork(
            scenario.overlay, PROTOCOLS[scenario.protocol].make, scenario.seed, scenario.faults,
            costs=Costs(link_delay_s=scenario.link_delay_s), config=scenario.config, on_delivery=self._delivered,
        )  # fmt: skip
        self._poll_s = max(scenario.link_delay_s / 2, 0.001)
        watched_until_s = HEALED_S + 10.0
        about = scenario.overlay, scenario.protocol, scenario.config.link_timeout_s
        self._reach = Reach(*about, network, watched_until_s) if PROTOCOLS[scenario.protocol].reroutes else None
        self.history = History()
        self._plans = {plan.id: plan for plan in scenario.clients}
        self._filters: dict[str, Filter] = {}
        #: By client: what it has sent that it has not seen settled, and the advertisements in force.
        self._open: dict[str, list[Subscribed | Published | Life]] = {}
        self._advertised: dict[str, dict[str, Life]] = {plan.id: {} for plan in scenario.clients}
        #: Advertisements that were sent and not withdrawn.
        self._standing: dict[str, set[str]] = {plan.id: set() for plan in scenario.clients}
        for plan in scenario.clients:
            self._plan(plan)

    def failures(self) -> Iterator[Failure]:
        """Run, and say all that was wrong."""
        scheduler = self._network.scheduler
        scheduler.run(HEALED_S)
        yield from self._validated()
        yield from self._settled("what was said while there were faults")
        scheduler.run(max(scheduler.now_s, HEALED_S + CONVERGENCE_S))
        self._publish_fresh()
        yield from self._settled("what was published after the faults")
        scheduler.run(scheduler.now_s + 1.0)
        yield from self._validated()
        yield from check(self.history, self._excused)
        yield from self._emptied()

    def counts(self) -> tuple[int, int, int]:
        """Publications, expected deliveries, and the excused of them."""
        expected = [
            (publication, subscription)
            for publication in self.history.published.values()
            for subscription in self.history.subscribed.values()
            if is_expected(publication, subscription)
        ]
        excused = sum(not one.fresh and self._excused(one.broker, other.broker, one.at_s) for one, other in expected)
        return len(self.history.published), len(expected), excused

    # ---- what is planned

    def _plan(self, plan: ClientPlan) -> None:
        self._at(plan.joins_s, self._network.add_client, plan.id, plan.broker)
        for life in plan.advertisements:
            self._at(life.begins_s, self._advertise, plan, life)
            if life.ends_s is not None:
                self._at(life.ends_s, self._unadvertise, plan, life)
        for life in plan.subscriptions:
            self._at(life.begins_s, self._subscribe, plan, life)
            if life.ends_s is not None:
                self._at(life.ends_s, self._unsubscribe, plan, life)
        for time_s, count in plan.publishes:
            self._at(time_s, self._publish, plan, count)
        if plan.leaves_s is not None:
            self._at(plan.leaves_s, self._leave, plan)

    def _at(self, time_s: float, action: Callable[..., None], *arguments: object) -> None:
        self._network.scheduler.at(time_s, lambda _: action(*arguments))

    # ---- what clients do

    def _is_here(self, plan: ClientPlan) -> bool:
        return plan.id in self._network.clients()

    def _advertise(self, plan: ClientPlan, life: Life) -> None:
        self._standing[plan.id].add(life.id)
        self._network.say(plan.id, Advertise(life.id, self._filter(life)))
        self._await(plan.id, life)

    def _unadvertise(self, plan: ClientPlan, life: Life) -> None:
        """Withdraw when all that was published under it has settled, as the client library does."""
        self._advertised[plan.id].pop(life.id, None)
        if not self._is_here(plan):
            return
        if self._network.client(plan.id).unsettled():
            self._at(self._now_s() + self._poll_s, self._unadvertise, plan, life)
            return
        self._standing[plan.id].discard(life.id)
        self._network.say(plan.id, Unadvertise(life.id))

    def _subscribe(self, plan: ClientPlan, life: Life) -> None:
        if self._is_here(plan):
            filter = self._filter(life)
            subscribed = Subscribed(id=life.id, broker=plan.broker, filter=filter, said_s=self._now_s())
            self.history.subscribed[life.id] = subscribed
            self._network.say(plan.id, Subscribe(life.id, filter))
            self._await(plan.id, subscribed)

    def _unsubscribe(self, plan: ClientPlan, life: Life) -> None:
        if self._is_here(plan) and self.history.subscribed[life.id].ends_s is None:
            self.history.subscribed[life.id].ends_s = self._now_s()
            self._network.say(plan.id, Unsubscribe(life.id))

    def _leave(self, plan: ClientPlan) -> None:
        if plan.broker not in self._network.running():  # it could not say so
            self._at(self._now_s() + 0.2, self._leave, plan)
            return
        for life in plan.subscriptions:
            subscribed = self.history.subscribed.get(life.id)
            if subscribed is not None and subscribed.ends_s is None:
                subscribed.ends_s = self._now_s()
        self._open.pop(plan.id, None)
        self._network.remove_client(plan.id)

    def _publish(self, plan: ClientPlan, count: int, *, fresh: bool = False) -> None:
        advertised = list(self._advertised[plan.id].values())
        if not advertised or (not fresh and len(self.history.published) + count > PUBLICATIONS_MAX):
            return
        some = []
        for _ in range(count):
            life, number = self._dice.choice(advertised), len(self.history.published)
            kind = next(kind for kind in CLASSES if f"'{kind}'" in life.filter)
            content = Publication({"class": kind, "x": self._dice.randint(0, 9), "n": number})
            published = Published(
                number=number, client=plan.id, broker=plan.broker, content=content, at_s=self._now_s(), fresh=fresh
            )
            self.history.published[number] = published
            some.append(published)
        self._network.publish(plan.id, *(each.content for each in some))
        for each in some:
            self._await(plan.id, each)

    def _publish_fresh(self) -> None:
        for plan in self._plans.values():
            if self._is_here(plan):
                # Also what has not settled counts as advertised by now.
                for life in plan.advertisements:
                    if life.id in self._standing[plan.id]:
                        self._advertised[plan.id][life.id] = life
                self._publish(plan, 4, fresh=True)

    # ---- settlement, as clients see it

    def _await(self, client: str, what: "Subscribed | Published | Life") -> None:
        waiting = self._open.setdefault(client, [])
        waiting.append(what)
        if len(waiting) == 1:
            self._network.scheduler.at(self._now_s() + self._poll_s, self._look, client)

    def _look(self, client: str) -> None:
        if client not in self._open:  # it has left
            return
        if self._network.client(client).unsettled():
            self._network.scheduler.at(self._now_s() + self._poll_s, self._look, client)
            return
        control_settled = False
        for what in self._open.pop(client):
            if isinstance(what, Published):
                what.settled_s = self._now_s()
                continue
            control_settled = True
            if isinstance(what, Subscribed):
                what.in_force_s = self._now_s()
            elif what.id in self._standing[client] and (what.ends_s is None or what.ends_s > self._now_s()):
                self._advertised[client][what.id] = what
        if control_settled and self._now_s() < ACTIVE_UNTIL_S:
            self._publish_at_once()

    def _publish_at_once(self) -> None:
        """Some control has just settled: what is published now shows whether it is in force."""
        for plan in self._plans.values():
            if self._advertised[plan.id] and self._dice.random() < 0.5:
                self._publish(plan, self._dice.choice((1, 2)))

    def _delivered(self, parts: Parts) -> None:
        for subscription, batch in parts:
            for publish in batch.publishes():
                content = publish.publication
                self.history.delivered.append(Delivered(self._now_s(), subscription, int(content["n"]), content))

    # ---- checks

    def _settled(self, what: str) -> Iterator[Failure]:
        network, scheduler = self._network, self._network.scheduler
        end_s = scheduler.now_s + SETTLE_S
        while network.unsettled() or not network.all_connected() or self._open:
            if scheduler.now_s > end_s:
                waiting = {id: network.client(id).unsettled() for id in network.clients() if network.client(id).unsettled()}
                yield Failure("settlement", f"{what} has not settled after {SETTLE_S:g} s: {waiting}")
                return
            scheduler.run(scheduler.now_s + 0.25)

    def _validated(self) -> Iterator[Failure]:
        for id in self._network.running():
            try:
                self._network.broker(id).validate()
            except AssertionError as error:
                yield Failure("state", f"broker {id} at {self._now_s():g} s: {error}")

    def _emptied(self) -> Iterator[Failure]:
        network = self._network
        for plan in self._plans.values():
            if self._is_here(plan) and plan.withdraws:
                for id in sorted(self._standing[plan.id]):
                    network.say(plan.id, Unadvertise(id))
                for life in plan.subscriptions:
                    self._unsubscribe(plan, life)
        yield from self._settled("what was withdrawn")
        for client in network.clients():
            network.remove_client(client)
        network.scheduler.run(network.scheduler.now_s + EMPTY_S)
        for id in network.running():
            statistics = network.broker(id).statistics()
            left = {name: size for name, size in statistics.tables.items() if size} | statistics.unsettled
            if left or network.broker(id).clients() or network.journal(id):
                yield Failure("state", f"broker {id} holds {left or 'clients'} though all have left")

    def _excused(self, one: str, other: str, at_s: float) -> bool:
        return self._reach is not None and self._reach.excuses(one, other, at_s)

    def _filter(self, life: Life) -> Filter:
        return parse_filter(life.filter)

    def _now_s(self) -> float:
        return self._network.scheduler.now_s
