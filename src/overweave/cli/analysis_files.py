"""The input files of ``overweave analyze``: trees, rates and inclusions of classes. Errors name file, row and field."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet

from overweave.analysis.classes import Inclusion
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload
from overweave.errors import InvalidInput
from overweave.language.values import excerpt
from overweave.overlay.checks import nearest
from overweave.overlay.files import FORMATS
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay

#: The wildcard for brokers and classes in a table of rates.
ALL = "*"
RATES = ("arrival_hz", "lifetime_s", "publication_hz", "advertising_hz", "advertisement_lifetime_s")


def read_topology(text: str) -> tuple[Tree, Overlay | None]:
    """T1, T2, … of STOCH 3.2, an overlay in JSON or GraphML, or a table of brokers and parents."""
    if text[:1] == "T" and text[1:].isdecimal() and int(text[1:]) > 0:
        overlay = make_overlay("level-limited", width=int(text[1:]))
        return Tree.of_overlay(overlay), overlay
    path = Path(text)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in (*FORMATS, *_READERS):
        known = ", ".join(f".{each}" for each in (*FORMATS, *_READERS))
        raise InvalidInput(f"topology: expected T1, T2, … or a file ({known}), found {excerpt(text)}")
    with _named(path):
        if kind in FORMATS:
            overlay = FORMATS[kind].read(path.read_text(encoding="utf-8"))
            return Tree.of_overlay(overlay), overlay
        parents: dict[str, str | None] = {}
        for number, (broker, parent) in enumerate(_texts(_read(path), "broker", "parent"), 1):
            if not broker:
                raise InvalidInput(f"row {number}: broker: expected an id, found nothing")
            if broker in parents:
                raise InvalidInput(f"row {number}: broker: expected every broker once, found {broker!r} again")
            parents[broker] = parent or None
        return Tree.of_parents(parents), None


def read_rates(path: Path, tree: Tree, classes: list[str], lifetime_s: float) -> Workload:
    """Rates by broker and class; later rows override earlier ones, and missing rates are 0."""
    with _named(path):
        table = _read(path)
        for name in table.column_names:
            if name not in ("broker", "class", *RATES):
                raise InvalidInput(f"column {name!r}: unknown, {nearest(name, ('broker', 'class', *RATES))}")
        shape = (len(tree), len(classes))
        rates = {name: np.full(shape, lifetime_s if name == "lifetime_s" else 0.0) for name in RATES[:3]}
        if "advertising_hz" in table.column_names:
            rates |= {"advertising_hz": np.zeros(shape), "advertisement_lifetime_s": np.full(shape, lifetime_s)}
        given = {name: _numbers(table, name) for name in rates if name in table.column_names}
        places = [_places(ids) for ids in (tree.ids, classes)]
        for row, names in enumerate(_texts(table, "broker", "class")):
            cell = tuple(_place(row, *each) for each in zip(("broker", "class"), names, places, strict=True))
            for name, (values, is_given) in given.items():
                if is_given[row]:
                    _check(row, name, values[row])
                    rates[name][cell] = values[row]
        workload = Workload(**rates)
        workload.check(tree)
        return workload


def read_inclusion(path: Path, classes: list[str]) -> Inclusion:
    """The inclusion of classes: pairs of a class and one that contains it."""
    with _named(path):
        places = _places(classes)
        pairs = [
            tuple(_place(row, *each, places) for each in zip(("class", "within"), names, strict=True))
            for row, names in enumerate(_texts(_read(path), "class", "within"))
        ]
        return Inclusion.of(len(classes), pairs, classes)  # type: ignore[arg-type]


_READERS: dict[str, Callable[[Path], Any]] = {
    # Only the empty text is null: "NA" may be the id of a broker.
    "csv": lambda path: pyarrow.csv.read_csv(path, convert_options=pyarrow.csv.ConvertOptions(null_values=[""])),
    "jsonl": lambda path: pyarrow.json.read_json(path),
    "parquet": lambda path: pyarrow.parquet.read_table(path),
}


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Errors with the name of the file."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    except OSError as error:
        raise InvalidInput(f"{path}: expected a readable file, found {(error.strerror or str(error)).lower()}") from None
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path}: expected a table, found one that cannot be read: {error}") from None


def _read(path: Path) -> Any:
    kind = path.suffix.lower().removeprefix(".")
    if kind not in _READERS:
        raise InvalidInput(f"expected a table ({', '.join(f'.{each}' for each in _READERS)}), found {path.suffix!r}")
    if not path.is_file():
        raise InvalidInput("expected a readable file, found no such file")
    return _READERS[kind](path)


def _texts(table: Any, *names: str) -> list[tuple[str, ...]]:
    for name in names:
        if name not in table.column_names:
            raise InvalidInput(f"expected a column {name!r}, found {', '.join(table.column_names) or 'none'}")
    columns = [table.column(name).cast(pa.string()).to_pylist() for name in names]
    return [tuple(value or "" for value in row) for row in zip(*columns, strict=True)]


def _numbers(table: Any, name: str) -> tuple[Any, Any]:
    """The values and their validity."""
    try:
        column = table.column(name).cast(pa.float64())
        return column.to_numpy(zero_copy_only=False), column.is_valid().to_numpy(zero_copy_only=False)
    except pa.ArrowException:
        raise InvalidInput(f"{name}: expected numbers, found {table.column(name).type}") from None


def _places(ids: tuple[str, ...] | list[str]) -> dict[str, int]:
    return {id: place for place, id in enumerate(ids)}


def _place(row: int, field: str, name: str, places: dict[str, int]) -> int | slice:
    if name == ALL and field != "within":
        return slice(None)
    if name not in places:
        raise InvalidInput(f"row {row + 1}: {field}: unknown {name!r}, {nearest(name, places)}")
    return places[name]


def _check(row: int, name: str, value: float) -> None:
    lasting = name.endswith("lifetime_s")
    if not (value > 0 if lasting else value >= 0) or value == np.inf:
        wanted = "above 0" if lasting else "from 0 on"
        raise InvalidInput(f"row {row + 1}: {name}: expected a finite number {wanted}, found {value:g}")
