"""Labels: columns with their units, names of users, and numbers of readable size.

Columns are named with units and qualifiers last (``delay_s_mean``), so a label can be made of any of them.
"""

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

#: Units as columns end in them, the longest first, and as people write them.
_UNITS = {"bytes_per_s": "B/s", "bytes": "B", "hz": "1/s", "s": "s"}
_QUALIFIERS = {"mean": "mean", "max": "maximum", "min": "minimum", "p50": "median", "p99": "99th percentile"}
#: The tables of a scenario, which a parameter's column begins with.
_TABLES = ("overlay", "routing", "workload", "costs", "faults", "checks")
#: What a unit is divided into, and what it is multiplied to.
_SCALES = {
    "s": ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")),
    "B": ((1e9, "GB"), (1e6, "MB"), (1e3, "kB"), (1.0, "B")),
    "B/s": ((1e9, "GB/s"), (1e6, "MB/s"), (1e3, "kB/s"), (1.0, "B/s")),
}
_NAME_LENGTH = 32


class Label(NamedTuple):
    """What a column is called, and in what it is measured (empty: in nothing)."""

    text: str
    unit: str

    def __str__(self) -> str:
        return f"{self.text} ({self.unit})" if self.unit else self.text


def label(column: str) -> Label:
    """What stands on an axis or above a column.

    >>> str(label("delay_s_p99")), str(label("workload_rate_hz")), str(label("overlay_brokers"))
    ('delay, 99th percentile (s)', 'rate (1/s)', 'brokers')
    """
    words = column.removeprefix(next((f"{name}_" for name in _TABLES if column.startswith(f"{name}_")), ""))
    head, _, tail = words.rpartition("_")
    qualifier = _QUALIFIERS.get(tail, "") if head else ""
    words = head if qualifier else words
    ending = next((unit for unit in _UNITS if words.endswith(f"_{unit}")), "")
    text = words.removesuffix(f"_{ending}").replace("_", " ")
    return Label(f"{text}, {qualifier}" if qualifier else text, _UNITS.get(ending, ""))


def scale(unit: str, values: Iterable[float]) -> tuple[float, str]:
    """What to divide values by so that the largest is readable, and the unit that they have then.

    >>> scale("s", [0.0004, 0.02]), scale("1/s", [5.0])
    ((0.001, 'ms'), (1.0, '1/s'))
    """
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    steps = _SCALES.get(unit, ((1.0, unit),))
    return next((step for step in steps if largest >= step[0]), steps[0] if not largest else steps[-1])


def number_text(value: object) -> str:
    """A number with as many digits as one reads, anything else as a name.

    >>> number_text(1234567), number_text(0.00012345), number_text(1234.5), number_text(None), number_text(True)
    ('1,234,567', '0.0001234', '1,234', '–', 'yes')
    """
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:,.0f}" if 1000 <= abs(value) < 1e15 else f"{value:,.4g}"
    return f"{value:,}" if isinstance(value, int) else shown(str(value))


def shown(name: str) -> str:
    r"""A user's name without invisible characters, truncated.

    >>> shown("a\x00b"), shown("x" * 50)[-2:]
    ('a�b', 'x…')
    """
    clean = "".join(each if each.isprintable() else "�" for each in name[: _NAME_LENGTH + 1])
    return clean if len(clean) <= _NAME_LENGTH else f"{clean[: _NAME_LENGTH - 1]}…"


def name_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows of a horizontal chart, the first at the top."""
    axes.set_yticks(range(len(names)), [shown(name) for name in names], fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
