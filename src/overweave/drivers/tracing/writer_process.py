"""The broker's end of the process that writes its trace: it is started, asked, and started again when it has died."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from overweave.drivers.tracing.writer_wire import Answer, Buffers, Order, Start, receive, send, shared_memory

#: How often an order is given, if the process dies of it.
_ATTEMPTS = 2
_DIED = "the process that writes the trace has died"


class WriterProcess:
    """Takes orders, one at a time; for one thread, which may have to wait."""

    def __init__(self, path: Path, broker: str, rows_per_file: int, buffers: int, rows_per_buffer: int) -> None:
        memory = shared_memory(buffers, rows_per_buffer)
        self.buffers = Buffers(memory, buffers, rows_per_buffer)
        self._start = Start(str(path), broker, rows_per_file, memory, buffers, rows_per_buffer)
        self._process: subprocess.Popen[bytes] | None = None
        #: How many rows are lost when it dies: those in the file that is not finished.
        self._rows_open = 0

    @property
    def pid(self) -> int | None:
        """Which process it is now, if there is one."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process, so that it is ready when it is needed; where that fails it is tried again with the next order."""
        with contextlib.suppress(OSError):
            self._running()

    def ask(self, order: Order) -> Answer:
        """Have an order carried out. If the process dies meanwhile, another one does it."""
        lost = _Lost(0, "")
        for _ in range(_ATTEMPTS):
            try:
                process = self._running()
                send(process.stdin, order)  # type: ignore[arg-type]
                answer = receive(process.stdout, Answer)  # type: ignore[arg-type]
            except OSError as error:
                lost = self._died(lost, str(error))
                continue
            if answer is None:
                lost = self._died(lost, _DIED)
                continue
            self._rows_open = answer.rows_open
            return Answer(answer.rows_lost + lost.rows, answer.rows_open, answer.full, answer.failure or lost.why or None)
        return Answer(lost.rows + order.rows + len(order.statements), 0, False, lost.why)

    def end(self) -> Answer:
        """Have all finished, and the process end."""
        answer, why = None, _DIED
        try:
            process = self._running()
            process.stdin.close()  # type: ignore[union-attr]
            answer = receive(process.stdout, Answer)  # type: ignore[arg-type]
        except OSError as error:
            why = str(error)
        if answer is None:
            lost = self._died(_Lost(0, ""), why)
            answer = Answer(lost.rows, 0, False, lost.why)
        self._collect()
        os.close(self._start.memory)
        return answer

    def _running(self) -> "subprocess.Popen[bytes]":
        """The process. Ctrl-C in a terminal goes to the group that the broker is in: this one is not."""
        if self._process is None:
            # -P, or a file in this directory could stand in for ours.
            command = [sys.executable, "-P", "-m", "overweave.drivers.tracing.writer_main"]
            pipe, memory = subprocess.PIPE, self._start.memory
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, pass_fds=[memory], process_group=0)
            send(self._process.stdin, self._start)  # type: ignore[arg-type]
        return self._process

    def _died(self, before: "_Lost", why: str) -> "_Lost":
        if self._process is not None:
            self._process.kill()
        self._collect()
        rows, self._rows_open = self._rows_open, 0
        return _Lost(before.rows + rows, why)

    def _collect(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.wait()
            for pipe in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):
                    pipe.close()  # type: ignore[union-attr]


class _Lost(NamedTuple):
    rows: int
    why: str
