"""Run the command line inside the test process, with bytes in and out as a shell would see them."""

import io
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from overweave.cli import main


class Outcome(NamedTuple):
    status: int
    out: str
    err: str


Run = Callable[..., Outcome]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("OVERWEAVE_DEBUG", raising=False)

    def run(*arguments: object, stdin: bytes | io.BufferedIOBase = b"") -> Outcome:
        source = io.BytesIO(stdin) if isinstance(stdin, bytes) else stdin
        out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
        with monkeypatch.context() as patch:
            patch.setattr(sys, "stdin", io.TextIOWrapper(source))
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            with pytest.raises(SystemExit) as leaving:
                main([str(argument) for argument in arguments])
        texts = []
        for stream in (out, err):
            stream.flush()
            texts.append(stream.buffer.getvalue().decode())
        return Outcome(leaving.value.code, *texts)

    return run


@pytest.fixture
def small_session(monkeypatch, spark):
    """The session that tests have, in place of one that takes the machine."""
    from overweave.pipeline import session

    @contextmanager
    def given(master=None, conf=(), memory_mb=None):
        assert (master, list(conf)) == (None, [])
        yield spark

    monkeypatch.setattr(session, "session", given)
