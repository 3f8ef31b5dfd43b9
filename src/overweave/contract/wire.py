"""The wire form of frames, little-endian: what two peers exchange over a connection.

::

    frame := u32 length of what follows, u8 kind, body

    OPEN (first on every connection)   := msgpack of `Connect`
    ERROR                              := msgpack of `Error`
    PING, BYE                          := nothing
    NOTICE                             := msgpack of `Notice`
    epochs          := u64 incarnation, u32 number, of the sender; u64 incarnation, u32 number, of the receiver
    HELLO           := epochs, u64 acknowledged, u64 expected, u64 unmatched, u8 confirmed
    ACKNOWLEDGEMENT := epochs, u64 acknowledged, u64 expected, u64 unmatched, any number of u64 first, u64 end
    CONTROL         := epochs, u64 sequence, u64 acknowledged, u8 type, then for rejections and retired links
                       msgpack of `Rejected` or `LinkRetired` (of frames), and for all others but marks:
                       u16 n, u16 m, n bytes id, m bytes header (msgpack), and for advertisements and subscriptions the
                       filter (codec)
    envelope        := a CONTROL of type 6, before its id: u8 c, c bytes codec name; after its header: a body in that codec
                       (`control_codecs`). Brokers send them to each other; clients may not.
    BATCH           := epochs, u64 sequence, u64 acknowledged, rows as in URGENT
    URGENT          := epochs, u32 rows, u8 hops since they were written, u8 least ttl when written, u8 tag of the routing
                       protocol, u8 d, d bytes destination list (the union; each row has all of them, unless rows
                       have lists, which all have or none), rows (`batches.raw`)

Version 6: session epochs are pairs, frames for urgent control, the kind of a link in `Connect`, envelopes for the control
messages of routing protocols, and a tag in place of the detour bit. Peers of another version are rejected.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from overweave.batches.base import BatchHead
from overweave.batches.destinations import decode_list
from overweave.batches.kernels import LIST_BYTES_MAX
from overweave.batches.raw import RawRows, encode_batch
from overweave.contract.control_wire import decode_control, encode_control
from overweave.contract.frames import (
    Acknowledgement,
    BatchFrame,
    ControlFrame,
    Frame,
    Hello,
    SessionEpoch,
    UrgentFrame,
)
from overweave.errors import InvalidInput, WireError
from overweave.overlay.parts import LinkKind

VERSION = 6
#: No frame is longer.
FRAME_BYTES_MAX = 16 << 20
#: Before a peer has said who it is, it is not given that much.
OPEN_BYTES_MAX = 4096

OPEN, ERROR, PING, BYE, HELLO, ACKNOWLEDGEMENT, CONTROL, BATCH, NOTICE, URGENT = range(10)
#: The length and the kind of a frame.
HEAD = struct.Struct("<IB")
#: The epochs of both ends, which all other layouts have as bytes: they seldom change.
_EPOCHS = struct.Struct("<QIQI")
_HEAD_AND_EPOCHS = HEAD.size + _EPOCHS.size
_HELLO = struct.Struct("<24sQQQB")
_ACKNOWLEDGEMENT = struct.Struct("<24sQQQ")
_STRETCH = struct.Struct("<QQ")
_CONTROL = struct.Struct("<24sQQB")
_BATCH = struct.Struct("<24sQQIBBBB")
#: The same with the head of the frame and with epochs as numbers, to be written at once.
_BATCH_FRAME = struct.Struct("<IBQIQIQQIBBBB")
_URGENT = struct.Struct("<24sIBBBB")
#: A batch and its destination list are not longer.
_ROWS_BYTES_MAX = FRAME_BYTES_MAX - 1 - _BATCH.size


class Gap(msgspec.Struct, frozen=True):
    """Why a broker ended a client's session, how long ago, and how many publications it dropped then."""

    code: str
    text: str
    ago_s: float
    rows: int


class Connect(msgspec.Struct, frozen=True, omit_defaults=True):
    """Who opens a connection: a broker or a client, with a name, what proves it, and a key by which it can come back.

    A broker answers a client with another key, which stays the same as long as it remembers the client, and with the number of
    publications that a client may have in flight. It says whether it ``knows`` what the client has subscribed to, perhaps from
    its journal, and which ``gap`` there is if it had to forget that. For that a client that comes back says how many of its
    ``subscriptions`` were acknowledged: a journal may have been damaged.
    """

    role: str
    name: str
    token: str | None = None
    key: str | None = None
    version: int = VERSION
    window: int | None = None
    knows: bool = False
    gap: Gap | None = None
    subscriptions: int = 0
    #: The kind of a link between brokers.
    link: LinkKind = LinkKind.PRIMARY


class Error(msgspec.Struct, frozen=True):
    """Why a connection is closed."""

    code: str
    text: str


class Notice(msgspec.Struct, frozen=True):
    """What a client did wrong, while the connection stays open; ``number`` counts up, so that none is heard twice."""

    code: str
    text: str
    number: int


class Ping(msgspec.Struct, frozen=True):
    """A sign of life."""


class Disconnect(msgspec.Struct, frozen=True):
    """The sender leaves for good, and wants nothing kept."""


Message = Connect | Error | Notice | Ping | Disconnect | Frame
_open_decoder, _error_decoder = msgspec.msgpack.Decoder(Connect), msgspec.msgpack.Decoder(Error)
_notice_decoder = msgspec.msgpack.Decoder(Notice)


def payload_max(rows: int) -> int:
    """How many bytes so many rows of a client may take: on their way brokers write destination lists into them and their frame.

    >>> payload_max(1)
    16776657
    """
    return FRAME_BYTES_MAX - 1 - _BATCH.size - LIST_BYTES_MAX * (rows + 1)


def encode(message: Message) -> Sequence[bytes | memoryview]:
    """A message in its wire form, in pieces, so that rows are not copied.

    >>> b"".join(encode(Ping())).hex(" ")
    '01 00 00 00 02'
    """
    if isinstance(message, BatchFrame):
        rows, hops_added, ttl, tag, listed = encode_batch(message.batch)
        size = len(listed) + len(rows)
        if size > _ROWS_BYTES_MAX:
            raise _too_long(len(rows))
        numbers = *message.epoch, *message.peer_epoch, message.sequence, message.acknowledged
        head = _BATCH_FRAME.pack(1 + _BATCH.size + size, BATCH, *numbers, message.batch.count, hops_added, ttl, tag, len(listed))
        return head + listed, rows.data
    if isinstance(message, UrgentFrame):
        return _encoded_urgent(message)
    kind, body = _encoded(message)
    return (HEAD.pack(1 + len(body), kind) + body,)


def decode(kind: int, body: bytes | memoryview) -> Message:
    """The message of a frame; anything that does not follow the layout is a `WireError`.

    >>> decode(ACKNOWLEDGEMENT, bytes(48)).acknowledged
    0
    """
    try:
        if kind == BATCH:
            epochs, sequence, acknowledged, count, hops_added, ttl, tag, listed = _BATCH.unpack_from(body)
            rows_at = _BATCH.size + listed
            destinations = decode_list(bytes(body[_BATCH.size : rows_at])) if listed else 0
            rows = RawRows(memoryview(body)[rows_at:], count, BatchHead(hops_added, ttl, tag, destinations))
            epoch, peer_epoch = _decoded_epochs(epochs)
            return BatchFrame(epoch, peer_epoch, sequence, acknowledged, rows)
        return _decoded(kind, bytes(body))
    except struct.error:
        raise WireError(0, f"a frame of kind {kind}, got {len(body)} bytes") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(0, f"a frame of kind {kind}: {error}") from None


def is_superseded(frame: memoryview, following: memoryview) -> bool:
    """Whether a frame is an acknowledgement, and the frame after it acknowledges more: they often arrive in groups.

    >>> epoch = SessionEpoch(1, 0)
    >>> older, newer = (memoryview(b"".join(encode(Acknowledgement(epoch, epoch, n, n)))) for n in (7, 9))
    >>> is_superseded(older, newer), is_superseded(older, newer[:-1])
    (True, False)
    """
    if frame[4] != ACKNOWLEDGEMENT or len(frame) != HEAD.size + _ACKNOWLEDGEMENT.size:
        return False  # ranges are sent once
    return len(following) >= len(frame) and frame[:_HEAD_AND_EPOCHS] == following[:_HEAD_AND_EPOCHS]


def _encoded_urgent(frame: UrgentFrame) -> Sequence[bytes | memoryview]:
    rows, hops_added, ttl, tag, listed = encode_batch(frame.batch)
    size = len(listed) + len(rows)
    if size > _ROWS_BYTES_MAX:
        raise _too_long(len(rows))
    shared = _encoded_epochs(frame), frame.batch.count, hops_added, ttl, tag, len(listed)
    return HEAD.pack(1 + _URGENT.size + size, URGENT) + _URGENT.pack(*shared) + listed, rows.data


def _too_long(size: int) -> InvalidInput:
    return InvalidInput(f"expected publications of at most {FRAME_BYTES_MAX:,} bytes together, got {size:,}")


def _encoded_epochs(frame: Frame) -> bytes:
    return _EPOCHS.pack(*frame.epoch, *frame.peer_epoch)


@lru_cache(maxsize=8192)
def _decoded_epochs(epochs: bytes) -> tuple[SessionEpoch, SessionEpoch]:
    """The epochs of both ends; cached, because a connection has the same ones in all frames."""
    incarnation, number, peer_incarnation, peer_number = _EPOCHS.unpack(epochs)
    return SessionEpoch(incarnation, number), SessionEpoch(peer_incarnation, peer_number)


def _encoded(
    message: Connect | Error | Notice | Ping | Disconnect | Hello | Acknowledgement | ControlFrame,
) -> tuple[int, bytes]:
    match message:
        case Acknowledgement():
            settled = _encoded_epochs(message), message.acknowledged, message.expected, message.unmatched
            return ACKNOWLEDGEMENT, _ACKNOWLEDGEMENT.pack(*settled) + b"".join(_STRETCH.pack(*some) for some in message.ranges)
        case Hello():
            settled = _encoded_epochs(message), message.acknowledged, message.expected, message.unmatched
            return HELLO, _HELLO.pack(*settled, message.confirmed)
        case ControlFrame():
            numbers = _encoded_epochs(message), message.sequence, message.acknowledged
            number, body = encode_control(message.message)
            return CONTROL, _CONTROL.pack(*numbers, number) + body
        case Connect():
            return OPEN, msgspec.msgpack.encode(message)
        case Error():
            return ERROR, msgspec.msgpack.encode(message)
        case Notice():
            return NOTICE, msgspec.msgpack.encode(message)
        case Ping():
            return PING, b""
        case Disconnect():
            return BYE, b""


def _decoded(kind: int, body: bytes) -> Message:
    if kind == ACKNOWLEDGEMENT:
        epochs, acknowledged, expected, unmatched = _ACKNOWLEDGEMENT.unpack_from(body)
        ranges = tuple((first, end) for first, end in _STRETCH.iter_unpack(body[_ACKNOWLEDGEMENT.size :]))
        return Acknowledgement(*_decoded_epochs(epochs), acknowledged, expected, ranges, unmatched)
    if kind == URGENT:
        epochs, count, hops_added, ttl, tag, listed = _URGENT.unpack_from(body)
        rows_at = _URGENT.size + listed
        destinations = decode_list(body[_URGENT.size : rows_at]) if listed else 0
        return UrgentFrame(
            *_decoded_epochs(epochs), RawRows(memoryview(body)[rows_at:], count, BatchHead(hops_added, ttl, tag, destinations))
        )
    if kind == HELLO:
        epochs, acknowledged, expected, unmatched, confirmed = _HELLO.unpack(body)
        return Hello(*_decoded_epochs(epochs), acknowledged, expected, bool(confirmed), unmatched)
    if kind == CONTROL:
        epochs, sequence, acknowledged, number = _CONTROL.unpack_from(body)
        return ControlFrame(*_decoded_epochs(epochs), sequence, acknowledged, decode_control(number, body[_CONTROL.size :]))
    if kind == OPEN:
        return _open_decoder.decode(body)
    if kind == ERROR:
        return _error_decoder.decode(body)
    if kind == NOTICE:
        return _notice_decoder.decode(body)
    if kind in (PING, BYE) and not body:
        return Ping() if kind == PING else Disconnect()
    raise WireError(0, f"a kind of frame from 0 to {URGENT}, got {kind} with {len(body)} bytes")
