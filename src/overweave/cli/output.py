"""Output to stdout: plain text unbuffered, a JSON document completely or not at all."""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator

#: A document is buffered in memory up to this size, then in an unnamed temporary file.
MEMORY_BYTES = 1 << 23
_COPY_BYTES = 1 << 20


def put(data: bytes) -> None:
    """Write to stdout and flush: the reader may be waiting for this line."""
    with _explained("cannot write the output"):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def whole_document() -> Iterator[Callable[[bytes], None]]:
    """A writer of a document in pieces; stdout gets the document only if the body succeeds."""
    trouble = f"cannot buffer the output in {tempfile.gettempdir()} (TMPDIR selects another directory)"
    with tempfile.SpooledTemporaryFile(MEMORY_BYTES) as spool:

        def write(data: bytes) -> None:
            with _explained(trouble):
                spool.write(data)

        yield write
        with _explained(trouble):
            spool.seek(0)
        while piece := spool.read(_COPY_BYTES):
            put(piece)


@contextlib.contextmanager
def _explained(trouble: str) -> Iterator[None]:
    """The same error with the failed action: 'No space left on device' alone does not name the device."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"{trouble}: {error.strerror or error}") from error
