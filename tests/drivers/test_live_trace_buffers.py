"""Rows go through buffers, words and tables unchanged, whatever is in them; a list of records is the oracle."""

import io
import os
import subprocess
import sys

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overweave.batches.trace_fields import Columns
from overweave.drivers.tracing.live import _WriteBuffer
from overweave.drivers.tracing.live_files import table_of
from overweave.drivers.tracing.writer_wire import (
    CODES,
    NUMBERS,
    Buffer,
    Buffers,
    WriteReply,
    WriteRequest,
    receive,
    send,
    shared_memory,
)

texts = st.sampled_from(["p", "q", "straße", "", "a" * 300])
rows = st.tuples(
    texts, st.integers(0, 2**63 - 1), st.none() | st.tuples(texts, texts), st.integers(0, 255), st.floats(allow_nan=False),
    st.integers(0, 2**40),
)  # fmt: skip
batches = st.tuples(st.lists(rows, max_size=9), st.floats(allow_nan=False), st.sampled_from([None, "B2", "B3"]))


def columns(batch, arrived_at_s, previous_hop):
    """By columns, with lists in which texts may occur twice."""
    publishers = [row[0] for row in batch]
    pairs = [row[2] for row in batch if row[2] is not None]
    places = iter(range(len(pairs)))
    codes = np.array([-1 if row[2] is None else next(places) for row in batch], np.int32)
    return Columns(
        publishers, np.arange(len(batch), dtype=np.int32), np.array([row[1] for row in batch], np.int64),
        [subscription for subscription, _ in pairs], codes, [client for _, client in pairs], codes,
        np.array([row[3] for row in batch], np.int32), np.array([row[4] for row in batch], np.float64), arrived_at_s,
        np.array([row[5] for row in batch], np.int64), previous_hop,
    )  # fmt: skip


def through_pipe(word, kind):
    pipe = io.BytesIO()
    send(pipe, word)
    pipe.seek(0)
    return receive(pipe, kind)


@given(st.lists(batches, max_size=6), st.integers(1, 7))
def test_rows_come_out_as_they_went_in(several, size):
    found, filling = [], None

    def empty(filling):
        found.extend(table_of(filling._buffer, through_pipe(filling.request(), WriteRequest), "B1").to_pylist())

    for batch, arrived_at_s, hop in several:
        done = 0
        while done < len(batch):
            filling = filling or _WriteBuffer(0, Buffer(np.empty((NUMBERS, size), np.int64), np.empty((CODES, size), np.int32)))
            done += filling.copy_rows(columns(batch, arrived_at_s, hop), done)
            if filling.is_full():
                empty(filling)
                filling = None
    if filling is not None:
        empty(filling)
    expected = [
        {
            "publisher": publisher, "sequence": sequence, "broker": "B1", "subscription": pair and pair[0],
            "client": pair and pair[1], "hops": hops, "published_at_s": published_at_s, "arrived_at_s": arrived_at_s,
            "bytes": size, "previous_hop": hop,
        }
        for batch, arrived_at_s, hop in several
        for publisher, sequence, pair, hops, published_at_s, size in batch
    ]  # fmt: skip
    assert found == expected


def test_buffers_lie_apart_in_memory_that_is_shared():
    memory = shared_memory(3, 5)
    one, other = Buffers(memory, 3, 5), Buffers(memory, 3, 5)
    os.close(memory)
    for number in range(3):
        one[number].numbers[:] = 10 + number
        one[number].codes[:] = 20 + number
    for number in range(3):
        assert (other[number].numbers == 10 + number).all()
        assert (other[number].codes == 20 + number).all()
        assert other[number].rows == 5


def test_a_word_that_is_cut_off_is_the_end():
    pipe = io.BytesIO()
    send(pipe, WriteReply(1, 2, True, "odd"))
    whole = pipe.getvalue()
    assert receive(io.BytesIO(whole), WriteReply) == WriteReply(1, 2, True, "odd")
    assert all(receive(io.BytesIO(whole[:length]), WriteReply) is None for length in range(len(whole)))


def test_brokers_do_without_arrow_and_writers_without_kernels():
    for module, absent in (("overweave.drivers.tcp.node", "pyarrow"), ("overweave.drivers.tracing.writer_main", "numba")):
        subprocess.run([sys.executable, "-c", f"import sys, {module}; sys.exit({absent!r} in sys.modules)"], check=True)
