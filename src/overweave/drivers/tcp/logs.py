"""Logs: what happened as a name with fields, one line each, for machines (JSON) or for people.

::

    {"time":"2026-01-31T12:00:00.000Z","level":"warning","broker":"B1","event":"link-down","fields":{"peer":"B2"}}
    2026-01-31T12:00:00.000Z warning B1 link-down peer=B2

Much of the text comes from peers. So unprintable characters are escaped, in names and values alike, and long texts are cut: no
peer can add a line, move a cursor or fill a disk by its choice of name.
"""

import json
import logging
import re
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TextIO

#: Longer texts are cut here; tracebacks, which we wrote, get more.
TEXT_MAX = 200
TRACEBACK_MAX = 4000
_PLAIN = re.compile(r"[\w.:/@+-]+")
_INTEGER_BITS_MAX = 64


class Log:
    """The log of one broker: ``Log("B1").info("link-up", peer="B2")``."""

    def __init__(self, broker: str) -> None:
        self._broker = broker

    def debug(self, event: str, /, **fields: object) -> None:
        """Details for debugging."""
        self._log(logging.DEBUG, event, fields)

    def info(self, event: str, /, **fields: object) -> None:
        """A normal event."""
        self._log(logging.INFO, event, fields)

    def warning(self, event: str, /, **fields: object) -> None:
        """An abnormal event that the broker handles."""
        self._log(logging.WARNING, event, fields)

    def error(self, event: str, /, error: BaseException | None = None, **fields: object) -> None:
        """A loss or defect; ``error`` adds its traceback."""
        self._log(logging.ERROR, event, fields, error)

    def _log(self, level: int, event: str, fields: Mapping[str, object], error: BaseException | None = None) -> None:
        _LOGGER.log(level, "%s", event, exc_info=error, extra={"broker": self._broker, "fields": fields})


def configure(stream: TextIO, as_json: bool, level: int = logging.INFO) -> None:
    """Write to ``stream`` from now on (and no longer to an earlier one): ours from ``level`` on, warnings of everybody else."""
    root = logging.getLogger()
    for handler in [each for each in root.handlers if isinstance(each, _Handler)]:
        root.removeHandler(handler)
    handler = _Handler(stream)
    handler.setFormatter(_JsonLines() if as_json else _Readable())
    root.addHandler(handler)
    _LOGGER.setLevel(level)


def printable(value: object, length_max: int = TEXT_MAX) -> str:
    r"""``value`` as a text of one line, without anything that a terminal obeys, cut at ``length_max`` characters.

    >>> print(printable("B2\nlevel=error \x1b[2J"), printable("x" * 500, 5))
    B2\nlevel=error \x1b[2J xxxxx…
    """
    text = value.decode(errors="backslashreplace") if isinstance(value, bytes) else str(value)
    cut = text[:length_max] + "…" * (len(text) > length_max)
    if cut.isprintable():
        return cut
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in cut)


_LOGGER = logging.getLogger("overweave")


class _Handler(logging.StreamHandler[TextIO]):
    """Ours, so that `configure` finds it again."""


class _JsonLines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        head = {"time": _time(record), "level": record.levelname.lower(), "broker": printable(getattr(record, "broker", ""))}
        return json.dumps({**head, "event": printable(record.getMessage()), "fields": _fields(record)}, separators=(",", ":"))


class _Readable(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        broker = _quoted(printable(getattr(record, "broker", "")) or "-")
        fields = [f"{name}={_quoted(value)}" for name, value in _fields(record).items()]
        return " ".join([_time(record), record.levelname.lower(), broker, printable(record.getMessage()), *fields])


def _time(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _fields(record: logging.LogRecord) -> dict[str, object]:
    fields = {printable(name): _value(value) for name, value in getattr(record, "fields", {}).items()}
    if record.exc_info and record.exc_info[1] is not None:
        error = record.exc_info[1]
        text = "".join(traceback.format_exception(error))
        fields["error"] = printable(f"{type(error).__name__}: {error}")
        fields["traceback"] = printable(text[-TRACEBACK_MAX:], TRACEBACK_MAX)
    return fields


def _value(value: object) -> object:
    """Numbers stay numbers, as far as every reader of JSON takes them."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value) if value.bit_length() < _INTEGER_BITS_MAX else printable(hex(value))
    if isinstance(value, float):
        return float(value) if abs(value) < float("inf") else str(value)
    return printable(value)


def _quoted(value: object) -> str:
    text = json.dumps(value) if not isinstance(value, str) else value
    return text if _PLAIN.fullmatch(text) else json.dumps(text, ensure_ascii=False)
