"""The writer process as its broker sees it: started, given requests, and restarted after a crash."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from overweave.drivers.tracing.writer_wire import Buffers, WriterConfig, WriteReply, WriteRequest, receive, send, shared_memory

#: The number of attempts for a request that crashes the process.
_ATTEMPTS = 2
_DIED = "the process that writes the trace has died"


class WriterProcess:
    """The writer process; one thread uses it, and blocks for each reply."""

    def __init__(self, path: Path, broker: str, rows_per_file: int, buffers: int, rows_per_buffer: int, run: str = "") -> None:
        memory = shared_memory(buffers, rows_per_buffer)
        self.buffers = Buffers(memory, buffers, rows_per_buffer)
        self._config = WriterConfig(str(path), broker, rows_per_file, memory, buffers, rows_per_buffer, run)
        self._process: subprocess.Popen[bytes] | None = None
        #: Rows in the unfinished file, which a crash loses.
        self._rows_open = 0

    @property
    def pid(self) -> int | None:
        """The id of the running process; None if there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process ahead of the first request; a failure is tried again with that request."""
        with contextlib.suppress(OSError):
            self._running()

    def request(self, request: WriteRequest) -> WriteReply:
        """Have a request carried out, by a new process if the first one crashes."""
        lost = _Lost(0, "")
        for _ in range(_ATTEMPTS):
            try:
                process = self._running()
                send(process.stdin, request)  # type: ignore[arg-type]
                reply = receive(process.stdout, WriteReply)  # type: ignore[arg-type]
            except OSError as error:
                lost = self._died(lost, str(error))
                continue
            if reply is None:
                lost = self._died(lost, _DIED)
                continue
            self._rows_open = reply.rows_open
            return WriteReply(reply.rows_lost + lost.rows, reply.rows_open, reply.full, reply.failure or lost.why or None)
        rows = request.rows + len(request.statements) + len(request.decisions)
        return WriteReply(lost.rows + rows, 0, False, lost.why)

    def end(self) -> WriteReply:
        """Finish all files, and wait for the process to exit."""
        reply, why = None, _DIED
        try:
            process = self._running()
            process.stdin.close()  # type: ignore[union-attr]
            reply = receive(process.stdout, WriteReply)  # type: ignore[arg-type]
        except OSError as error:
            why = str(error)
        if reply is None:
            lost = self._died(_Lost(0, ""), why)
            reply = WriteReply(lost.rows, 0, False, lost.why)
        self._collect()
        os.close(self._config.memory)
        return reply

    def _running(self) -> "subprocess.Popen[bytes]":
        """The running process. Its process group is its own, so Ctrl-C in the broker's terminal does not reach it."""
        if self._process is None:
            # -P, or a file in the current directory could shadow a module.
            command = [sys.executable, "-P", "-m", "overweave.drivers.tracing.writer_main"]
            pipe, memory = subprocess.PIPE, self._config.memory
            self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, pass_fds=[memory], process_group=0)
            send(self._process.stdin, self._config)  # type: ignore[arg-type]
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
