"""Messages and their headers."""

import msgspec
import pytest

from overweave.errors import LanguageError
from overweave.language.headers import Header, Priority
from overweave.language.messages import Advertise, Publish, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter


def test_a_hop_leaves_the_message_as_it_was():
    header = Header("p1", 3, ttl=1)
    after = header.next_hop()
    assert (header.hops, header.ttl) == (0, 1)
    assert (after.hops, after.ttl) == (1, 0)
    assert after.next_hop(2).ttl == 0


@pytest.mark.parametrize("field", ["sequence", "hops", "ttl", "life"])
def test_headers_count_from_zero(field):
    with pytest.raises(LanguageError, match=field):
        Header(**{field: -1})


def test_messages_are_values():
    stock = parse_filter("[class,eq,'STOCK']")
    assert Subscribe("s1", stock) == Subscribe("s1", stock)
    assert Subscribe("s1", stock) != Advertise("s1", stock)
    with pytest.raises(AttributeError):
        Subscribe("s1", stock).id = "s2"


def test_an_empty_header_takes_no_room():
    assert msgspec.json.encode(Header()) == b"{}"
    assert msgspec.json.decode(msgspec.json.encode(Header(priority=Priority.CONTROL)), type=Header).priority is Priority.CONTROL


def test_a_payload_is_no_content():
    assert Publish(Publication({"x": 1}), payload=b"[y,2]").publication == Publication({"x": 1})
