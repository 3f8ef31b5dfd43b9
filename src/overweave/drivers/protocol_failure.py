"""Failures of routing protocols: an exception from a protocol's own code, as one line that names protocol and method."""

import itertools
from pathlib import Path
from types import TracebackType

#: Code that calls protocols, by module; any other code of ours between it and a protocol is the protocol's.
_CALLERS = ("overweave.broker.", "overweave.routing.registry")
_ROUTING = "overweave.routing."


def failure_text(protocol: str, error: BaseException) -> str | None:
    """The text for an exception that a protocol raised; None if another part raised it.

    >>> failure_text("filter", ValueError("no traceback")) is None
    True
    """
    frames = _frames(error.__traceback__)
    for (caller, _, _), (module, method, _) in itertools.pairwise(frames):
        if caller.startswith(_CALLERS) and (module.startswith(_ROUTING) or not module.startswith("overweave.")):
            place = "its factory" if method == "<lambda>" else method
            return f"protocol {protocol!r} failed in {place}: {_reason(error)} ({frames[-1][2]})"
    return None


def failure_text_of_broker(protocol: str, error: BaseException) -> str:
    """The text for any exception of a broker core."""
    return failure_text(protocol, error) or f"failed under protocol {protocol!r}: {_reason(error)}"


def _reason(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split())


def _frames(trace: TracebackType | None) -> list[tuple[str, str, str]]:
    """Module, function and line of each frame, the outermost first."""
    found = []
    while trace is not None:
        code = trace.tb_frame.f_code
        place = f"{Path(code.co_filename).name}:{trace.tb_lineno}"
        found.append((trace.tb_frame.f_globals.get("__name__", ""), code.co_name, place))
        trace = trace.tb_next
    return found
