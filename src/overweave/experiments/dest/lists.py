"""Destination lists in flight, by the tables of the multicasting layer alone, as DEST V-B simulates it (figures 19 to 21)."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pandas as pd

from overweave.batches.destinations import NextHops, bits_of
from overweave.experiments.dest.networks import spread
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing.messages import LinkState
from overweave.routing.topology import UP, Topology

BROKERS = (100, 200, 300, 400, 500, 600, 700)
SHARES = (0.1, 0.3, 0.5, 0.7, 1.0)
#: Lists up to this length are counted one by one.
_LENGTH_MAX = 700


class Setup(NamedTuple):
    """Events, each from a broker drawn at random to a share of all brokers of an overlay."""

    brokers: int
    degree: float
    share: float
    events: int
    shape: str = "random-graph"
    seed: int = 1


def setups(full: bool) -> list[Setup]:
    """Figures 19 to 21 (degree 6), other degrees of the text, and figure 20 on another kind of overlay."""
    events = 10_000 if full else 200
    grid = [Setup(brokers, 6, share, events) for brokers in (BROKERS if full else BROKERS[::2]) for share in SHARES]
    return [Setup(100, 3, 0.5, events), Setup(700, 9, 1.0, events), *grid, Setup(700, 6, 0.1, events, "waxman")]


def measure_all(several: list[Setup], processes: int) -> pd.DataFrame:
    """A row per setup and length of lists."""
    return pd.concat(spread(measure, several, processes), ignore_index=True)


def measure(setup: Setup) -> pd.DataFrame:
    """How many messages carried lists of each length (``messages``), and how many of these the source sent (``at_source``)."""
    overlay = make_overlay(setup.shape, brokers=setup.brokers, degree=setup.degree, seed=setup.seed)
    ways, draw = ways_of(overlay), np.random.default_rng(setup.seed)
    messages, at_source = np.zeros(_LENGTH_MAX + 1, np.int64), np.zeros(_LENGTH_MAX + 1, np.int64)
    for _ in range(setup.events):
        source = int(draw.integers(setup.brokers))
        wanted = bits_of(draw.choice(setup.brokers, round(setup.share * setup.brokers), replace=False).tolist())
        for at, length in carried(ways, overlay.ids[source], overlay, wanted & ~(1 << source)):
            messages[length] += 1
            at_source[length] += at == overlay.ids[source]
    lengths = np.flatnonzero(messages)
    table = pd.DataFrame({"length": lengths, "messages": messages[lengths], "at_source": at_source[lengths]})
    return table.assign(**setup._asdict())


def ways_of(overlay: Overlay) -> dict[str, NextHops]:
    """The next hops of every broker, found by itself when it has heard of the links of all."""
    states = [LinkState(id, number, 1, 1, tuple(sorted(overlay.neighbours(id)))) for number, id in enumerate(overlay.ids)]
    found = {}
    for number, id in enumerate(overlay.ids):
        topology = Topology(id, number)
        for neighbour in overlay.neighbours(id):
            topology.add(neighbour)
            topology.set(neighbour, UP)
        for state in states:
            topology.accept(state)
        found[id] = topology.next_hops
    return found


def carried(ways: dict[str, NextHops], source: str, overlay: Overlay, destinations: int) -> Iterator[tuple[str, int]]:
    """All messages of one event: the sender and the number of destinations (algorithm 2)."""
    pending = [(source, destinations)]
    while pending:
        at, rest = pending.pop()
        for hop, part in ways[at].split(rest):
            assert hop is not None, "the overlay is connected"
            yield at, part.bit_count()
            if further := part & ~(1 << overlay.position(hop)):
                pending.append((hop, further))
