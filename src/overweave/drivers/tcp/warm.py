"""Kernels, ready before they are needed: compiled and kept on disk the first time ever, loaded from there afterwards."""

import numpy as np

from overweave.batches.contents import matched_ids, not_admitted
from overweave.batches.destinations import NextHops, split_by_next_hop, split_local, with_destinations
from overweave.batches.objects import Rows
from overweave.batches.plain_filters import PlainFilters
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.language.headers import Header
from overweave.language.messages import Publish
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.matching.index import Index
from overweave.matching.intersections import IntersectionIndex
from overweave.routing.dedup import DedupWindow


def warm_up() -> None:
    """Do once what a broker does with every batch, and with every subscription."""
    index = Index()
    for number, link in enumerate(("B2", "B3", None)):
        index.add(number, Filter((Predicate("x", Operator.GT, number),)), link)
    publishes = [Publish(Publication({"x": number, "y": "z"}), Header("p", number)) for number in range(3)]
    batch = RawRows(encode_rows(publishes), len(publishes))
    batch.check_origin("p")
    batch.validate()
    batch.renumbered(0, 0.0).published_at_s()
    plain = PlainFilters((Filter((Predicate("x", Operator.PRESENT, 0),)),))
    # Rows as they are received, which nobody may write to, and copies of them.
    for some in (batch, RawRows(batch.data.copy(), batch.count)):
        some.mark_seen(DedupWindow(window=64))
        not_admitted(some, plain)
        for _, part in some.next_hop().split_by_link(index, "B3"):
            part.take(np.array([0]))
        addressed = with_destinations(some, [(1, np.array([0, 2])), (2, np.array([2]))])
        if isinstance(addressed, RawRows):
            for bound in (addressed, RawRows(addressed.data.tobytes(), addressed.count)):
                split_by_next_hop(bound, NextHops([("B2", 0b10)]))
                split_local(bound, 1)
        list(matched_ids(some, index))
    index.links(publishes[0].publication)
    Rows(tuple(publishes)).match(index, "B3")  # as routing by trees of advertisements does
    index.remove(0)
    # As routing looks up what calls for a subscription, and what an advertisement calls for.
    intersections = IntersectionIndex[int](holds_advertisements=True)
    intersections.add(0, Filter((Predicate("x", Operator.GT, 0),)), "B2")
    intersections.links(Filter((Predicate("x", Operator.LT, 9),)))
    intersections.intersecting(Filter((Predicate("x", Operator.LT, 9),)))
