"""The grid: a document in which a list stands for each of its values becomes all documents without lists.

Tables may be listed too: ``[[overlay]]`` twice gives two overlays, each with options, and lists, of its own. The tables of some
arrays, as ``[[broker]]``, are in every document together; lists within them stand for each of their values.
"""

import hashlib
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from overweave.errors import InvalidInput
from overweave.language.values import excerpt
from overweave.pipeline.sweeps.base import ARROW_TYPES, Document, flattened

#: A grid is a list in the driver's memory.
SCENARIOS_MAX = 1_000_000


class Task(msgspec.Struct, frozen=True):
    """One scenario of a grid: its document, its key, and its values by column."""

    key: str
    document: Document
    parameters: Mapping[str, Any]


def tasks_of(kind: str, document: Document, arrays: Mapping[str, tuple[str, ...]] | None = None) -> list[Task]:
    """All scenarios of a grid, in the order of the file: what stands last changes first; see `Evaluator.arrays`.

    >>> [task.parameters for task in tasks_of("simulation", {"seed": 1, "overlay": {"brokers": [3, 7]}})]
    [{'seed': 1, 'overlay_brokers': 3}, {'seed': 1, 'overlay_brokers': 7}]
    >>> links = {"link": [{"between": ["B1", "B2"], "delay_s": [0.01, 0.02]}]}
    >>> [task.document for task in tasks_of("simulation", links, {"link": ("between",)})]  # doctest: +NORMALIZE_WHITESPACE
    [{'link': [{'between': ['B1', 'B2'], 'delay_s': 0.01}]},
     {'link': [{'between': ['B1', 'B2'], 'delay_s': 0.02}]}]
    """
    document = {name: _joined(value, (arrays or {}).get(name)) for name, value in document.items()}
    count = _counted("", document)
    if count > SCENARIOS_MAX:
        raise InvalidInput(f"expected a grid of at most {SCENARIOS_MAX:,} scenarios, found {count:,}")
    tasks: dict[str, Task] = {}
    for each in _expanded(document):
        each = _plain(each)
        task = Task(key_of(kind, each), each, flattened(each))
        if task.key in tasks:
            values = ", ".join(f"{name} = {value}" for name, value in task.parameters.items())
            raise InvalidInput(f"expected every scenario once, found one twice: {values}")
        tasks[task.key] = task
    return list(tasks.values())


def key_of(kind: str, document: Document) -> str:
    """The key of a document: equal for equal documents in every run, regardless of the order of keys.

    >>> key_of("replay", {"a": 1, "b": 2}) == key_of("replay", {"b": 2, "a": 1}) != key_of("simulation", {"a": 1, "b": 2})
    True
    """
    try:
        written = msgspec.msgpack.encode([kind, document], order="deterministic")
    except OverflowError:
        raise InvalidInput("expected integers of 64 bits, found one that is larger") from None
    return hashlib.sha256(written).hexdigest()[:20]


def column_types(tasks: list[Task]) -> dict[str, type]:
    """The columns of all parameters and their types; whole numbers may stand where others are not whole."""
    found: dict[str, type] = {}
    for task in tasks:
        for name, value in task.parameters.items():
            kind, before = type(value), found.get(name, type(value))
            if kind not in ARROW_TYPES:
                raise InvalidInput(f"{name}: expected a number, a text, true or false, got {excerpt(str(value))}")
            if kind is not before and {kind, before} != {int, float}:
                raise InvalidInput(f"{name}: expected values of one kind, got {before.__name__} and {kind.__name__}")
            found[name] = kind if kind is before else float
    return found


class _Tables(dict[str, Any]):
    """The tables of an array by number: they are expanded like those of a table."""


class _Whole(tuple[Any, ...]):
    """A list that is one value."""


def _joined(value: Any, lists: tuple[str, ...] | None) -> Any:
    """An array of tables that stay together, with its lists that are one value; anything else is unchanged."""
    if lists is None or not isinstance(value, list):
        return value
    tables = (
        {name: _Whole(each) if name in lists and isinstance(each, list) else each for name, each in one.items()}
        if isinstance(one, Mapping)
        else one
        for one in value
    )
    return _Tables({f"[{number}]": each for number, each in enumerate(tables)})


def _plain(value: Any) -> Any:
    """An expanded document with arrays and lists as they were."""
    if isinstance(value, _Tables):
        return [_plain(each) for each in value.values()]
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return list(value) if isinstance(value, _Whole) else value


def _counted(path: str, value: Any) -> int:
    if isinstance(value, Mapping):
        return math.prod(_counted(_path(path, name), each) for name, each in value.items())
    if isinstance(value, list):
        if not value:
            raise InvalidInput(f"{path}: expected at least one value, got []")
        return sum(_counted(path, each) for each in value)
    return 1


def _path(path: str, name: str) -> str:
    return f"{path}{name}" if name.startswith("[") else f"{path}.{name}" if path else name


def _expanded(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        choices = [list(_expanded(each)) for each in value.values()]
        for chosen in itertools.product(*choices):
            yield type(value)(zip(value, chosen, strict=True))
    elif isinstance(value, list):
        for each in value:
            yield from _expanded(each)
    else:
        yield value
