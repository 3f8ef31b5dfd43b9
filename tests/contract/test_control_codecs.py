"""Control messages of routing protocols travel in envelopes, by codecs that the protocols register."""

import pytest

from overweave.contract.control_codecs import codec_of, register
from overweave.contract.frames import ControlFrame, SessionEpoch
from overweave.contract.wire import HEAD, decode, encode
from overweave.errors import WireError
from overweave.language.headers import Header
from overweave.language.messages import RoutingMessage

EPOCH = SessionEpoch(1, 0)


class Preference(RoutingMessage, frozen=True):
    id: str
    rank: int
    header: Header = Header()


class Unregistered(RoutingMessage, frozen=True):
    id: str = "x"
    header: Header = Header()


register(
    "test-preference", Preference, lambda message: str(message.rank).encode(),
    lambda name, header, body: Preference(name, int(body), header),
)  # fmt: skip


def wire(message):
    return b"".join(encode(ControlFrame(EPOCH, EPOCH, 3, 0, message)))


def back(data):
    return decode(data[4], data[HEAD.size :]).message


def test_a_registered_message_comes_back_with_its_header():
    message = Preference("B7", 12, Header(source="B2", destinations=(1, 4)))
    assert back(wire(message)) == message


def test_an_unknown_codec_is_named():
    data = wire(Preference("B7", 12)).replace(b"test-preference", b"test-inference_")
    with pytest.raises(WireError, match="codec 'test-inference_'"):
        back(data)


def test_bodies_that_a_codec_does_not_accept_are_refused_by_its_name():
    data = wire(Preference("B7", 12))[:-2] + b"zz"
    with pytest.raises(WireError, match="codec 'test-preference'"):
        back(data)


@pytest.mark.parametrize("kept", range(1, 23))
def test_envelopes_that_are_cut_off_are_refused(kept):
    data = wire(Preference("B7", 12))
    end = data.index(b"test-preference") - 1 + kept
    with pytest.raises(WireError):
        back(data[:end])


def test_a_name_belongs_to_one_type_and_a_type_needs_a_codec():
    with pytest.raises(ValueError, match="Preference"):
        register("test-preference", Unregistered, lambda _: b"", lambda name, header, _: Unregistered(name, header))
    with pytest.raises(ValueError, match="1 to 255 bytes"):
        register("", Unregistered, lambda _: b"", lambda name, header, _: Unregistered(name, header))
    with pytest.raises(ValueError, match="Unregistered"):
        codec_of(Unregistered())
