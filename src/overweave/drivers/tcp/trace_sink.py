"""The trace sink of a live broker: the effects that record traces; without a trace directory it discards them."""

import asyncio

from overweave.contract.effects import Trace, TraceColumns, TraceDecision, TraceStatement
from overweave.contract.records import Decision
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.drivers.tracing.live import LiveTrace
from overweave.drivers.tracing.names import check_directory


class TraceSink:
    """The trace of one broker process."""

    def __init__(self, settings: BrokerSettings, log: Log) -> None:
        self._log = log
        self._trace = _open_trace(settings)
        self._failure = ""

    @property
    def is_open(self) -> bool:
        """Whether traces are written."""
        return self._trace is not None

    @property
    def dropped(self) -> int:
        """The number of rows that were lost because they could not be written."""
        return 0 if self._trace is None else self._trace.dropped

    def record(self, effect: Trace | TraceColumns | TraceStatement | TraceDecision) -> None:
        """Record one effect; decisions are also logged."""
        if isinstance(effect, TraceDecision):
            self._log_decision(effect.decision)
        if self._trace is None:
            return
        if isinstance(effect, TraceColumns):
            self._trace.add_columns(effect.columns)
        elif isinstance(effect, Trace):
            self._trace.add(effect.record)
        elif isinstance(effect, TraceDecision):
            self._trace.add_decision(effect.decision)
        else:
            self._trace.add_statement(effect.statement)

    def log_failure(self) -> None:
        """Log a write error, once."""
        if self._trace is not None and str(self._trace.failure or "") != self._failure:
            self._failure = str(self._trace.failure)
            self._log.warning("trace-failed", rows=self._trace.dropped, text=self._failure)

    def _log_decision(self, decision: Decision) -> None:
        figures = {name: float(figure) for name, figure in decision.figures.items()}
        self._log.info(
            "decision", module=decision.module, what=decision.what, about=decision.about, text=decision.reason, figures=figures
        )

    async def close(self) -> None:
        """Write pending rows, and close the files."""
        if self._trace is not None:
            await asyncio.to_thread(self._trace.close)


def _open_trace(settings: BrokerSettings) -> LiveTrace | None:
    if settings.trace is None:
        return None
    check_directory(settings.trace)
    settings.trace.mkdir(parents=True, exist_ok=True)  # an unusable directory is an error at the start
    return LiveTrace(settings.trace, settings.run, settings.id, seconds_per_file=settings.trace_every_s)
