"""Single rows of publications in their wire form (see `overweave.batches.raw` for the layout)."""

import struct
from collections.abc import Callable, Iterable

import msgspec

from overweave.batches.destinations import encode_list
from overweave.batches.kernels import HEAD
from overweave.errors import LanguageError, WireError
from overweave.language.codec import decode_publication, encode_publication
from overweave.language.headers import Header, Priority
from overweave.language.messages import Publish

#: Length, sequence, life id, time, hops, ttl, priority, and the lengths of list, publisher, other header fields and content.
ROW_HEAD = struct.Struct("<IQQdBBBBHHI")
#: A header without the fields that rows carry on their own; the others follow as msgpack unless all are default.
_PLAIN_HEADER = Header()
_FIXED = {
    "publisher": "", "sequence": 0, "published_at_s": 0.0, "life": 0, "hops": 0, "ttl": _PLAIN_HEADER.ttl,
    "priority": _PLAIN_HEADER.priority, "destinations": (),
}  # fmt: skip
_header_decoder = msgspec.msgpack.Decoder(Header)


def encode_rows(publishes: Iterable[Publish]) -> bytes:
    """Rows of publications one after the other.

    >>> from overweave.language.publications import Publication
    >>> len(encode_rows([Publish(Publication({"x": 1}), Header("p", 7))]))
    54
    """
    return b"".join(map(_encode_row, publishes))


def decode_row(data: bytes, at: int, hops_added: int, destinations: Callable[[bool], tuple[int, ...]]) -> Publish:
    """A row as an object; ``at`` is its offset in the frame, ``destinations`` is called with whether it has a list of its own."""
    _, sequence, life, published_at_s, hops, ttl, priority, listed, publisher, extra, content = ROW_HEAD.unpack_from(data)
    extra_at = HEAD + publisher + listed
    content_at = extra_at + extra
    try:
        rest = _header_decoder.decode(data[extra_at:content_at]) if extra else _PLAIN_HEADER
        header = msgspec.structs.replace(
            rest, publisher=decode_name(data[HEAD : HEAD + publisher], at), sequence=sequence, published_at_s=published_at_s,
            life=life, hops=min(hops + hops_added, 255), ttl=max(ttl - hops_added, 0), priority=Priority(priority),
            destinations=destinations(listed > 0),
        )  # fmt: skip
    except (msgspec.MsgspecError, LanguageError, ValueError) as error:
        raise WireError(at, f"a header in its wire form: {error}") from None
    publication = decode_publication(data[content_at : content_at + content])
    return Publish(publication, header, data[content_at + content :])


def decode_name(data: bytes, at: int) -> str:
    """The publisher's name; ``at`` is its offset in the frame."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise WireError(at, "a publisher's name in UTF-8") from None


def _encode_row(publish: Publish) -> bytes:
    header, content = publish.header, encode_publication(publish.publication)
    publisher = header.publisher.encode()
    if not 0 < len(publisher) < 65_536:
        raise LanguageError(f"publisher {header.publisher!r}: expected a name of 1 to 65,535 bytes")
    rest = msgspec.structs.replace(header, **_FIXED)
    extra, listed = b"" if rest == _PLAIN_HEADER else msgspec.msgpack.encode(rest), encode_list(header.destinations)
    length = ROW_HEAD.size - 4 + len(publisher) + len(listed) + len(extra) + len(content) + len(publish.payload)
    head = ROW_HEAD.pack(
        length, header.sequence, header.life, header.published_at_s, min(header.hops, 255), min(header.ttl, 255), header.priority,
        len(listed), len(publisher), len(extra), len(content),
    )  # fmt: skip
    return b"".join((head, publisher, listed, extra, content, publish.payload))
