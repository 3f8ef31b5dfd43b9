"""Filters as boxes: the clients of MINIMAL from advertisements and subscriptions in the language."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from overweave.errors import PlanningError
from overweave.language.domains import content_space
from overweave.language.predicates import Filter
from overweave.language.space import Box, ContentSpace, bounds
from overweave.planning.box_similarity import BoxClients
from overweave.planning.boxes import Boxes, FilterBoxes
from overweave.planning.problem import Problem, Reals, Whole


def box_clients(
    publishers: Sequence[tuple[str, Filter, float]],
    subscriptions: Sequence[tuple[str, Filter]],
    space: ContentSpace | None = None,
) -> BoxClients:
    """Clients from (publisher, advertisement, rate) and (client, filter): publishers first, then subscribers, in their order.

    A publisher with the id of a subscriber is the same client. Without a ``space``, domains are those that occur in the filters.
    An advertisement of several classes publishes in each in proportion to its volume there. A subscription that admits nothing
    of the space has no box, and its client no load.

    >>> from overweave.language.syntax import parse_filter
    >>> wide, narrow = map(parse_filter, ["[class,eq,'A'],[n,>=,0],[n,<=,9]", "[class,eq,'A'],[n,>=,5]"])
    >>> clients = box_clients([("P1", wide, 2.0)], [("c1", narrow)])
    >>> clients.ids, clients.subscriptions.lo.tolist(), clients.subscriptions.hi.tolist()
    (('P1', 'c1'), [[0.0, 5.0]], [[1.0, 10.0]])
    """
    ids = tuple(dict.fromkeys([*(id for id, _, _ in publishers), *(id for id, _ in subscriptions)]))
    number = {id: i for i, id in enumerate(ids)}
    if space is None:
        space = content_space([*(each for _, each, _ in publishers), *(each for _, each in subscriptions)])
    ads, rates = advertisement_boxes(space, [number[id] for id, _, _ in publishers], publishers)
    subs = subscription_boxes(space, [number[id] for id, _ in subscriptions], [each for _, each in subscriptions])
    found = BoxClients(ids, ads, rates, subs)
    found.validate()
    return found


def with_boxes(problem: Problem, advertisements: Mapping[str, Filter], filters: Mapping[str, Filter]) -> Problem:
    """A problem that also knows the advertisement of every publisher and the filter of every subscription, by their ids."""
    publishers, units = problem.publishers, problem.units
    for kind, ids, known in (
        ("publisher", publishers.ids, advertisements),
        ("subscription", units.subscriptions, filters),
    ):
        for id in ids:
            if id not in known:
                raise PlanningError(f"{kind} {id!r}: expected a filter, found none")
    space = content_space([*advertisements.values(), *filters.values()])
    said = [(id, advertisements[id], 1.0) for id in publishers.ids]
    ads, share = advertisement_boxes(space, range(len(publishers)), said)
    subs = subscription_boxes(space, units.subscription_unit.tolist(), (filters[id] for id in units.subscriptions))
    same = FilterBoxes(ads, share, subs).renumbered(np.arange(len(publishers)), np.arange(len(units)))
    return replace(problem, boxes=same)


def advertisement_boxes(
    space: ContentSpace, owners: Sequence[int], publishers: Sequence[tuple[str, Filter, float]]
) -> tuple[Boxes, Reals]:
    """The boxes of advertisements, and the rate of each; one that admits nothing of the space is an error."""
    boxes: list[Box] = []
    owner: list[int] = []
    rates: list[float] = []
    for at, (id, advertisement, rate_hz) in zip(owners, publishers, strict=True):
        found = space.boxes(advertisement)
        if not found:
            raise PlanningError(f"publisher {id!r}: advertisement: expected some values of the content space, found none")
        volume = sum(box.volume for box in found)
        boxes += found
        owner += [at] * len(found)
        rates += [rate_hz * box.volume / volume for box in found]
    return _boxes(space, boxes, owner), np.array(rates, np.float64)


def subscription_boxes(space: ContentSpace, owners: Iterable[int], filters: Iterable[Filter]) -> Boxes:
    """The boxes of subscriptions."""
    pairs = [(box, at) for at, each in zip(owners, filters, strict=True) for box in space.boxes(each)]
    return _boxes(space, [box for box, _ in pairs], [at for _, at in pairs])


def _boxes(space: ContentSpace, boxes: Sequence[Box], owner: Sequence[int]) -> Boxes:
    lo, hi = bounds(boxes) if boxes else np.zeros((2, 0, space.axes))
    at: Whole = np.array(owner, np.int64)
    return Boxes(lo, hi, at)
