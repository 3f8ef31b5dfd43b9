"""Automatic advertisements: what a client has to advertise before it publishes something that is not advertised yet."""

from overweave.language.codec import PREDICATES_MAX
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.relations import admits
from overweave.language.values import is_number

_CLASS = "class"
#: The attributes of a publication, and whether each is a number.
_Shape = frozenset[tuple[str, bool]]


class Advertiser:
    """Knows what one client has advertised, in its own words or automatically.

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
        #: The client's own words, by id.
        self._own: dict[str, Filter] = {}
        #: Of each class the shapes that were advertised automatically, and all that were seen to be within one of them.
        self._shapes: dict[object, list[_Shape]] = {}
        self._known: set[tuple[object, _Shape]] = set()
        #: Those that are within the client's own words whatever the values are, but for the class.
        self._within_own: set[tuple[object, _Shape]] = set()

    def add(self, id: str, filter: Filter) -> None:
        """The client advertises something itself."""
        self._own[id] = filter
        self._within_own.clear()

    def remove(self, id: str) -> None:
        """The client withdraws what it advertised itself."""
        self._own.pop(id, None)
        self._within_own.clear()

    def missing(self, publication: Publication) -> Filter | None:
        """What to advertise before this is published; None when that is done already, or there can be no such filter."""
        kind, shape = _class(publication), _shape(publication)
        this = kind, shape
        if this in self._known or this in self._within_own or len(shape) > PREDICATES_MAX:
            return None
        if any(shape <= other for other in self._shapes.get(kind, ())):
            self._known.add(this)
            return None
        for filter in self._own.values():
            if admits(filter, publication):
                if all(each.operator is Operator.PRESENT or each.attribute == _CLASS for each in filter.predicates):
                    self._within_own.add(this)
                return None
        return advertisement(publication)

    def advertised(self, publication: Publication) -> None:
        """What was missing for a publication is advertised."""
        kind, shape = _class(publication), _shape(publication)
        self._shapes.setdefault(kind, []).append(shape)
        self._known.add((kind, shape))


def advertisement(publication: Publication) -> Filter:
    """All publications of the same class that have no other attributes.

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
    """None for one that has none, or the number that is not equal to itself."""
    value = publication.get(_CLASS)
    return value if value == value else None
