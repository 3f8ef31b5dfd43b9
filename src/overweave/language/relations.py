"""The three relations of content-based routing: matches, covers and intersects (THESIS 3.2, SPEC 0).

A filter constrains its attributes independently, so each relation is decided attribute by attribute on the constraints
of `overweave.language.constraints`. Both are exact on numbers and on the usual texts; what is left, odd mixtures of text
operators and long runs of ``NUL``, is named there. They err on the side that keeps routing correct: a
subscription too many is forwarded, never one too few.
"""

from collections.abc import Hashable

from overweave.language.constraints import Numbers, TextSet, constraints
from overweave.language.predicates import Filter
from overweave.language.publications import Publication


def matches(subscription: Filter, publication: Publication) -> bool:
    """Whether ``publication`` satisfies every predicate of ``subscription``: the definition, kept plain.

    >>> from overweave.language.syntax import parse_filter, parse_publication
    >>> quote = parse_publication("[class,'STOCK'],[symbol,'YHOO'],[volume,203400]")
    >>> matches(parse_filter("[class,eq,'STOCK'],[volume,>,1000]"), quote)
    True
    >>> matches(parse_filter("[class,eq,'STOCK'],[open,<>,30]"), quote)
    False
    """
    for predicate in subscription.predicates:
        value = publication.get(predicate.attribute)
        if value is None or not predicate.holds(value):
            return False
    return True


def admits(advertisement: Filter, publication: Publication) -> bool:
    """Whether ``publication`` is one that ``advertisement`` tells of: it has no other attributes, and values that are admitted.

    Then the advertisement `intersects` every subscription that the publication matches.

    >>> from overweave.language.syntax import parse_filter, parse_publication
    >>> advertisement = parse_filter("[class,eq,'STOCK'],[volume,>,0]")
    >>> [admits(advertisement, parse_publication(text)) for text in ("[volume,7]", "[volume,0]", "[volume,7],[open,1]")]
    [True, False, False]
    """
    named = set()
    for predicate in advertisement.predicates:
        value = publication.get(predicate.attribute)
        if value is not None:
            if not predicate.holds(value):
                return False
            named.add(predicate.attribute)
    return len(named) == len(publication) and constraints(advertisement) is not None


def covers(wide: Filter, narrow: Filter) -> bool:
    """Whether every publication that matches ``narrow`` matches ``wide``; a yes is always right.

    It is reflexive, and transitive unless texts differ in more than 64 ``NUL`` at their ends. An unsatisfiable filter
    is covered by all and covers only its like.

    >>> from overweave.language.syntax import parse_filter
    >>> stock, yahoo = parse_filter("[class,eq,'STOCK']"), parse_filter("[class,eq,'STOCK'],[symbol,eq,'YHOO']")
    >>> covers(stock, yahoo), covers(yahoo, stock)
    (True, False)
    """
    admitted = constraints(narrow)
    if admitted is None:
        return True
    wanted = constraints(wide)
    if wanted is None or len(wanted) > len(admitted):
        return False
    for attribute, constraint in wanted.items():
        other = admitted.get(attribute)
        if other is None or not constraint.covers(other):
            return False
    return True


def intersects(advertisement: Filter, subscription: Filter) -> bool:
    """Whether a publication with exactly the attributes of ``advertisement`` can satisfy both; a no is always right.

    >>> from overweave.language.syntax import parse_filter
    >>> advertisement = parse_filter("[class,eq,'STOCK'],[volume,isPresent,0]")
    >>> intersects(advertisement, parse_filter("[class,eq,'STOCK'],[volume,>,1000]"))
    True
    >>> intersects(advertisement, parse_filter("[class,eq,'STOCK'],[open,>,30]"))
    False
    """
    offered, wanted = constraints(advertisement), constraints(subscription)
    if offered is None or wanted is None:
        return False
    for attribute, constraint in wanted.items():
        other = offered.get(attribute)
        if other is None or not constraint.intersects(other):
            return False
    return True


def signature(subscription: Filter) -> tuple[Hashable, ...] | None:
    """What every filter that ``subscription`` covers must show too: the values it fixes, then its attributes.

    ``covers(wide, narrow)`` implies that ``narrow`` has all marks of ``wide``, so candidates for covering are found by
    looking up instead of comparing. An unsatisfiable filter is covered by all filters, so no marks will do: ``None``.

    >>> from overweave.language.syntax import parse_filter
    >>> signature(parse_filter("[class,eq,'STOCK'],[volume,>,1000]"))
    (('class', 'STOCK'), 'class', 'volume')
    """
    admitted = constraints(subscription)
    if admitted is None:
        return None
    fixed: list[Hashable] = []
    for attribute, constraint in admitted.items():
        if isinstance(constraint, Numbers) and constraint.lo == constraint.hi:
            fixed.append((attribute, constraint.lo))
        elif isinstance(constraint, TextSet) and len(constraint.values) == 1:
            fixed.append((attribute, *constraint.values))
    return (*fixed, *admitted)
