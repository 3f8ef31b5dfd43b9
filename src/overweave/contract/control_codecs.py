"""The registry of codecs for routing protocols' own control messages, which travel in an envelope with a codec's name."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from overweave.errors import WireError
from overweave.language.headers import Header
from overweave.language.messages import RoutingMessage

M = TypeVar("M", bound=RoutingMessage)
_NAME_BYTES_MAX = 255


class ControlCodec(NamedTuple):
    """The wire form of one type of control message, apart from its id and header."""

    name: str
    type: type[RoutingMessage]
    encode: Callable[[RoutingMessage], bytes]
    decode: Callable[[str, Header, bytes], RoutingMessage]


_by_name: dict[str, ControlCodec] = {}
_by_type: dict[type[RoutingMessage], ControlCodec] = {}


def register(name: str, type: type[M], encode: Callable[[M], bytes], decode: Callable[[str, Header, bytes], M]) -> None:
    """Register the codec of a type of message; ``decode`` gets the id, the header and the body.

    A protocol registers its messages where they are defined, so that every process with the protocol can decode them.
    """
    if not 0 < len(name.encode()) <= _NAME_BYTES_MAX:
        raise ValueError(f"codec {name!r}: expected a name of 1 to {_NAME_BYTES_MAX} bytes")
    if (known := _by_name.get(name)) is not None and known.type is not type:
        raise ValueError(f"codec {name!r}: expected a name that is not in use, got that of {known.type.__qualname__}")
    _by_name[name] = _by_type[type] = ControlCodec(name, type, encode, decode)  # type: ignore[arg-type]


def codec_of(message: RoutingMessage) -> ControlCodec:
    """The codec of a message."""
    codec = _by_type.get(type(message))
    if codec is None:
        raise ValueError(f"message {type(message).__qualname__}: expected a type with a registered codec")
    return codec


def codec_named(name: str) -> ControlCodec:
    """The codec of a name in a frame; a `WireError` if this process has none."""
    codec = _by_name.get(name)
    if codec is None:
        raise WireError(0, f"a control message with a known codec, got codec {name!r}")
    return codec
