"""The tables of a live network as Parquet files, for plans: profiles, publishers, subscriptions and brokers."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from overweave.contract.modules import Capacity
from overweave.contract.observation import Observation
from overweave.drivers.profile_tables import ProfileTables
from overweave.errors import InvalidInput
from overweave.overlay.parts import link_ends
from overweave.pipeline.plan_brokers import Network
from overweave.planning.problem import Pool, Reals

_NAMES = ("profiles", "publisher_profiles", "subscription_lifetimes")
_TEXTS = frozenset({"subscription", "publisher", "client", "broker", "filter"})
_REALS = frozenset({"rate_hz", "bytes_per_s", "message_bytes", "subscribed_at_s", "withdrawn_at_s"})


def write_live_tables(tables: ProfileTables, directory: Path) -> None:
    """Write the tables of a profile."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, columns in zip(_NAMES, tables, strict=True):
        schema = pa.schema([(column, _type_of(column)) for column in columns])
        pq.write_table(pa.table(columns, schema=schema), directory / f"{name}.parquet")


def live_network(seen: Observation, source: str) -> Network:
    """The brokers of a live network with their capacities, and the links of its current epoch. Guests are on offer."""
    capacities = {id: each.capacity for id, each in seen.brokers.items()}
    pool = Pool(
        tuple(capacities),
        _column(capacities, "output_bandwidth_bytes_per_s"),
        _column(capacities, "matching_delay_base_s"),
        _column(capacities, "matching_delay_per_subscription_s"),
        np.array([np.inf if each.capacity_hz is None else each.capacity_hz for each in capacities.values()]),
    )
    tree = seen.state.tree(seen.state.current)
    guests = tuple(id for id in capacities if id not in tree.brokers)
    return Network(pool, tuple(sorted(link_ends(*ends) for ends in tree.links)), source, added=guests)


def _column(capacities: dict[str, Capacity], name: str) -> Reals:
    for broker, each in capacities.items():
        if getattr(each, name) is None:
            raise InvalidInput(f"broker {broker!r}: {name}: expected a number in its network file, or --brokers")
    return np.array([getattr(each, name) for each in capacities.values()], np.float64)


def _type_of(column: str) -> pa.DataType:
    if column == "words":
        return pa.list_(pa.int64())
    return pa.string() if column in _TEXTS else pa.float64() if column in _REALS else pa.int64()
