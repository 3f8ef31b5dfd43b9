"""How a verb hands its answer to stdout: a JSON document in one piece or not at all, plain text as it comes."""

import contextlib
import sys
import tempfile
from collections.abc import Callable, Iterator

#: Up to here a document waits in memory, beyond it in an unnamed temporary file that vanishes with the process.
MEMORY_BYTES = 1 << 23
_COPY_BYTES = 1 << 20


def put(data: bytes) -> None:
    """Write to stdout, at once: whoever reads it may be waiting for just this line."""
    with _explained("cannot write the answer"):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


@contextlib.contextmanager
def whole_document() -> Iterator[Callable[[bytes], None]]:
    """A function that writes a document piece by piece; stdout gets it when the body ends well, and nothing when it fails."""
    trouble = f"cannot keep the answer in {tempfile.gettempdir()} until it is complete (TMPDIR names another place)"
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
    """The same error, with what we were about to do: 'No space left on device' alone does not tell which one."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"{trouble}: {error.strerror or error}") from error
