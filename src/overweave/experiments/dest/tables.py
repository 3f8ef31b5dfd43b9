"""What knowing the whole overlay costs (DEST III-D and V-B): the tables of the multicasting layer, and messages for a change."""

import sys
from typing import Any

import msgspec
import pandas as pd

from overweave.contract.config import BrokerConfig
from overweave.experiments.dest.networks import overlay_for, quieten, started
from overweave.experiments.dest.watching import Counts, Watcher
from overweave.routing.topology import Topology

CONFIG = BrokerConfig(heartbeat_s=0.5, link_timeout_s=1.2)
_NOTICE_S = 3.0


def measure(brokers: int = 100, degree: float = 6, seed: int = 1) -> pd.DataFrame:
    """A row: the bytes of TRT and SPRT at a broker, and messages between brokers after the loss of a link."""
    counts = Counts()
    overlay = overlay_for("destination", brokers, degree, seed)
    network = started(
        overlay, "destination", config=CONFIG, watcher=lambda broker: Watcher(broker, overlay.position(broker), counts)
    )
    topology = network.broker(overlay.ids[0]).topology
    assert isinstance(topology, Topology)
    before = counts.link_states
    network.cut_link(overlay.links[0].ends)
    network.scheduler.run(network.scheduler.now_s + _NOTICE_S)
    quieten(network)
    return pd.DataFrame(
        [{"brokers": brokers, "links": len(overlay.links), **weights(topology), "update_messages": counts.link_states - before}]
    )


def weights(topology: Topology) -> dict[str, int]:
    """Bytes of both tables: on the wire with a bit per broker and next hop, and as Python objects."""
    states, reach = topology.states(), topology.next_hops.by_neighbour
    rows = sum((len(states) + 7) // 8 + len(hop) for hop, _ in reach)
    return {"bytes_said": len(msgspec.msgpack.encode(states)) + rows, "bytes_in_python": _deep_bytes([states, reach], set())}


def _deep_bytes(value: Any, seen: set[int]) -> int:
    """Everything once, however many refer to it."""
    if id(value) in seen:
        return 0
    seen.add(id(value))
    parts: tuple[Any, ...] = ()
    if isinstance(value, list | tuple):
        parts = tuple(value)
    elif isinstance(value, msgspec.Struct):
        parts = tuple(getattr(value, name) for name in value.__struct_fields__)
    return sys.getsizeof(value) + sum(_deep_bytes(part, seen) for part in parts)
