"""Overweave: content-based publish/subscribe that plans, measures and re-weaves its own broker overlay.

>>> import overweave as ow
>>> wanted = ow.parse_filter("[class,eq,'STOCK'],[volume,>,300000]")
>>> quote = ow.parse_publication("[class,'STOCK'],[volume,400000]")
>>> ow.matches(wanted, quote), ow.covers(ow.parse_filter("[volume,>,0]"), wanted)
(True, True)

Everything but the errors is imported when it is first used, so that ``import overweave`` is quick, and the command line answers
Ctrl-C from the start.
"""

import importlib

from overweave.errors import (
    DuplicateId,
    InvalidInput,
    LanguageError,
    NotAdvertised,
    OverlayError,
    OverweaveError,
    ParseError,
    Refused,
    SessionLost,
    UnknownId,
    WireError,
)

#: Type checkers take it for true; importing `typing` for it would take longer than all the rest here.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from overweave.drivers.tcp.blocking import connect_blocking
    from overweave.drivers.tcp.client import Receipt, connect
    from overweave.language.predicates import Filter, Operator, Predicate
    from overweave.language.publications import Publication
    from overweave.language.relations import covers, intersects, matches
    from overweave.language.syntax import parse_filter, parse_publication
    from overweave.matching.index import Index

    __version__: str

__all__ = [
    "DuplicateId",
    "Filter",
    "Index",
    "InvalidInput",
    "LanguageError",
    "NotAdvertised",
    "Operator",
    "OverlayError",
    "OverweaveError",
    "ParseError",
    "Predicate",
    "Publication",
    "Receipt",
    "Refused",
    "SessionLost",
    "UnknownId",
    "WireError",
    "connect",
    "connect_blocking",
    "covers",
    "intersects",
    "matches",
    "parse_filter",
    "parse_publication",
]

#: Public names that are imported on first use, and the modules that define them.
_LAZY = {
    "Filter": "overweave.language.predicates",
    "Index": "overweave.matching.index",
    "Operator": "overweave.language.predicates",
    "Predicate": "overweave.language.predicates",
    "Receipt": "overweave.drivers.tcp.client",
    "Publication": "overweave.language.publications",
    "connect": "overweave.drivers.tcp.client",
    "connect_blocking": "overweave.drivers.tcp.blocking",
    "covers": "overweave.language.relations",
    "intersects": "overweave.language.relations",
    "matches": "overweave.language.relations",
    "parse_filter": "overweave.language.syntax",
    "parse_publication": "overweave.language.syntax",
}


def __getattr__(name: str) -> object:
    if name in _LAZY:
        value: object = getattr(importlib.import_module(_LAZY[name]), name)
    elif name == "__version__":
        value = importlib.import_module("importlib.metadata").version("overweave")
    else:
        raise AttributeError(f"module 'overweave' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
