"""``sweep.toml``: a scenario whose values may be lists, and a table ``[sweep]`` with repetitions, kind and figures.

The whole grid is read before anything runs: every scenario by the reader of its kind, and figures against the columns that
there will be. Whatever is wrong is an `InvalidInput` with the file, the field and what was expected.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from overweave.drivers.toml_config import check_keys, read_toml, rows, table, unknown, values
from overweave.errors import InvalidInput
from overweave.pipeline.sweeps import EVALUATORS
from overweave.pipeline.sweeps.base import Document, Evaluator, columns_of
from overweave.pipeline.sweeps.grid import Task, column_types, tasks_of

SCALES = ("linear", "log")
SEED = "seed"


class FigureSpec(msgspec.Struct, frozen=True, kw_only=True):
    """One figure: a measure over a parameter, with a line for each combination of other parameters."""

    x: str
    y: str
    series: tuple[str, ...] = ()
    x_scale: str = "linear"
    y_scale: str = "linear"


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """A grid that can be run."""

    kind: str
    tasks: tuple[Task, ...]
    #: Columns and their types: parameters and measures.
    parameters: Mapping[str, type]
    measures: Mapping[str, type]
    figures: tuple[FigureSpec, ...]

    @property
    def evaluator(self) -> Evaluator:
        """How its scenarios are evaluated."""
        return EVALUATORS[self.kind]


def read_sweep(path: Path) -> Sweep:
    """The sweep of a TOML file."""
    return read_toml(path, sweep_of)


def sweep_of(document: Document) -> Sweep:
    """The sweep of a document that was read.

    >>> sweep_of({"sweep": {"kind": "simulatoin"}})
    Traceback (most recent call last):
    overweave.errors.InvalidInput: sweep.kind: unknown 'simulatoin', the nearest known one is 'simulation'
    """
    wanted = dict(table("sweep", document.get("sweep", {})))
    drawn = rows(_FigureTable, "sweep.figures", wanted.pop("figures", []))
    options = values(_SweepTable, "sweep", wanted)
    evaluator = EVALUATORS[options.kind]
    grid = {name: value for name, value in document.items() if name != "sweep"}
    _check_keys(grid, options.kind)
    tasks = tasks_of(options.kind, _with_seeds(grid, options.repetitions), evaluator.arrays)
    for task in tasks:
        evaluator.read(task.document)
    parameters = column_types(tasks)
    measures = {name: kind for name, kind in columns_of(evaluator.measures).items() if name not in parameters}
    figures = [figure for number, each in enumerate(drawn) for figure in each.figures(f"sweep.figures[{number}]")]
    for path, figure in figures:
        _check(path, figure, tasks, parameters, measures)
    found = tuple(figure for _, figure in figures) if drawn else _usual(tasks, parameters, evaluator)
    return Sweep(kind=options.kind, tasks=tuple(tasks), parameters=parameters, measures=measures, figures=found)


class _FigureTable(msgspec.Struct, frozen=True):
    """``[[sweep.figures]]``; several measures give a figure each."""

    x: str
    y: str | list[str]
    series: str | list[str] = []
    x_scale: str = "linear"
    y_scale: str = "linear"

    def figures(self, path: str) -> list[tuple[str, FigureSpec]]:
        series = tuple(_listed(self.series))
        for name in ("x_scale", "y_scale"):
            if getattr(self, name) not in SCALES:
                raise InvalidInput(unknown(f"{path}.{name}", getattr(self, name), SCALES))
        return [
            (path, FigureSpec(x=self.x, y=y, series=series, x_scale=self.x_scale, y_scale=self.y_scale)) for y in _listed(self.y)
        ]


class _SweepTable(msgspec.Struct, frozen=True):
    """``[sweep]`` without its figures."""

    kind: str = "simulation"
    repetitions: int = 1

    def __post_init__(self) -> None:
        if self.kind not in EVALUATORS:
            raise InvalidInput(unknown("sweep.kind", self.kind, EVALUATORS))
        if self.repetitions < 1:
            raise InvalidInput(f"sweep.repetitions: expected an integer of at least 1, got {self.repetitions}")


def _listed(value: str | Iterable[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _check_keys(grid: Document, kind: str) -> None:
    """A key that another kind knows is not misspelt, but has no meaning here."""
    check_keys("", grid, [name for each in EVALUATORS.values() for name in each.keys] + ["sweep"])
    for name in grid:
        if name not in EVALUATORS[kind].keys:
            raise InvalidInput(f"{name}: expected none, as this kind, {kind}, knows {', '.join(EVALUATORS[kind].keys)} only")


def _with_seeds(grid: Document, repetitions: int) -> Document:
    """A repetition is the same scenario with the next seed."""
    seed = grid.get(SEED, 1)
    if repetitions == 1:
        return {SEED: seed} | grid
    if isinstance(seed, list):
        raise InvalidInput(f"{SEED}: expected one seed with sweep.repetitions, or a list of them without, got both")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise InvalidInput(f"{SEED}: expected an integer, got {seed!r}")
    rest = {name: value for name, value in grid.items() if name != SEED}
    return rest | {SEED: list(range(seed, seed + repetitions))}


def _check(
    path: str, figure: FigureSpec, tasks: list[Task], parameters: Mapping[str, type], measures: Mapping[str, type]
) -> None:
    """Refuse a figure with columns that are not there, or one that would mix scenarios which differ by more than the seed."""
    numbers = [name for name, kind in measures.items() if kind is not str]
    if figure.y not in numbers:
        raise InvalidInput(unknown(f"{path}.y", figure.y, numbers))
    for field, names in (("x", [figure.x]), ("series", figure.series)):
        for name in names:
            if name not in parameters:
                raise InvalidInput(unknown(f"{path}.{field}", name, parameters))
    groups: dict[tuple[Any, ...], dict[str, Any]] = {}
    for task in tasks:
        alike = {name: task.parameters.get(name) for name in parameters if name != SEED}
        place = tuple(task.parameters.get(name) for name in (figure.x, *figure.series))
        other = groups.setdefault(place, alike)
        for name, value in alike.items():
            if value != other[name]:
                raise InvalidInput(f"{path}.series: expected {name!r} too, as one point would mix {other[name]} and {value}")
    if figure.x_scale == "log":
        _check_log(path, figure, tasks)


def _check_log(path: str, figure: FigureSpec, tasks: list[Task]) -> None:
    for task in tasks:
        value = task.parameters.get(figure.x)
        if isinstance(value, str | bool) or not (value or 0) > 0:
            raise InvalidInput(f"{path}.x_scale: expected 'linear', as {figure.x} is {value!r}")


def _usual(tasks: list[Task], parameters: Mapping[str, type], evaluator: Evaluator) -> tuple[FigureSpec, ...]:
    """Without any wish: over the number with the most values, a line for each combination of what else differs."""
    found = {name: {task.parameters.get(name) for task in tasks} for name in parameters if name != SEED}
    axes = {name: len(values) for name, values in found.items() if len(values) > 1}
    if not axes:
        return ()
    x = max(axes, key=lambda name: (parameters[name] in (int, float) and None not in found[name], axes[name]))
    series = tuple(name for name in axes if name != x)
    return tuple(FigureSpec(x=x, y=y, series=series) for y in evaluator.drawn)
