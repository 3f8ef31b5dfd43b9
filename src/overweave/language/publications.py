"""Publications: the content that travels, a set of attributes with their values (THESIS 3.2)."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from overweave.errors import LanguageError
from overweave.language.values import Value, check_name, format_value, plain_value


class Publication(Mapping[str, Value]):
    """An immutable mapping from attribute names to values, in the order they were given.

    >>> quote = Publication({"class": "STOCK", "symbol": "YHOO", "closeEqualsLow": False})
    >>> quote["symbol"], str(quote)
    ('YHOO', "[class,'STOCK'],[symbol,'YHOO'],[closeEqualsLow,'false']")
    """

    __slots__ = ("_address", "_attributes", "_encoded")

    def __init__(self, attributes: Mapping[str, object]) -> None:
        if not isinstance(attributes, Mapping):
            raise LanguageError(f"a publication: expected a mapping of attributes to values, got {type(attributes).__name__}")
        if not attributes:
            raise LanguageError("a publication: expected at least one attribute")
        self._attributes: Mapping[str, Value] = MappingProxyType(
            {check_name(name): plain_value(value, name) for name, value in attributes.items()}
        )
        #: The wire form, kept by `overweave.language.codec` once somebody asked for it: a publication crosses many brokers.
        self._encoded: bytes | None = None
        #: Where that lies in memory, kept likewise: address and length. So the wire form, once there, must stay the same object.
        self._address: tuple[int, int] | None = None

    def __reduce__(self) -> tuple[type["Publication"], tuple[dict[str, Value]]]:
        """By content alone: in another process the wire form has another address."""
        return Publication, (dict(self._attributes),)

    def __getitem__(self, name: str) -> Value:
        return self._attributes[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._attributes)

    def __len__(self) -> int:
        return len(self._attributes)

    def __hash__(self) -> int:
        return hash(frozenset(self._attributes.items()))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Publication) and self._attributes == other._attributes

    def __str__(self) -> str:
        return ",".join(f"[{name},{format_value(value)}]" for name, value in self._attributes.items())

    def __repr__(self) -> str:
        return f"Publication({dict(self._attributes)!r})"
