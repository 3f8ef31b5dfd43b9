"""Rows of publications in their wire form (see `overweave.batches.raw` for the layout)."""

import struct
from collections.abc import Iterable

import msgspec

from overweave.batches.destinations import encode_list
from overweave.errors import LanguageError, WireError
from overweave.language.codec import encode_publication
from overweave.language.headers import Header
from overweave.language.messages import Publish

ROW_HEAD = struct.Struct("<IQQdBBBBHHI")
#: The fields of a header that rows carry on their own; the others are the rest.
PLAIN_HEADER = Header()
_FIXED = {
    "publisher": "", "sequence": 0, "published_at_s": 0.0, "life": 0, "hops": 0, "ttl": PLAIN_HEADER.ttl,
    "priority": PLAIN_HEADER.priority, "destinations": (),
}  # fmt: skip
header_decoder = msgspec.msgpack.Decoder(Header)


def encode_rows(publishes: Iterable[Publish]) -> bytes:
    """Rows of publications one after the other.

    >>> from overweave.language.publications import Publication
    >>> len(encode_rows([Publish(Publication({"x": 1}), Header("p", 7))]))
    54
    """
    return b"".join(map(_encode_row, publishes))


def _encode_row(publish: Publish) -> bytes:
    header, content = publish.header, encode_publication(publish.publication)
    publisher = header.publisher.encode()
    if not 0 < len(publisher) < 65_536:
        raise LanguageError(f"publisher {header.publisher!r}: expected a name of 1 to 65,535 bytes")
    rest = msgspec.structs.replace(header, **_FIXED)
    extra, listed = b"" if rest == PLAIN_HEADER else msgspec.msgpack.encode(rest), encode_list(header.destinations)
    length = ROW_HEAD.size - 4 + len(publisher) + len(listed) + len(extra) + len(content) + len(publish.payload)
    head = ROW_HEAD.pack(
        length, header.sequence, header.life, header.published_at_s, min(header.hops, 255), min(header.ttl, 255), header.priority,
        len(listed), len(publisher), len(extra), len(content),
    )  # fmt: skip
    return b"".join((head, publisher, listed, extra, content, publish.payload))


def decode_name(data: bytes, at: int) -> str:
    """The publisher's name; ``at`` is its offset in the frame."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise WireError(at, "a publisher's name in UTF-8") from None
