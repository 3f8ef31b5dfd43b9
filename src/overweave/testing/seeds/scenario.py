"""The scenario of a seed: protocol, overlay, faults, windows and what clients do when, all drawn before anything runs."""

import itertools
import random
from collections.abc import Collection

import msgspec

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.faults import Faults
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.overlay.shapes import make_overlay
from overweave.routing import BUILT_IN, PROTOCOLS

#: Each is on or off in a seed.
FAULT_CLASSES = ("loss", "duplication", "reordering", "cuts", "crashes", "partitions", "pauses", "skew")
#: Faults strike until then, and clients come, go and publish until a little later.
FAULTS_UNTIL_S = 6.0
ACTIVE_UNTIL_S = 6.5
CLASSES = ("C0", "C1")
#: Failure detectors of protocols that find other paths: quicker than most faults, or slower than all.
DETECTORS = {"quick": (0.1, 0.35), "slow": (0.5, 2.0)}


class Life(msgspec.Struct, frozen=True, kw_only=True):
    """One advertisement or subscription of a client."""

    id: str
    filter: str
    begins_s: float
    #: None: until the end.
    ends_s: float | None = None


class ClientPlan(msgspec.Struct, frozen=True, kw_only=True):
    """One client: where it is, from when, and whether it withdraws all before it leaves in the end."""

    id: str
    broker: str
    joins_s: float
    advertisements: tuple[Life, ...] = ()
    subscriptions: tuple[Life, ...] = ()
    #: When it publishes, and how many together; on top it publishes whenever some control has just settled.
    publishes: tuple[tuple[float, int], ...] = ()
    leaves_s: float | None = None
    withdraws: bool = True


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """All that a run depends on."""

    seed: int
    protocol: str
    shape: str
    overlay: Overlay
    classes: tuple[str, ...]
    faults: Faults
    config: BrokerConfig
    link_delay_s: float
    clients: tuple[ClientPlan, ...]

    def describe(self) -> str:
        """One line for people."""
        return (
            f"seed {self.seed}: {self.protocol} on {self.shape} of {len(self.overlay)}, faults "
            f"{', '.join(self.classes) or 'none'}, window {self.config.session.window}, delay {self.link_delay_s:g} s"
        )


def draw(seed: int, protocol: str | None = None, classes: Collection[str] | None = None) -> Scenario:
    """The scenario of a seed; a protocol or fault classes that are given replace the drawn ones, all else stays as it is.

    >>> draw(1) == draw(1), draw(1, protocol="merc").protocol, draw(1, classes=()).classes
    (True, 'merc', ())
    """
    for each in classes or ():
        if each not in FAULT_CLASSES:
            raise InvalidInput(f"faults: expected some of {', '.join(FAULT_CLASSES)}, got {each!r}")
    # A stream for each part: to replace one leaves the others as they are.
    dice = random.Random(f"{seed} protocol")
    protocol = _known(protocol) if protocol is not None else dice.choice(list(BUILT_IN))
    shape, overlay = _overlay(random.Random(f"{seed} overlay"), protocol)
    dice = random.Random(f"{seed} faults")
    chosen = tuple(each for each in FAULT_CLASSES if dice.random() < 0.4)
    chosen = chosen if classes is None else tuple(each for each in FAULT_CLASSES if each in classes)
    detector = dice.choice(list(DETECTORS))
    faults = _faults(dice, chosen, detector)
    config = _config(random.Random(f"{seed} config"), detector)
    delay_s = random.Random(f"{seed} delay").choice((0.001, 0.005, 0.02))
    clients = _clients(random.Random(f"{seed} clients"), overlay)
    return Scenario(
        seed=seed, protocol=protocol, shape=shape, overlay=overlay, classes=chosen, faults=faults, config=config,
        link_delay_s=delay_s, clients=clients,
    )  # fmt: skip


def _known(protocol: str) -> str:
    if protocol not in PROTOCOLS:
        raise InvalidInput(f"protocol: expected one of {', '.join(PROTOCOLS)}, got {protocol!r}")
    return protocol


# ---- overlays


def _overlay(dice: random.Random, protocol: str) -> tuple[str, Overlay]:
    brokers, seed = dice.randint(2, 7), dice.getrandbits(31)
    shapes = ["chain", "star", "random-tree"]
    if protocol == "merc":
        shapes = ["clusters", "clusters", "random-graph", "chain"]
    elif not PROTOCOLS[protocol].acyclic:
        shapes = ["ring", "random-graph", "random-graph", "random-tree", "chain"]
    shape = dice.choice(shapes)
    if shape == "random-tree":
        return shape, make_overlay(shape, brokers=brokers, degree_max=3, seed=seed)
    if shape == "random-graph":
        links = dice.randint(brokers - 1, min(brokers * (brokers - 1) // 2, 2 * brokers))
        return shape, make_overlay(shape, brokers=brokers, degree=2 * links / brokers, seed=seed)
    if shape == "ring":
        ids = [f"B{number}" for number in range(1, max(brokers, 3) + 1)]
        return shape, Overlay(ids, itertools.pairwise([*ids, ids[0]]))
    if shape == "clusters":
        return shape, _clusters(dice)
    return shape, make_overlay(shape, brokers=brokers)


def _clusters(dice: random.Random) -> Overlay:
    """Two or three clusters of one or two brokers, in a row or a circle, joined by one or two edge brokers each."""
    names = "UVW"[: dice.randint(2, 3)]
    pairs = list(itertools.pairwise(names)) + ([(names[0], names[-1])] if len(names) == 3 and dice.random() < 0.5 else [])
    brokers = [Broker(f"{name}{i}", cluster=name) for name in names for i in range(dice.randint(1, 2))]
    for one, other in pairs:
        brokers += [Broker(f"{one}{other}{i}", cluster=one, other_clusters=(other,)) for i in range(dice.randint(1, 2))]
    links: set[tuple[str, str]] = set()
    for name in names:
        ids = [broker.id for broker in brokers if name in broker.clusters]
        links |= {_pair(ids[i], ids[dice.randrange(i)]) for i in range(1, len(ids))}
        links |= {_pair(*pair) for pair in itertools.combinations(ids, 2) if dice.random() < 0.25}
    return Overlay(brokers, sorted(links))


def _pair(one: str, other: str) -> tuple[str, str]:
    return (one, other) if one < other else (other, one)


# ---- faults and configuration


def _faults(dice: random.Random, classes: Collection[str], detector: str) -> Faults:
    """The dice are thrown for all classes, so that to take one away leaves the others as they are."""
    quick = detector == "quick"
    # A quick detector takes many lost heartbeats for a lost link, again and again.
    loss, longest_s = 0.02 if quick else dice.choice((0.02, 0.1, 0.2)), 1.5 if quick else 0.8
    chances = {"loss": loss, "duplication": dice.choice((0.05, 0.2)), "reordering": dice.choice((0.05, 0.2))}
    mean_s = {"cuts": dice.uniform(0.4, 2), "crashes": dice.uniform(0.7, 3), "partitions": dice.uniform(1, 4)}
    lasting_s = {each: dice.uniform(0.05, longest_s) for each in mean_s}
    pauses, skew_s = (dice.uniform(0.2, 1), dice.uniform(0.1, 1.5)), dice.choice((0.5, 30.0))
    return Faults(
        **{name: chance for name, chance in chances.items() if name in classes},
        delay_spike_s=0.05 if quick else dice.choice((0.05, 0.5)),
        cut_every_s=mean_s["cuts"] if "cuts" in classes else None, cut_s=lasting_s["cuts"],
        crash_every_s=mean_s["crashes"] if "crashes" in classes else None, crash_s=lasting_s["crashes"],
        partition_every_s=mean_s["partitions"] if "partitions" in classes else None, partition_s=lasting_s["partitions"],
        pause_every_s=pauses[0] if "pauses" in classes else None, pause_s=pauses[1],
        clock_skew_s=skew_s if "skew" in classes else None, until_s=FAULTS_UNTIL_S,
    )  # fmt: skip


def _config(dice: random.Random, detector: str) -> BrokerConfig:
    window = dice.choice((4, 16, 1024))
    session = SessionConfig(window=window, acknowledge_every=min(64, window // 2), retransmit_s=0.3)
    heartbeat_s, link_timeout_s = DETECTORS[detector]
    return BrokerConfig(session, heartbeat_s=heartbeat_s, link_timeout_s=link_timeout_s, undeliverable_timeout_s=20.0)


# ---- clients


def _clients(dice: random.Random, overlay: Overlay) -> tuple[ClientPlan, ...]:
    return tuple(
        [_publisher(dice, overlay, f"p{number}") for number in range(dice.randint(1, 4))]
        + [_subscriber(dice, overlay, f"s{number}") for number in range(dice.randint(2, 7))]
    )


def _publisher(dice: random.Random, overlay: Overlay, id: str) -> ClientPlan:
    joins_s = dice.uniform(0, 3)
    begins_s = joins_s + dice.choice((0.0, dice.random()))
    kind = dice.choice(CLASSES)
    ends_s = dice.uniform(begins_s + 0.5, ACTIVE_UNTIL_S) if dice.random() < 0.25 else None
    lives = [Life(id=f"{id}/a1", filter=advertisement(kind), begins_s=begins_s, ends_s=ends_s)]
    if ends_s is not None or dice.random() < 0.3:
        again_s = (ends_s if ends_s is not None else begins_s) + dice.random()
        lives.append(Life(id=f"{id}/a2", filter=advertisement(dice.choice(CLASSES)), begins_s=again_s))
    times = sorted(dice.uniform(begins_s, ACTIVE_UNTIL_S) for _ in range(dice.randint(3, 8)))
    publishes = tuple((time_s, dice.choice((1, 1, 2, 5))) for time_s in times)
    return ClientPlan(
        id=id, broker=dice.choice(overlay.ids), joins_s=joins_s, advertisements=tuple(lives), publishes=publishes,
        withdraws=dice.random() < 0.5,
    )  # fmt: skip


def _subscriber(dice: random.Random, overlay: Overlay, id: str) -> ClientPlan:
    joins_s = dice.uniform(0, 3)
    lives = []
    for number in range(dice.randint(1, 3)):
        begins_s = joins_s + dice.choice((0.0, dice.uniform(0, 2)))
        ends_s = dice.uniform(begins_s, ACTIVE_UNTIL_S) if dice.random() < 0.25 else None
        lives.append(Life(id=f"{id}/s{number}", filter=_subscription(dice), begins_s=begins_s, ends_s=ends_s))
    leaves_s = dice.uniform(joins_s + 1, ACTIVE_UNTIL_S) if dice.random() < 0.15 else None
    return ClientPlan(
        id=id, broker=dice.choice(overlay.ids), joins_s=joins_s, subscriptions=tuple(lives), leaves_s=leaves_s,
        withdraws=dice.random() < 0.5,
    )  # fmt: skip


def advertisement(kind: str) -> str:
    """What publishers of a class advertise: numbers ``n`` that are given once, and values ``x``."""
    return f"[class,eq,'{kind}'],[x,>=,0],[n,>=,0]"


def _subscription(dice: random.Random) -> str:
    kind, bound = dice.choice(CLASSES), dice.randint(0, 9)
    return dice.choice(
        (f"[class,eq,'{kind}']", f"[class,eq,'{kind}'],[x,>,{bound}]", f"[class,eq,'{kind}'],[x,<=,{bound}]", f"[x,>=,{bound}]")
    )
