"""The kind ``replay``: where the publications of a scenario would go on a tree, counted without simulating anything.

`overweave.pipeline.steps.replay` spreads one large workload over a cluster. A sweep has many small ones, so here a task
calls the same kernels on whole scenarios, and Spark spreads the scenarios. The counts are those of the simulator when nothing
goes wrong.
"""

import itertools
from collections.abc import Iterator

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.drivers.sim.metrics import share
from overweave.drivers.sim.scenario import Scenario, scenario_of
from overweave.drivers.sim.workload import Publisher, Workload, make_workload
from overweave.errors import InvalidInput
from overweave.language.publications import Publication
from overweave.matching.index import Index
from overweave.matching.search import view_of
from overweave.overlay.graph import Overlay
from overweave.overlay.paths import next_hops
from overweave.pipeline.publication_batches import CHUNK
from overweave.pipeline.steps.replay import COLUMNS, REPLAYED, walk
from overweave.pipeline.sweeps.base import Document, Evaluator

#: Keys of a scenario; time, faults and modules need the simulator.
KEYS = ("seed", "duration_s", "overlay", "routing", "workload")


class Rates(msgspec.Struct, frozen=True):
    """Of the busiest broker, and of all on average."""

    max: float
    mean: float


class Counts(msgspec.Struct, frozen=True, kw_only=True, rename={"yield_": "yield"}):
    """Measures with the names and meanings of `overweave.drivers.sim.metrics.Metrics`; and arrivals per second at brokers."""

    publications: int
    arrivals: int
    useful_arrivals: int
    pure_forwards: int
    yield_: float | None
    deliveries: int
    hops_mean: float | None
    publication_hops: int
    input_hz: Rates


def read(document: Document) -> Scenario:
    """The scenario, whose overlay is a tree and whose protocol can be replayed."""
    scenario = scenario_of(document)
    if scenario.routing.protocol not in REPLAYED:
        known = ", ".join(REPLAYED)
        raise InvalidInput(f"routing.protocol: expected one of {known} for a replay, got {scenario.routing.protocol!r}")
    if not scenario.overlay.make(scenario.seed).is_tree():
        raise InvalidInput(f"overlay.shape: expected a tree for a replay, got {scenario.overlay.shape!r} with cycles")
    return scenario


def evaluate(scenario: Scenario) -> Counts:
    """Count where everything goes."""
    overlay = scenario.make_overlay()
    counts, publications = _walked(scenario, overlay, make_workload(scenario, overlay))
    arrivals = counts["arrivals"]
    useful, deliveries = int(counts["useful_arrivals"].sum()), int(counts["deliveries"].sum())
    pure_forwards = int(arrivals.sum()) - useful
    return Counts(
        publications=publications,
        arrivals=int(arrivals.sum()),
        useful_arrivals=useful,
        pure_forwards=pure_forwards,
        yield_=share(useful, pure_forwards),
        deliveries=deliveries,
        hops_mean=int(counts["delivery_hops"].sum()) / deliveries if deliveries else None,
        publication_hops=int(counts["hops"].sum()),
        input_hz=Rates(float(arrivals.max()) / scenario.duration_s, float(arrivals.mean()) / scenario.duration_s),
    )


def _walked(scenario: Scenario, overlay: Overlay, workload: Workload) -> tuple[dict[str, NDArray[np.int64]], int]:
    """The counts of every broker, by column, and how many publications there were."""
    position = {id: number for number, id in enumerate(overlay.ids)}
    index = Index()
    index.add_many((each.id, each.filter, None) for each in workload.subscribers)
    broker = {each.id: position[each.broker] for each in workload.subscribers}
    placed = np.array([broker[str(id)] for id in index.slot_ids()], np.int32)
    hops = next_hops(overlay)
    towards, distances = np.ascontiguousarray(hops.table.T), np.ascontiguousarray(hops.distances)
    counts, scratch = np.zeros((len(overlay.ids), len(COLUMNS)), np.int64), np.zeros((3, len(overlay.ids) + 1), np.int64)
    number = 0
    for publisher in workload.publishers:
        published = _published(publisher, scenario.duration_s)
        while some := list(itertools.islice(published, CHUNK)):
            slots, ends = index.slots(view_of(some))
            sources = np.full(len(some), position[publisher.broker], np.int64)
            everywhere = REPLAYED[scenario.routing.protocol]
            walk(sources, slots, ends, placed, towards, distances, everywhere, number, scratch, counts)
            number += len(some)
    return dict(zip(COLUMNS, counts.T, strict=True)), number


def _published(publisher: Publisher, duration_s: float) -> Iterator[Publication]:
    """What the simulator has it publish in that time."""
    for number, publication in enumerate(publisher.publications()):
        if publisher.at_s(number) >= duration_s:
            return
        yield publication


REPLAY = Evaluator(
    read, evaluate, Counts, keys=KEYS, drawn=("publication_hops", "yield", "hops_mean", "input_hz_max"), per_task=16
)
