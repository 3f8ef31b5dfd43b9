"""The process that writes the trace of one broker: orders come in on standard input, answers go out on standard output.

It is a process and no thread, because a thread would hold the interpreter's lock while the broker wants it. It is nice to
the broker, heeds no signal that asks to stop, and ends when its standard input does: then the broker is done or dead, and
what was ordered until then is finished.
"""

import contextlib
import os
import signal
import sys
from pathlib import Path

from overweave.drivers.tracing.live_files import Files, StatementFiles, table_of, warm_up
from overweave.drivers.tracing.writer_wire import Answer, Buffers, Order, Start, receive, send

#: Behind a busy broker, and still with a quarter of a processor that is fought for: ten times what it needs.
NICENESS = 5


class Writer:
    """Carries orders out."""

    def __init__(self, start: Start, buffers: Buffers) -> None:
        self._broker = start.broker
        self._rows_per_file = start.rows_per_file
        self._buffers = buffers
        self._files = Files(Path(start.path), start.broker)
        self._statements = StatementFiles(Path(start.path), start.broker)

    def take(self, order: Order) -> Answer:
        """Write; a disk that is full, or rows that make no sense, cost the rows in hand and the open file, but not the trace."""
        written, full = 0, False
        if order.statements:
            try:
                self._statements.add(order.statements)
            except Exception as error:
                return Answer(len(order.statements), self._files.rows, False, str(error))
        try:
            table = table_of(self._buffers[order.buffer], order, self._broker)
            while written < order.rows:
                some = table.slice(written, self._rows_per_file - self._files.rows)
                self._files.write(some)
                written += some.num_rows
                if self._files.rows >= self._rows_per_file:
                    self._files.finish()
                    full = True
            if order.finish:
                self._files.finish()
        except Exception as error:
            return Answer(order.rows - written + self._files.abandon(), 0, full, str(error))
        return Answer(0, self._files.rows, full)

    def end(self) -> Answer:
        """Finish all."""
        try:
            self._files.end()
        except Exception as error:
            return Answer(self._files.abandon(), 0, False, str(error))
        return Answer(0, 0, False)


def main() -> None:
    """Be the process."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # Without a buffer: what a dead broker does not take must not be in the way when the interpreter shuts down.
    orders, answers = sys.stdin.buffer, open(sys.stdout.fileno(), "wb", buffering=0, closefd=False)  # noqa: SIM115
    start = receive(orders, Start)
    if start is None:
        return
    writer = Writer(start, Buffers(start.memory, start.buffers, start.rows_per_buffer))
    warm_up()
    os.nice(NICENESS)
    with contextlib.suppress(BrokenPipeError):
        while (order := receive(orders, Order)) is not None:
            send(answers, writer.take(order))
    with contextlib.suppress(BrokenPipeError):
        send(answers, writer.end())


if __name__ == "__main__":
    main()
