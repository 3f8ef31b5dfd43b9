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
    CONTROL         := epochs, u64 sequence, u64 acknowledged, u8 type, then for rejections u32 generation, msgpack of
                       `Rejected` with the stable id, for markers, retired links, states of the overlay, messages of modules
                       and of migrations msgpack of the message (of frames), and for all others:
                       u16 n, u16 m, u32 generation, n bytes stable id, m bytes header (msgpack), and for advertisements
                       and subscriptions the filter (codec)
    envelope        := a CONTROL of type 6, before its id: u8 c, c bytes codec name; after its header: a body in that codec
                       (`control_codecs`). Brokers send them to each other; clients may not.
    BATCH           := epochs, u64 sequence, u64 acknowledged, rows as in URGENT
    URGENT          := epochs, u32 rows, u8 hops since they were written, u8 least ttl when written, u8 tag of the routing
                       protocol, u8 d, d bytes destination list (the union; each row has all of them, unless rows
                       have lists, which all have or none), rows (`batches.raw`)
    URGENT_MESSAGE  := epochs, msgpack of `ModuleMessage` (of frames)
    REQUEST, REPLY  := msgpack of a `Request` or a `Reply` (of requests)
    ADDRESSES       := msgpack of `Addresses`

Version 8: control messages name their epoch of the overlay. Peers of another version are rejected.
"""

import struct
from collections.abc import Sequence
from functools import lru_cache

import msgspec

from overweave.batches.base import BatchHead
from overweave.batches.destinations import decode_list
from overweave.batches.kernels import LIST_BYTES_MAX
from overweave.batches.raw import RawRows, encode_batch
from overweave.contract.connection_messages import VERSION as VERSION
from overweave.contract.connection_messages import Addresses as Addresses
from overweave.contract.connection_messages import Connect as Connect
from overweave.contract.connection_messages import Disconnect as Disconnect
from overweave.contract.connection_messages import Error as Error
from overweave.contract.connection_messages import Gap as Gap
from overweave.contract.connection_messages import Notice as Notice
from overweave.contract.connection_messages import Ping as Ping
from overweave.contract.control_wire import decode_control, encode_control
from overweave.contract.frames import (
    Acknowledgement,
    BatchFrame,
    ControlFrame,
    Frame,
    Hello,
    ModuleMessage,
    SessionEpoch,
    UrgentFrame,
    UrgentMessageFrame,
)
from overweave.contract.requests import (
    ClientsReply,
    ClientsRequest,
    MigrationReply,
    MigrationRequest,
    ModuleReply,
    ModuleRequest,
    Reply,
    Request,
)
from overweave.errors import InvalidInput, WireError

#: No frame is longer.
FRAME_BYTES_MAX = 16 << 20
#: Before a peer has said who it is, it is not given that much.
OPEN_BYTES_MAX = 4096

OPEN, ERROR, PING, BYE, HELLO, ACKNOWLEDGEMENT, CONTROL, BATCH, NOTICE, URGENT, URGENT_MESSAGE, REQUEST, REPLY, ADDRESSES = range(
    14
)
#: The length and the kind of a frame.
HEAD = struct.Struct("<IB")
#: The epochs of both ends, which all other layouts have as bytes: they seldom change.
_EPOCHS = struct.Struct("<QIQI")
_HEAD_AND_EPOCHS = HEAD.size + _EPOCHS.size
_HELLO = struct.Struct("<24sQQQQB")
_ACKNOWLEDGEMENT = struct.Struct("<24sQQQ")
_STRETCH = struct.Struct("<QQ")
_CONTROL = struct.Struct("<24sQQB")
_BATCH = struct.Struct("<24sQQIBBBB")
#: The same with the head of the frame and with epochs as numbers, to be written at once.
_BATCH_FRAME = struct.Struct("<IBQIQIQQIBBBB")
_URGENT = struct.Struct("<24sIBBBB")
#: A batch and its destination list are not longer.
_ROWS_BYTES_MAX = FRAME_BYTES_MAX - 1 - _BATCH.size


Message = Connect | Addresses | Error | Notice | Ping | Disconnect | Request | Reply | Frame
_open_decoder, _error_decoder = msgspec.msgpack.Decoder(Connect), msgspec.msgpack.Decoder(Error)
_addresses_decoder = msgspec.msgpack.Decoder(Addresses)
_notice_decoder, _module_decoder = msgspec.msgpack.Decoder(Notice), msgspec.msgpack.Decoder(ModuleMessage)
_request_decoder: msgspec.msgpack.Decoder[Request] = msgspec.msgpack.Decoder(Request)
_reply_decoder: msgspec.msgpack.Decoder[Reply] = msgspec.msgpack.Decoder(Reply)


def payload_max(rows: int) -> int:
    """The limit on the bytes of some rows of a client: brokers add destination lists to them and their frame in flight.

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
    message: Connect
    | Addresses
    | Error
    | Notice
    | Ping
    | Disconnect
    | Request
    | Reply
    | Hello
    | Acknowledgement
    | ControlFrame
    | UrgentMessageFrame,
) -> tuple[int, bytes]:
    match message:
        case Acknowledgement():
            settled = _encoded_epochs(message), message.acknowledged, message.expected, message.unmatched
            return ACKNOWLEDGEMENT, _ACKNOWLEDGEMENT.pack(*settled) + b"".join(_STRETCH.pack(*some) for some in message.ranges)
        case Hello():
            settled = _encoded_epochs(message), message.acknowledged, message.expected, message.unmatched
            return HELLO, _HELLO.pack(*settled, message.next_sequence, message.confirmed)
        case ControlFrame():
            numbers = _encoded_epochs(message), message.sequence, message.acknowledged
            number, body = encode_control(message.message)
            return CONTROL, _CONTROL.pack(*numbers, number) + body
        case UrgentMessageFrame():
            return URGENT_MESSAGE, _encoded_epochs(message) + msgspec.msgpack.encode(message.message)
        case Connect():
            return OPEN, msgspec.msgpack.encode(message)
        case Addresses():
            return ADDRESSES, msgspec.msgpack.encode(message)
        case Error():
            return ERROR, msgspec.msgpack.encode(message)
        case Notice():
            return NOTICE, msgspec.msgpack.encode(message)
        case MigrationRequest() | ClientsRequest() | ModuleRequest():
            return REQUEST, msgspec.msgpack.encode(message)
        case MigrationReply() | ClientsReply() | ModuleReply():
            return REPLY, msgspec.msgpack.encode(message)
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
        epochs, acknowledged, expected, unmatched, next_sequence, confirmed = _HELLO.unpack(body)
        return Hello(*_decoded_epochs(epochs), acknowledged, expected, bool(confirmed), unmatched, next_sequence)
    if kind == CONTROL:
        epochs, sequence, acknowledged, number = _CONTROL.unpack_from(body)
        return ControlFrame(*_decoded_epochs(epochs), sequence, acknowledged, decode_control(number, body[_CONTROL.size :]))
    if kind == URGENT_MESSAGE:
        return UrgentMessageFrame(*_decoded_epochs(body[: _EPOCHS.size]), _module_decoder.decode(body[_EPOCHS.size :]))
    if kind == OPEN:
        return _open_decoder.decode(body)
    if kind == ERROR:
        return _error_decoder.decode(body)
    if kind == NOTICE:
        return _notice_decoder.decode(body)
    if kind == REQUEST:
        return _request_decoder.decode(body)
    if kind == REPLY:
        return _reply_decoder.decode(body)
    if kind == ADDRESSES:
        return _addresses_decoder.decode(body)
    if kind in (PING, BYE) and not body:
        return Ping() if kind == PING else Disconnect()
    raise WireError(0, f"a kind of frame from 0 to {ADDRESSES}, got {kind} with {len(body)} bytes")
