"""The writer process of one broker's trace: requests arrive on standard input, replies leave on standard output.

It is a process because a thread would compete with the broker for the interpreter's lock. It has a lower priority than the
broker, ignores termination signals, and exits at the end of its standard input: then the broker has stopped or crashed, and
all requests so far are carried out.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

from overweave.drivers.tracing.live_files import DecisionFiles, Files, StatementFiles, table_of, warm_up
from overweave.drivers.tracing.writer_wire import Buffers, WriterConfig, WriteReply, WriteRequest, receive, send

#: A lower priority than the broker's, which still leaves a quarter of a contended processor: ten times its need.
NICENESS = 5


class Writer:
    """Carries out requests."""

    def __init__(self, config: WriterConfig, buffers: Buffers) -> None:
        self._broker = config.broker
        self._rows_per_file = config.rows_per_file
        self._buffers = buffers
        self._files = Files(Path(config.path), config.broker)
        self._statements = StatementFiles(Path(config.path), config.broker)
        self._decisions = DecisionFiles(Path(config.path), config.broker, config.run)

    def handle(self, request: WriteRequest) -> WriteReply:
        """Write rows; an error, such as a full disk, loses these rows and the open file, but not the trace."""
        written, full = 0, False
        try:
            if request.statements:
                self._statements.add(request.statements)
            if request.decisions:
                self._decisions.add(request.decisions)
        except Exception as error:
            return WriteReply(len(request.statements) + len(request.decisions), self._files.rows, False, str(error))
        try:
            table = table_of(self._buffers[request.buffer], request, self._broker)
            while written < request.rows:
                some = table.slice(written, self._rows_per_file - self._files.rows)
                self._files.write(some)
                written += some.num_rows
                if self._files.rows >= self._rows_per_file:
                    self._files.finish()
                    full = True
            if request.finish:
                self._files.finish()
        except Exception as error:
            return WriteReply(request.rows - written + self._files.abandon(), 0, full, str(error))
        return WriteReply(0, self._files.rows, full)

    def end(self) -> WriteReply:
        """Finish all files."""
        try:
            self._files.end()
        except Exception as error:
            return WriteReply(self._files.abandon(), 0, False, str(error))
        return WriteReply(0, 0, False)


def main() -> None:
    """Run the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Without a buffer: unread replies to a dead broker must not block the interpreter's shutdown.
    requests, replies = sys.stdin.buffer, open(sys.stdout.fileno(), "wb", buffering=0, closefd=False)  # noqa: SIM115
    config = receive(requests, WriterConfig)
    if config is None:
        return
    writer = Writer(config, Buffers(config.memory, config.buffers, config.rows_per_buffer))
    warm_up()
    os.nice(NICENESS)
    with contextlib.suppress(BrokenPipeError):
        while (request := receive(requests, WriteRequest)) is not None:
            send(replies, writer.handle(request))
    with contextlib.suppress(BrokenPipeError):
        send(replies, writer.end())


if __name__ == "__main__":
    main()
