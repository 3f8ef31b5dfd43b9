"""Automatic advertisements: the missing advertisement for a publication."""

from overweave.language.codec import PREDICATES_MAX
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.relations import admits
from overweave.language.values import is_number

_CLASS = "class"
#: The attributes of a publication, and whether each is a number.
_Shape = frozenset[tuple[str, bool]]


class Advertiser:
    """The advertisements of one client, explicit or automatic.

    >>> advertiser = Advertiser()
    >>> quote = Publication({"class": "STOCK", "volume": 7})
    >>> filter = advertiser.missing(quote)
    >>> str(filter)
    "[class,eq,'STOCK'],[volume,isPresent,0]"
    >>> advertiser.advertised(quote)
    >>> advertiser.missing(quote), advertiser.missing(Publication({"class": "STOCK"}))
    (None, None)
    """

    def __init__(self) -> None:
        #: Explicit advertisements, by id.
        self._explicit: dict[str, Filter] = {}
        #: By class, the shapes with automatic advertisements; and all shapes known to be within one of them.
        self._shapes: dict[object, list[_Shape]] = {}
        self._known: set[tuple[object, _Shape]] = set()
        #: Shapes within an explicit advertisement for all values except the class.
        self._within_explicit: set[tuple[object, _Shape]] = set()

    def add(self, id: str, filter: Filter) -> None:
        """Add an explicit advertisement."""
        self._explicit[id] = filter
        self._within_explicit.clear()

    def remove(self, id: str) -> None:
        """Remove an explicit advertisement."""
        self._explicit.pop(id, None)
        self._within_explicit.clear()

    def missing(self, publication: Publication) -> Filter | None:
        """The advertisement that a publication needs; None if it has one already, or if there can be no such filter."""
        kind, shape = _class(publication), _shape(publication)
        this = kind, shape
        if this in self._known or this in self._within_explicit or len(shape) > PREDICATES_MAX:
            return None
        if any(shape <= other for other in self._shapes.get(kind, ())):
            self._known.add(this)
            return None
        for filter in self._explicit.values():
            if admits(filter, publication):
                if all(each.operator is Operator.PRESENT or each.attribute == _CLASS for each in filter.predicates):
                    self._within_explicit.add(this)
                return None
        return advertisement(publication)

    def advertised(self, publication: Publication) -> None:
        """Record the automatic advertisement for a publication."""
        kind, shape = _class(publication), _shape(publication)
        self._shapes.setdefault(kind, []).append(shape)
        self._known.add((kind, shape))


def advertisement(publication: Publication) -> Filter:
    """A filter for publications of the same class with no other attributes.

    >>> str(advertisement(Publication({"class": "STOCK", "symbol": "YHOO", "volume": 7})))
    "[class,eq,'STOCK'],[symbol,isPresent,''],[volume,isPresent,0]"
    """
    return Filter(
        tuple(
            Predicate(name, Operator.EQ, value)
            if name == _CLASS and value == value
            else Predicate(name, Operator.PRESENT, 0 if is_number(value) else "")
            for name, value in publication.items()
        )
    )


def _shape(publication: Publication) -> _Shape:
    return frozenset([(name, is_number(value)) for name, value in publication.items()])


def _class(publication: Publication) -> object:
    """The class of a publication; None without one, or for NaN."""
    value = publication.get(_CLASS)
    return value if value == value else None
