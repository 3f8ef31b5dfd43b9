"""A plan: brokers, links, places of clients and publishers, and the predicted load. A value with a canonical JSON form."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from overweave.errors import PlanningError
from overweave.overlay.parts import link_ends
from overweave.planning.evaluation import Evaluation
from overweave.planning.evidence import Evidence
from overweave.planning.load import Predicted
from overweave.planning.planned_for import PlannedFor, fingerprint_of, planned_for
from overweave.planning.problem import Goals, Problem, Today, Whole
from overweave.planning.tree import Tree

#: Of the form of `plan.json`.
VERSION = 1


class BrokerLoad(msgspec.Struct, frozen=True):
    """The predicted load of a broker."""

    input_hz: float
    output_bytes_per_s: float
    input_utilisation: float
    output_utilisation: float


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference between the current network and a plan: its ``kind`` and the ``id`` of the changed entity."""

    #: client, publisher, broker or link.
    kind: str
    id: str
    #: The broker before and after; for brokers and links themselves "used" or "linked".
    before: str | None = None
    after: str | None = None


class Totals(msgspec.Struct, frozen=True):
    """A plan in a few numbers, over the brokers that it uses."""

    brokers: int
    input_hz_mean: float
    input_hz_deviation: float
    input_hz_max: float
    input_utilisation_mean: float
    input_utilisation_max: float
    output_utilisation_mean: float
    output_utilisation_max: float
    overloaded: int
    hops: float | None
    delay_s: float | None
    clusters: int
    moves: int | None
    #: The total cost of the brokers, if costs are given.
    cost: float | None = None


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The network that a plan changes: its links, and the load that the same profiles predict for it."""

    links: tuple[tuple[str, str], ...]
    load: dict[str, BrokerLoad]
    totals: Totals


class FrontierPoint(msgspec.Struct, frozen=True):
    """What can be had for some moves: a plan of its own, in a few numbers."""

    moves: int
    brokers: int
    input_hz_mean: float
    output_utilisation_max: float
    overloaded: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of `plan.json`."""

    version: int = VERSION
    algorithm: str
    parameters: dict[str, Any]
    seed: int
    #: The network it was made for.
    fingerprint: str
    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    clients: dict[str, str]
    subscribers: dict[str, str]
    publishers: dict[str, str]
    load: dict[str, BrokerLoad]
    totals: Totals
    changes: tuple[Change, ...]
    evidence: Evidence
    goals: Goals
    #: None if the current network is unknown.
    before: Before | None = None
    #: Savings against moves, from today's network to the plan as it would be without a limit on moves; empty: not computed.
    frontier: tuple[FrontierPoint, ...] = ()
    #: The network of the plan, to name differences from another.
    network: PlannedFor | None = None
    #: The evaluation on given publications, if requested.
    evaluation: Evaluation | None = None
    #: The file with the places of clients, if they are too many for JSON.
    placements: str | None = None
    #: Likewise the file that has the changes.
    changes_file: str | None = None

    def encode(self) -> bytes:
        """The canonical JSON: equal plans are equal bytes."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=1) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> "Plan":
        """A plan from its JSON; another version is refused."""
        try:
            plan = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PlanningError(f"plan: {error}") from None
        if plan.version != VERSION:
            raise PlanningError(f"plan: version: expected {VERSION}, found {plan.version}")
        return plan


def fingerprint(problem: Problem) -> str:
    """The fingerprint of a network; see `fingerprint_of`."""
    return fingerprint_of(planned_for(problem), problem.publishers.ids, problem.units.ids)


def totals_of(load: Predicted, clusters: int, moves: int | None, cost: float | None = None) -> Totals:
    """The numbers of a prediction."""

    def number(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return Totals(
        brokers=len(load.input_hz),
        input_hz_mean=float(load.input_hz.mean()),
        input_hz_deviation=float(load.input_hz.std()),
        input_hz_max=float(load.input_hz.max()),
        input_utilisation_mean=float(load.input_utilisation.mean()),
        input_utilisation_max=float(load.input_utilisation.max()),
        output_utilisation_mean=float(load.output_utilisation.mean()),
        output_utilisation_max=float(load.output_utilisation.max()),
        overloaded=len(load.overloaded),
        hops=number(load.hops),
        delay_s=number(load.delay_s),
        clusters=clusters,
        moves=moves,
        cost=cost,
    )


def loads_of(load: Predicted, ids: Sequence[str]) -> dict[str, BrokerLoad]:
    """The predicted load by broker."""
    fields = BrokerLoad.__struct_fields__
    return {id: BrokerLoad(*(float(getattr(load, name)[node]) for name in fields)) for node, id in enumerate(ids)}


def links_of(tree: Tree, ids: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The links of a tree, in one order."""
    pairs = ((ids[tree.broker[node]], ids[tree.broker[tree.parent[node]]]) for node in range(1, len(tree)))
    return tuple(sorted(link_ends(*pair) for pair in pairs))


def changes(
    problem: Problem,
    brokers: Iterable[str],
    links: Iterable[tuple[str, str]],
    units: Mapping[str, str],
    publishers: Mapping[str, str],
) -> tuple[Change, ...]:
    """What differs from today: clients and publishers that move, brokers and links that come and go. Nothing without a today."""
    today = problem.today
    if today is None:
        return ()
    found = [*_moves("client", problem, problem.units.ids, today.units, units)]
    found += _moves("publisher", problem, problem.publishers.ids, today.publishers, publishers)
    used = _used_today(problem, today)
    now, then = dict.fromkeys(used, "used"), dict.fromkeys(brokers, "used")
    found += [Change("broker", id, now.get(id), then.get(id)) for id in sorted(now.keys() ^ then.keys())]
    old, new = {link_ends(*link) for link in today.links}, {link_ends(*link) for link in links}
    found += [
        Change("link", f"{link[0]} {link[1]}", "linked" if link in old else None, "linked" if link in new else None)
        for link in sorted(old ^ new)
    ]
    return tuple(found)


def _moves(kind: str, problem: Problem, ids: tuple[str, ...], before: Whole, after: Mapping[str, str]) -> list[Change]:
    brokers = problem.pool.ids
    rows = zip(ids, before.tolist(), strict=True)
    found = [
        Change(kind, id, brokers[at] if at >= 0 else None, after[id]) for id, at in rows if at < 0 or brokers[at] != after[id]
    ]
    return sorted(found, key=lambda change: change.id)


def _used_today(problem: Problem, today: Today) -> set[str]:
    at = np.concatenate([today.units, today.publishers])
    return {problem.pool.ids[i] for i in np.unique(at[at >= 0]).tolist()} | {id for link in today.links for id in link}


def moves_of(found: Iterable[Change]) -> int:
    """Clients and publishers that are somewhere today and move."""
    return sum(change.kind in ("client", "publisher") and change.before is not None for change in found)
