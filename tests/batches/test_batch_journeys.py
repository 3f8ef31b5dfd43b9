"""Batches that travel from broker to broker by their destination lists: rows as bytes, written and read at every hop and looked
at only where they must be, arrive where rows as objects do, with the same hops, ttl and content."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.batches.destinations import split_by_next_hop, split_local, with_destinations
from overweave.batches.objects import Rows
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.contract.frames import BatchFrame, SessionEpoch
from overweave.contract.wire import HEAD, decode, encode
from overweave.experiments.dest.lists import ways_of
from overweave.language.headers import Header
from overweave.language.messages import Publish
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.overlay.paths import path_between

EPOCH = SessionEpoch(1, 0)

BROKERS = 9


@st.composite
def overlays(draw):
    """A tree, and some links more."""
    pairs = {(draw(st.integers(0, child - 1)), child) for child in range(1, BROKERS)}
    more = draw(st.sets(st.tuples(st.integers(0, BROKERS - 1), st.integers(0, BROKERS - 1)), max_size=4))
    pairs |= {(min(pair), max(pair)) for pair in more if pair[0] != pair[1]}
    return Overlay([Broker(f"B{i}") for i in range(BROKERS)], ((f"B{one}", f"B{other}") for one, other in pairs))


ROWS = st.lists(st.tuples(st.frozensets(st.integers(1, BROKERS - 1)), st.integers(1, 6)), min_size=1, max_size=6)


@settings(deadline=None)
@given(overlays(), ROWS)
def test_rows_arrive_alike_in_both_backings(overlay, rows):
    publishes = [Publish(Publication({"x": i}), Header("p", i, ttl=ttl), b"payload") for i, (_, ttl) in enumerate(rows)]
    arrived = journey(overlay, Rows(tuple(publishes)), rows, lambda batch: batch)
    assert journey(overlay, RawRows(encode_rows(publishes), len(publishes)), rows, over_the_wire) == arrived
    # It is counted as a hop when a row comes to the first broker, and a row that has taken all its hops goes no further.
    far = {f"B{number}": len(path_between(overlay, "B0", f"B{number}")) - 1 for number in range(1, BROKERS)}
    assert set(arrived) == {(f"B{to}", i) for i, (numbers, ttl) in enumerate(rows) for to in numbers if far[f"B{to}"] < ttl}
    assert all(header.hops == far[to] for (to, _), (header, _, _) in arrived.items())


def journey(overlay, batch, rows, carried):
    """Who gets which row, and how; every hop goes ``carried``."""
    ways, arrived = ways_of(overlay), {}
    found = [(to, np.array([row for row, (numbers, _) in enumerate(rows) if to in numbers], int)) for to in range(1, BROKERS)]
    bound = with_destinations(batch.next_hop(), [(to, some) for to, some in found if len(some)])
    under_way = [] if bound is None else parted(bound, ways["B0"])
    while under_way:
        at, some = under_way.pop()
        here, passing = split_local(carried(some), int(at[1:]))
        if here is not None:
            for publish in here.publishes():
                key = at, publish.header.sequence
                assert key not in arrived
                arrived[key] = publish.header, publish.publication, publish.payload
        if passing is not None:
            under_way += parted(passing.next_hop(), ways[at])
    return arrived


def parted(batch, ways):
    """As a broker sends on what is bound."""
    parts = [(hop, part if batch.ttl > 0 else part.unexpired()) for hop, part in split_by_next_hop(batch, ways)]
    return [(hop, part) for hop, part in parts if part is not None]


def over_the_wire(batch):
    data = b"".join(encode(BatchFrame(EPOCH, EPOCH, 0, 0, batch)))
    _, kind = HEAD.unpack_from(data)
    return decode(kind, data[HEAD.size :]).batch
