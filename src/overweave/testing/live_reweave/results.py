"""The result of a run as lines, and the limits that decide whether a line is a failure."""

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec
import numpy as np

#: The limits of a change: publishers pause at most this long, it takes at most this long, and inputs are as predicted.
PAUSE_S_MAX, CHANGE_S_MAX, TOLERANCE = 0.25, 60.0, 0.1
#: The phases in which a broker is killed, as `apply` names them.
PHASES = ("starting", "prepared", "used", "closed", "moving clients", "writing", "trimmed", "stopping")


class Row(msgspec.Struct, frozen=True):
    """A line of the result."""

    step: str
    ok: bool
    text: str


class Report(msgspec.Struct):
    """The result of a run."""

    rows: list[Row] = []
    seconds: float = 0.0

    @property
    def failed(self) -> bool:
        """Whether any line is a failure."""
        return not all(row.ok for row in self.rows)

    def add(self, step: str, ok: bool, text: str) -> None:
        """Add a line, and print it."""
        self.rows.append(Row(step, ok, text))
        print(f"{'ok    ' if ok else 'FAILED'} {step:<28} {text}", flush=True)


def pause_p99_s(pauses_s: Sequence[float]) -> float:
    """The pause that 99 % of publishers do not exceed; of fewer than 100 publishers, the longest one.

    >>> pause_p99_s([0.1] * 99 + [0.5]), pause_p99_s([0.1] * 39 + [0.5])
    (0.1, 0.5)
    """
    return float(np.percentile(pauses_s, 99, method="inverted_cdf"))


def is_brief(pauses_s: Sequence[float]) -> bool:
    """Whether the pauses of publishers are within the limit."""
    return pause_p99_s(pauses_s) <= PAUSE_S_MAX


def phases_left(kills: Iterable[Mapping[str, str]]) -> list[str]:
    """The phases in which no broker was killed, in any of the changes.

    >>> phases_left([{"used": "B1", "closed": "B2"}, dict.fromkeys(PHASES[:5], "B1")])
    ['writing', 'trimmed', 'stopping']
    """
    killed: Collection[str] = {phase for each in kills for phase in each}
    return [phase for phase in PHASES if phase not in killed]
