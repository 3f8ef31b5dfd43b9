"""The schedule of a chaos run: what strikes when, and what clients do, all from a seed and a configuration."""

import random

import msgspec

from overweave.testing.chaos.configurations import Configuration

#: How long faults last, from and to, in seconds; the others are over at once.
LASTING_S = {
    "kill": (0.0, 3.0), "stop": (0.3, 6.0), "stop-clients": (0.3, 4.0), "restart-all": (0.0, 1.0), "stall": (0.3, 4.0),
    "trickle": (0.5, 4.0), "cut": (0.3, 5.0),
}  # fmt: skip
#: A process is left alone for so long after a fault.
_REST_S = 3.0
CLASSES = ("C0", "C1", "C2")
PUBLISHERS, STAYING = 4, 5
#: Clients share processes by what they do: each of these is stopped and goes on as a whole.
PROCESSES = {"publishers": 2, "subscribers": 2}


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """One fault: when after the start, of which kind, whom it hits and for how long."""

    at_s: float
    kind: str
    target: str
    for_s: float = 0.0


class PublisherPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Publishes bursts of one class, flushing after each, from a time until another (None: until the end)."""

    id: str
    process: str
    broker: str
    kind: str
    joins_s: float
    leaves_s: float | None
    burst: int
    every_s: float


class SubscriberPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Subscribes to one filter from a time until another."""

    id: str
    process: str
    broker: str
    filter: str
    joins_s: float
    leaves_s: float | None


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """All that is done in a run."""

    configuration: str
    protocol: str
    seed: int
    seconds: float
    faults: tuple[Fault, ...]
    publishers: tuple[PublisherPlan, ...]
    subscribers: tuple[SubscriberPlan, ...]

    def lines(self) -> list[str]:
        """The faults for people."""
        return [
            f"{each.at_s:8.2f} s  {each.kind:13}{each.target:14}" + (f"{each.for_s:.2f} s" if each.for_s else "")
            for each in self.faults
        ]


def client_route(process: str, broker: str) -> str:
    """The name of the connections of a process of clients to a broker."""
    return f"{process}>{broker}"


def link_routes(configuration: Configuration) -> list[tuple[str, str]]:
    """The links, as who dials whom: the later broker the earlier one."""
    overlay = configuration.overlay
    return [tuple(sorted(link.ends, key=overlay.position, reverse=True)) for link in overlay.links]  # type: ignore[misc]


def make_schedule(configuration: Configuration, seed: int, seconds: float) -> Schedule:
    """The schedule of a seed.

    >>> from overweave.testing.chaos.configurations import configuration
    >>> one, other = (make_schedule(configuration("filter-chain"), 7, 60.0) for _ in range(2))
    >>> one == other, len(one.faults) > 10
    (True, True)
    """
    name = configuration.name
    return Schedule(
        configuration=name, protocol=configuration.protocol(seed), seed=seed, seconds=seconds,
        faults=tuple(_faults(random.Random(f"{name} {seed} faults"), configuration, seconds)),
        publishers=tuple(_publishers(random.Random(f"{name} {seed} publishers"), configuration, seconds)),
        subscribers=tuple(_subscribers(random.Random(f"{name} {seed} subscribers"), configuration, seconds)),
    )  # fmt: skip


def _faults(dice: random.Random, configuration: Configuration, seconds: float) -> list[Fault]:
    weights, brokers = configuration.weights(), configuration.overlay.ids
    processes = [f"{kind}{i}" for kind, count in PROCESSES.items() for i in range(count)]
    links = [f"{one}>{other}" for one, other in link_routes(configuration)]
    routes = links + links + [client_route(process, broker) for process in processes for broker in brokers]
    targets = {"kill": brokers, "stop": brokers, "stop-clients": processes, "restart-all": ("all",)}
    free_s: dict[str, float] = {}
    faults, at_s = [], 2.0
    while (at_s := round(at_s + dice.expovariate(1 / configuration.fault_every_s), 2)) < seconds:
        kind = dice.choices(list(weights), list(weights.values()))[0]
        target = dice.choice(targets.get(kind, routes))
        for_s = round(dice.uniform(*LASTING_S[kind]), 2) if kind in LASTING_S else 0.0
        busy_s = (
            max(free_s.values(), default=0.0) if kind == "restart-all" else max(free_s.get(target, 0.0), free_s.get("all", 0.0))
        )
        if busy_s <= at_s:
            free_s[target] = at_s + for_s + _REST_S
            faults.append(Fault(at_s=at_s, kind=kind, target=target, for_s=for_s))
    return faults


def _publishers(dice: random.Random, configuration: Configuration, seconds: float) -> list[PublisherPlan]:
    plans = []
    for number in range(PUBLISHERS):
        joins_s, life = 0.0, 0
        while joins_s < seconds:
            # Half of them stay all the time, the others are one after the other.
            leaves_s = None if number % 2 == 0 else joins_s + dice.uniform(5, 20)
            plans.append(
                PublisherPlan(
                    id=f"p{number}-{life}", process=f"publishers{number % PROCESSES['publishers']}",
                    broker=dice.choice(configuration.overlay.ids), kind=CLASSES[number % len(CLASSES)], joins_s=round(joins_s, 2),
                    leaves_s=None if leaves_s is None or leaves_s >= seconds else round(leaves_s, 2),
                    burst=dice.randint(1, 8), every_s=round(dice.uniform(0.03, 0.15), 3),
                )
            )  # fmt: skip
            joins_s, life = (seconds if leaves_s is None else leaves_s), life + 1
    return plans


def _subscribers(dice: random.Random, configuration: Configuration, seconds: float) -> list[SubscriberPlan]:
    plans = []
    for number in range(STAYING + configuration.churning):
        joins_s, life = (0.0 if number < STAYING else dice.uniform(0, configuration.churn_s)), 0
        while joins_s < seconds:
            leaves_s = None if number < STAYING else joins_s + dice.expovariate(1 / configuration.churn_s)
            plans.append(
                SubscriberPlan(
                    id=f"s{number}-{life}", process=f"subscribers{number % PROCESSES['subscribers']}",
                    broker=dice.choice(configuration.overlay.ids), filter=_filter(dice), joins_s=round(joins_s, 2),
                    leaves_s=None if leaves_s is None or leaves_s >= seconds else round(leaves_s, 2),
                )
            )  # fmt: skip
            joins_s, life = (seconds if leaves_s is None else leaves_s + dice.random()), life + 1
    return plans


def _filter(dice: random.Random) -> str:
    kind, bound = dice.choice(CLASSES), dice.randint(0, 99)
    return dice.choice(
        (f"[class,eq,'{kind}']", f"[class,eq,'{kind}'],[x,>,{bound}]", f"[class,eq,'{kind}'],[x,<=,{bound}]", f"[x,>=,{bound}]")
    )
