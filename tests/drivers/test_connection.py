"""Connections: what is sent arrives whole, however little the other end takes at a time, and whatever loop there is."""

import asyncio
import contextlib
import socket
import time

import numpy as np
import pytest

from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.contract.frames import BatchFrame, ControlFrame, SessionEpoch, UrgentFrame
from overweave.contract.wire import FRAME_BYTES_MAX, Disconnect, Ping, encode
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.frame_reader import FrameReader
from overweave.language.headers import Header
from overweave.language.messages import Publish, Unsubscribe
from overweave.language.publications import Publication
from overweave.testing.live import until

EPOCH = SessionEpoch(1, 0)


class Owner:
    def connected(self, connection):
        self.connection = connection

    def received(self, connection, message):
        pass

    def lost(self, connection):
        pass


def batch(number, size):
    rows = encode_rows([Publish(Publication({"x": number}), Header("p", number), np.random.default_rng(number).bytes(size))])
    return BatchFrame(EPOCH, EPOCH, number, 0, RawRows(rows, 1))


@pytest.mark.parametrize("seed", range(3))
def test_frames_arrive_whole_and_in_order_at_a_slow_reader(seed):
    dice = np.random.default_rng(seed)
    sizes = dice.permutation([10, 300, 5_000, 70_000, 400_000, 3_000_000, *[120_000] * 30]).tolist()
    frames = [batch(number, size) for number, size in enumerate(sizes)]

    async def read(theirs):
        loop, reader, got = asyncio.get_running_loop(), FrameReader(), []
        reader.bytes_max = FRAME_BYTES_MAX
        while len(got) < len(frames):
            got += reader.feed(await loop.sock_recv(theirs, int(dice.integers(1, 300_000))))
        return got

    async def sent_and_read():
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.setblocking(False)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
            owner = Owner()
            await asyncio.get_running_loop().create_connection(lambda: Connection(owner), sock=ours)
            reading = asyncio.create_task(read(theirs))
            for frame in frames:
                owner.connection.send(frame)
                if dice.random() < 0.3:
                    await asyncio.sleep(0)
            got = await asyncio.wait_for(reading, 20)
            owner.connection.close()
            return got

    assert [b"".join(encode(frame)) for frame in asyncio.run(sent_and_read())] == [b"".join(encode(frame)) for frame in frames]


class TransportOfAnotherLoop:
    """What a loop that is not asyncio's own may hand over: it can do what transports can, and is no `asyncio.Transport`."""

    def __init__(self):
        self.written = b""

    def set_write_buffer_limits(self, high):
        pass

    def get_extra_info(self, name):
        return None

    def get_write_buffer_size(self):
        return 0

    def write(self, data):
        self.written += data


def test_any_transport_will_do():
    transport, connection = TransportOfAnotherLoop(), Connection(Owner())
    connection.connection_made(transport)
    connection.send(Ping())
    connection.send(batch(1, 20))
    assert transport.written == b"".join((*encode(Ping()), *encode(batch(1, 20))))


def test_nothing_is_written_behind_a_frame_that_was_cut():
    """A connection that was aborted is closed only later; until then its socket would take more."""

    async def sent_and_read():
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.setblocking(False)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 50_000)
            owner, loop, got = Owner(), asyncio.get_running_loop(), b""
            await loop.create_connection(lambda: Connection(owner), sock=ours)
            owner.connection.send(batch(0, 150_000))
            with contextlib.suppress(BlockingIOError):
                while True:
                    got += theirs.recv(1 << 16)
            owner.connection.abort()
            owner.connection.send(batch(1, 70_000))
            while data := await asyncio.wait_for(loop.sock_recv(theirs, 1 << 16), 10):
                got += data
            return got

    got = asyncio.run(sent_and_read())
    assert 0 < len(got) < 150_000
    assert b"".join(encode(batch(0, 150_000))).startswith(got)


class BusyOwner(Owner):
    """Takes its time for every message."""

    def __init__(self, busy_s):
        self.busy_s, self.got, self.is_lost, self.late = busy_s, [], False, 0

    def received(self, connection, message):
        self.late += self.is_lost
        end_s = time.perf_counter() + self.busy_s
        while time.perf_counter() < end_s:
            pass
        self.got.append(message)

    def lost(self, connection):
        self.late += self.is_lost
        self.is_lost = True


def words(count):
    return [ControlFrame(EPOCH, EPOCH, number, 0, Unsubscribe(f"s{number}")) for number in range(count)]


@pytest.mark.parametrize("end", ["closed", "reset", "open"])
def test_control_messages_of_one_connection_leave_others_their_turn(end):
    frames = [*words(600), Disconnect()]

    async def work():
        loop, owner = asyncio.get_running_loop(), BusyOwner(busy_s=0.0005)
        ours, theirs = socket.socketpair()
        await loop.create_connection(lambda: Connection(owner), sock=ours)
        owner.connection.mark_authenticated()
        theirs.sendall(b"".join(piece for frame in frames for piece in encode(frame)))
        gaps_s = []
        while len(owner.got) < len(frames) and not owner.is_lost:
            start_s = time.perf_counter()
            await asyncio.sleep(0)
            gaps_s.append(time.perf_counter() - start_s)
            if len(gaps_s) == 20:
                if end == "closed":
                    theirs.close()
                elif end == "reset":
                    owner.connection.abort()  # as if writing had failed
        # All of it takes 300 ms; nobody waits for much longer than a slice of it.
        assert sorted(gaps_s)[-10] < 0.03
        # What was received before it was lost is handed over first.
        assert owner.got == frames[: len(owner.got)]
        assert len(owner.got) == len(frames) or end == "reset"
        if end != "open":
            await until(lambda: owner.is_lost)
        owner.connection.close()
        theirs.close()
        await asyncio.sleep(0.1)
        assert not owner.late

    asyncio.run(asyncio.wait_for(work(), 20))


def test_a_connection_that_is_closed_meanwhile_hands_over_nothing_more():
    async def work():
        loop, owner = asyncio.get_running_loop(), BusyOwner(busy_s=0.001)
        ours, theirs = socket.socketpair()
        await loop.create_connection(lambda: Connection(owner), sock=ours)
        owner.connection.mark_authenticated()
        theirs.sendall(b"".join(piece for frame in words(50) for piece in encode(frame)))
        while not owner.got:
            await asyncio.sleep(0)
        owner.connection.close()
        before = len(owner.got)
        assert before < 50
        await until(lambda: owner.is_lost)
        assert len(owner.got) == before
        theirs.close()

    asyncio.run(asyncio.wait_for(work(), 20))


def urgent(number):
    return UrgentFrame(EPOCH, EPOCH, batch(number, 10).batch)


@pytest.mark.parametrize("wait_s", [0.0, 1.2])
def test_urgent_frames_go_before_waiting_ones_or_are_dropped_when_outdated(wait_s):
    async def read():
        ours, theirs = socket.socketpair()
        with theirs:
            theirs.setblocking(False)
            ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 20_000)
            owner, loop, reader, got = Owner(), asyncio.get_running_loop(), FrameReader(), []
            reader.bytes_max = FRAME_BYTES_MAX
            await loop.create_connection(lambda: Connection(owner), sock=ours)
            for number in range(8):
                owner.connection.send(batch(number, 400_000))
            owner.connection.send(urgent(8))
            await asyncio.sleep(wait_s)
            while sum(isinstance(frame, BatchFrame) for frame in got) < 8:
                got += reader.feed(await asyncio.wait_for(loop.sock_recv(theirs, 300_000), 5))
            owner.connection.close()
            return got

    got = asyncio.run(read())
    assert [frame.sequence for frame in got if isinstance(frame, BatchFrame)] == list(range(8))
    places = [place for place, frame in enumerate(got) if isinstance(frame, UrgentFrame)]
    if wait_s:
        assert places == []
    else:
        assert len(places) == 1
        assert places[0] < 8
