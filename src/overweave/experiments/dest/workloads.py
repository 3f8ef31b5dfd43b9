"""Filters that do not cover each other, of which every publication matches some (DEST V-A).

Filter-based routing of this project withholds subscriptions that others cover, the paper's does not: where none covers another
both store the same. Subscriptions are windows of the same width in the price, each with its own lower end.
"""

from collections.abc import Iterator

import numpy as np

from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication

PRICES = 1_000_000
#: Subscriptions and publications are of one group each, and an advertisement leaves some groups out: so an exact share of the
#: advertisements is met by each subscription.
GROUPS = 5


def windows(count: int, selectivity: float, draw: np.random.Generator, group_first: int | None = None) -> Iterator[Filter]:
    """Subscriptions, in all groups by turns or in none, each of which wants a publication with the chance ``selectivity``."""
    # Windows reach over both ends, so that no price is wanted less than others.
    width = round(PRICES * selectivity / (1 - selectivity))
    for number, low in enumerate(draw.choice(PRICES + width, count, replace=False).tolist()):
        group = None if group_first is None else (group_first + number) % GROUPS
        bounds = Predicate("price", Operator.GE, low - width), Predicate("price", Operator.LT, low)
        yield Filter((_STOCK, *_group(group, Operator.EQ), *bounds))


def advertisement(groups_out: tuple[int, ...] = (), grouped: bool = False) -> Filter:
    """Quotes of all groups but some, or without groups."""
    present = (Predicate("group", Operator.PRESENT, "g"),) if grouped else ()
    others = (predicate for group in groups_out for predicate in _group(group, Operator.NE))
    return Filter((_STOCK, *present, *others, Predicate("price", Operator.PRESENT, 0)))


def groups_out(number: int, share: float) -> tuple[int, ...]:
    """The groups that the advertisement with this number leaves out, so that it meets ``share`` of the subscriptions."""
    return tuple((number + offset) % GROUPS for offset in range(GROUPS - round(share * GROUPS)))


def quote(draw: np.random.Generator, groups: tuple[int, ...] | None = None) -> Publication:
    """A publication with any price, in one of some groups."""
    content: dict[str, str | int] = {"class": "STOCK", "price": int(draw.integers(PRICES))}
    if groups is not None:
        content["group"] = f"G{groups[int(draw.integers(len(groups)))]}"
    return Publication(content)


_STOCK = Predicate("class", Operator.EQ, "STOCK")


def _group(group: int | None, operator: Operator) -> tuple[Predicate, ...]:
    return () if group is None else (Predicate("group", operator, f"G{group}"),)
