"""The candidate brokers of a plan and the links of the current network."""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from overweave.drivers.overlay_file import read_overlay
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.plan_tables import column_lists, numbers
from overweave.planning.problem import Pool, Reals

_BROKER_COLUMNS = (
    "broker",
    "output_bandwidth_bytes_per_s",
    "matching_delay_base_s",
    "matching_delay_per_subscription_s",
)


@dataclass(frozen=True)
class Network:
    """The candidate brokers and the links of the current network (empty: unknown)."""

    pool: Pool
    links: tuple[tuple[str, str], ...] = ()
    #: The source of the brokers, for errors.
    source: str = "brokers"
    #: Whether capacities are from a table, and the brokers that do not exist yet.
    by_table: bool = False
    added: tuple[str, ...] = ()

    def with_more(self, more: Pool) -> "Network":
        """The network with additional candidate brokers."""
        bandwidth, base_s, slope_s, capacity = (
            np.concatenate(part) for part in zip(_columns(self.pool), _columns(more), strict=True)
        )
        known = self.pool.cost is not None or more.cost is not None
        cost = np.concatenate([self.pool.costs, more.costs]) if known else None
        pool = Pool(self.pool.ids + more.ids, bandwidth, base_s, slope_s, capacity, cost)
        return replace(self, pool=pool, added=self.added + more.ids)


def read_brokers(table: LocationLike) -> Pool:
    """The brokers of a table ``brokers``."""
    path = Location.of(table)
    rows = column_lists(path, _BROKER_COLUMNS)
    count = len(rows["broker"])
    capacity = rows.get("capacity_hz") or [None] * count
    ids = tuple(str(id) for id in rows["broker"])
    bandwidth, base_s, slope_s = (numbers(path, name, rows[name]) for name in _BROKER_COLUMNS[1:])
    if not count:
        raise InvalidInput(f"{path}: brokers: expected at least one, found none")
    limits = np.array([np.inf if each is None else float(each) for each in capacity])
    cost = numbers(path, "cost", rows["cost"]) if rows.get("cost") else None
    return Pool(ids, bandwidth, base_s, slope_s, limits, cost)


def network_of(overlay: Overlay, source: str) -> Network:
    """The pool and the links of an overlay."""
    brokers = [overlay.broker(id) for id in overlay.ids]
    pool = Pool(
        tuple(overlay.ids),
        np.array([each.output_bandwidth_bytes_per_s for each in brokers]),
        np.array([each.matching_delay_base_s for each in brokers]),
        np.array([each.matching_delay_per_subscription_s for each in brokers]),
        np.array([np.inf if each.capacity_hz is None else each.capacity_hz for each in brokers]),
    )
    return Network(pool, tuple(link.ends for link in overlay.links), source)


def read_offer(network: Path | None, brokers: LocationLike | None) -> Network | None:
    """The links of a network file with the capacities of a table, if given, or else of the file; None without both."""
    found = None if network is None else network_of(read_overlay(network), str(network))
    if brokers is None:
        return found
    pool = read_brokers(brokers)
    for id in () if found is None else found.pool.ids:
        if id not in pool.ids:
            raise InvalidInput(f"{network}: broker {id!r} is not in {brokers}: expected the same network, found another")
    return Network(pool, () if found is None else found.links, str(brokers), by_table=True)


def _columns(pool: Pool) -> tuple[Reals, ...]:
    return pool.bandwidth_bytes_per_s, pool.base_s, pool.slope_s, pool.capacity_hz
