"""The kind ``analysis``: what hierarchical routing costs on a tree, in closed form (STOCH 4), as ``overweave analyze`` has it."""

from typing import NamedTuple

import msgspec

from overweave.analysis.hierarchical import analyse
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload
from overweave.drivers.toml_config import converted, shaped, table, values
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import SHAPES
from overweave.pipeline.sweeps.base import Document, Evaluator


class Clients(msgspec.Struct, frozen=True, kw_only=True):
    """``[workload]``: subscriptions and publications of the whole network, equally spread over brokers and filter classes."""

    subscriptions: float
    classes: int = 1000
    lifetime_s: float = 60.0
    #: Publications per second.
    rate_hz: float = 1000.0

    def __post_init__(self) -> None:
        if self.classes < 1:
            raise InvalidInput(f"workload.classes: expected an integer of at least 1, got {self.classes}")
        for name in ("subscriptions", "rate_hz"):
            if getattr(self, name) < 0:
                raise InvalidInput(f"workload.{name}: expected a number from 0 on, got {getattr(self, name):g}")
        if self.lifetime_s <= 0:
            raise InvalidInput(f"workload.lifetime_s: expected a time above 0, got {self.lifetime_s:g}")


class Case(NamedTuple):
    """The analysed workload."""

    overlay: Overlay
    clients: Clients


class Expected(msgspec.Struct, frozen=True, kw_only=True):
    """Of the whole network: entries of routing tables, and messages per second between brokers (see `analysis.hierarchical`)."""

    local_entries: float
    routing_entries: float
    notification_rate: float
    control_rate: float
    control_rate_simple: float
    flooding_rate: float
    saved_notification_rate: float
    saved_rate: float
    saved_rate_simple: float


def read(document: Document) -> Case:
    """The overlay, which has to be a tree, and what its clients do."""
    for name in ("overlay", "workload"):
        if name not in document:
            raise InvalidInput(f"{name}: expected a table [{name}], which is missing")
    options = dict(table("overlay", document["overlay"]))
    shape = options.pop("shape", None)
    if not isinstance(shape, str):
        raise InvalidInput(f"overlay.shape: expected one of {', '.join(SHAPES)}, got {shape!r}")
    seed = converted(_Seed, "", {"seed": document.get("seed", 1)})["seed"]
    overlay = shaped("overlay", shape, options, seed)
    if not overlay.is_tree():
        raise InvalidInput(f"overlay.shape: expected a tree for an analysis, got {shape!r} with cycles")
    return Case(overlay, values(Clients, "workload", document["workload"]))


def evaluate(case: Case) -> Expected:
    """Equations 1 to 14."""
    tree, clients = Tree.of_overlay(case.overlay), case.clients
    workload = Workload.uniform(len(tree), clients.classes, clients.subscriptions, clients.lifetime_s, clients.rate_hz)
    totals = analyse(tree, workload).totals
    return Expected(**{name: float(getattr(totals, name)) for name in Expected.__struct_fields__})


class _Seed(msgspec.Struct):
    seed: int


ANALYSIS = Evaluator(
    read,
    evaluate,
    Expected,
    keys=("seed", "overlay", "workload"),
    drawn=("notification_rate", "control_rate", "routing_entries", "saved_rate"),
    per_task=200,
)
