"""The wire form of control messages within their frames (see `overweave.contract.wire` for the layout)."""

import struct
from typing import Any

import msgspec

from overweave.contract.control_codecs import codec_named, codec_of
from overweave.contract.frames import (
    AdvertisementsEnd,
    BarrierRequest,
    ControlMessage,
    EpochOpened,
    LinkRetired,
    Migrate,
    MigrationBarrier,
    MigrationResult,
    ModuleMessage,
    OverlayUpdate,
    Rejected,
    StreamEnd,
    SyncEnd,
)
from overweave.contract.wire_ids import decode_id, encode_id
from overweave.errors import InvalidInput, WireError
from overweave.language.codec import decode_filter, encode_filter
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, RoutingMessage, Subscribe, Unadvertise, Unsubscribe

#: The lengths of the id and the header, and the generation.
_HEAD = struct.Struct("<HHI")
_GENERATION = struct.Struct("<I")
#: Control messages by their wire numbers; a `RoutingMessage` is an envelope.
_TYPES: tuple[type[ControlMessage], ...] = (
    Advertise, Unadvertise, Subscribe, Unsubscribe, AdvertisementsEnd, SyncEnd, RoutingMessage, Rejected,
    LinkRetired, ModuleMessage, Migrate, BarrierRequest, MigrationBarrier, StreamEnd, MigrationResult, OverlayUpdate, EpochOpened,
)  # fmt: skip
_NUMBERS = {type: number for number, type in enumerate(_TYPES)}
_ENVELOPE = _NUMBERS[RoutingMessage]
_header_decoder, _rejected_decoder = msgspec.msgpack.Decoder(Header), msgspec.msgpack.Decoder(Rejected)
#: Messages that are encoded as a whole.
_PLAIN = (
    AdvertisementsEnd, SyncEnd, LinkRetired, ModuleMessage, Migrate, BarrierRequest, MigrationBarrier, StreamEnd, MigrationResult,
    OverlayUpdate, EpochOpened,
)  # fmt: skip
_plain_decoders: dict[type, msgspec.msgpack.Decoder[Any]] = {kind: msgspec.msgpack.Decoder(kind) for kind in _PLAIN}


def encode_control(message: ControlMessage) -> tuple[int, bytes]:
    """The wire number of a control message's type, and its body."""
    return _NUMBERS.get(type(message), _ENVELOPE), _encoded(message)


def decode_control(number: int, body: bytes) -> ControlMessage:
    """The control message of a type by its wire number; a `WireError` if the body does not follow the layout."""
    if number >= len(_TYPES):
        raise WireError(0, f"a control message of type 0 to {len(_TYPES) - 1}, got {number}")
    kind = _TYPES[number]
    if kind is Rejected:
        return _decoded_rejected(body)
    plain = _plain_decoders.get(kind)
    if plain is not None:
        decoded: ControlMessage = plain.decode(body)
        return decoded
    try:
        if kind is RoutingMessage:
            return _decoded_envelope(body)
        id, header, rest = _decoded_head(body)
        if kind is Advertise or kind is Subscribe:
            filter = decode_filter(rest)
            return Advertise(id, filter, header) if kind is Advertise else Subscribe(id, filter, header)
    except (UnicodeDecodeError, InvalidInput) as error:
        raise WireError(0, f"a control message: {error}") from None
    if rest:
        raise WireError(len(body) - len(rest), f"the end, got {len(rest)} more bytes")
    return Unadvertise(id, header) if kind is Unadvertise else Unsubscribe(id, header)


def _encoded(message: ControlMessage) -> bytes:
    if isinstance(message, _PLAIN):
        return msgspec.msgpack.encode(message)
    match message:
        case Rejected():
            return _encoded_rejected(message)
        case Advertise() | Subscribe():
            return _encoded_head(message) + encode_filter(message.filter)
        case RoutingMessage():
            codec = codec_of(message)
            name = codec.name.encode()
            return bytes((len(name),)) + name + _encoded_head(message) + codec.encode(message)
        case _:
            return _encoded_head(message)


def _encoded_rejected(message: Rejected) -> bytes:
    stable, generation = encode_id(message.id)
    return _GENERATION.pack(generation) + msgspec.msgpack.encode(msgspec.structs.replace(message, id=stable))


def _decoded_rejected(body: bytes) -> Rejected:
    (generation,) = _GENERATION.unpack_from(body)
    message = _rejected_decoder.decode(body[_GENERATION.size :])
    return msgspec.structs.replace(message, id=decode_id(message.id, generation))


def _encoded_head(message: Control) -> bytes:
    stable, generation = encode_id(message.id)
    id, header = stable.encode(), msgspec.msgpack.encode(message.header)
    if len(id) > 65_535 or len(header) > 65_535:
        raise InvalidInput(f"id {stable[:24]!r}: expected an id and a header of at most 65,535 bytes")
    return _HEAD.pack(len(id), len(header), generation) + id + header


def _decoded_envelope(body: bytes) -> RoutingMessage:
    if not body or len(body) <= body[0]:
        raise WireError(0, "the name of a codec within its frame")
    codec, (id, header, rest) = codec_named(body[1 : 1 + body[0]].decode()), _decoded_head(body[1 + body[0] :])
    try:
        return codec.decode(id, header, rest)
    except (ValueError, LookupError, TypeError, struct.error, msgspec.MsgspecError) as error:
        raise WireError(0, f"a message in codec {codec.name!r}: {error}") from None


def _decoded_head(body: bytes) -> tuple[str, Header, bytes]:
    """The id, the header and the rest of a control message."""
    id_length, header_length, generation = _HEAD.unpack_from(body)
    header_at, rest_at = _HEAD.size + id_length, _HEAD.size + id_length + header_length
    if rest_at > len(body) or not id_length:
        raise WireError(0, "an id and a header within their frame")
    id = decode_id(body[_HEAD.size : header_at].decode(), generation)
    return id, _header_decoder.decode(body[header_at:rest_at]), body[rest_at:]
