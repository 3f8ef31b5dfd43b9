"""Who comes in, and what they may say."""

import hashlib
import socket
import ssl
import threading

import pytest
import trustme

from overweave.batches.objects import Rows
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.contract.frames import (
    BarrierRequest,
    BatchFrame,
    ControlFrame,
    MigrationResult,
    Rejected,
    SessionEpoch,
    UrgentFrame,
)
from overweave.drivers.tcp.admission import check_frame
from overweave.drivers.tcp.certificates import common_name
from overweave.drivers.tcp.client_keys import claim_name
from overweave.drivers.tcp.lives import life_of
from overweave.drivers.tcp.security import ALL, Authenticator, Permissions, client_context, server_context
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.errors import InvalidInput, Refused
from overweave.language.generations import at_generation
from overweave.language.headers import Header, Priority
from overweave.language.messages import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.routing.messages import LinkState, StateSnapshot

EPOCH = SessionEpoch(1, 0)

STOCK, ANYTHING = parse_filter("[class,eq,'STOCK'],[x,>,0]"), parse_filter("[x,>,0]")
NEWS = parse_filter("[class,eq,'NEWS']")
TOKENS = f"""
[[client]]
name = "ticker"
token = "secret"
publish = ["STOCK"]
subscribe = ["*"]
[[client]]
name = "*"
token_sha256 = "{hashlib.sha256(b"guest").hexdigest()}"
subscribe = ["NEWS"]
[[broker]]
id = "B1"
token = "broker"
"""


def batch(*classes):
    return Rows(tuple(Publish(parse_publication(f"[class,'{each}']"), Header("p", i)) for i, each in enumerate(classes)))


@pytest.fixture
def gate(tmp_path):
    (tmp_path / "tokens").write_text(TOKENS)
    return Authenticator(SecuritySettings(tokens=tmp_path / "tokens"))


def test_tokens_are_good_for_their_name_and_role(gate):
    assert gate.admit("client", "ticker", "secret", None) == Permissions(("STOCK",), ("*",))
    assert gate.admit("client", "whoever", "guest", None) == Permissions((), ("NEWS",))
    assert gate.admit("broker", "B1", "broker", None) is ALL
    for role, name, token in (
        ("client", "ticker", "wrong"), ("client", "ticker", None), ("client", "other", "secret"), ("broker", "B2", "broker"),
        ("client", "B1", "broker"), ("broker", "ticker", "secret"), ("broker", "B1", "guest"), ("broker", "*", "guest"),
    ):  # fmt: skip
        with pytest.raises(Refused) as refused:
            gate.admit(role, name, token, None)
        assert refused.value.code == "unauthorized"
        assert token is None or repr(token) not in refused.value.text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ("[[clint]]", "clint: unknown key, the nearest known one is 'client'"),
        ("[[client]]\nname='a'", "client[0].token: expected either this or token_sha256, got none"),
        ("[[client]]\nname='a'\ntoken=''", "client[0].token: expected a text that is not empty"),
        ("[[broker]]\nid='a'\ntoken_sha256='12'", "broker[0].token_sha256: expected 64"),
        ("[[broker]]\ntoken='12'", "broker[0].id: expected a value"),
    ],
)
def test_a_wrong_file_of_tokens_is_named(tmp_path, content, text):
    (tmp_path / "tokens").write_text(content)
    with pytest.raises(InvalidInput) as refused:
        Authenticator(SecuritySettings(tokens=tmp_path / "tokens"))
    assert str(refused.value).startswith(f"{tmp_path / 'tokens'}: {text}")


def test_without_tokens_brokers_show_their_id_in_a_certificate_if_it_is_mutual():
    assert Authenticator(SecuritySettings()).admit("broker", "B1", None, None) is ALL
    gate = Authenticator(SecuritySettings(mutual=True))
    common, other = {"subject": ((("commonName", "B1"),),)}, {"subjectAltName": (("DNS", "B1"), ("IP Address", "B2"))}
    assert all(gate.admit("broker", "B1", None, each) is ALL for each in (common, other))
    for certificate in (common, other, None):
        with pytest.raises(Refused):
            gate.admit("broker", "B2", None, certificate)


def test_a_token_of_another_name_is_called_so(tmp_path):
    (tmp_path / "tokens.toml").write_text('[[client]]\nname = "ticker"\ntoken = "secret"\n')
    with pytest.raises(Refused, match="client 'reader': expected the name of this token, got another name"):
        Authenticator(SecuritySettings(tokens=tmp_path / "tokens.toml")).admit("client", "reader", "secret", None)


def test_the_holder_of_a_token_may_append_to_its_name(gate):
    """So several connections of one holder do not take each other's sessions over; nobody else may look like the holder."""
    assert gate.admit("client", "ticker~7f", "secret", None) == gate.admit("client", "ticker", "secret", None)
    assert gate.proves("ticker~7f")
    for name, token in (("ticker~7f", "guest"), ("ticker7f", "secret"), ("~ticker", "secret")):
        with pytest.raises(Refused, match="unauthorized"):
            gate.admit("client", name, token, None)
    assert gate.admit("client", "anybody~7f", "guest", None)
    assert not gate.proves("anybody~7f")


def test_a_name_with_a_table_of_its_own_is_for_its_token_alone(gate):
    with pytest.raises(Refused) as refused:
        gate.admit("client", "ticker", "guest", None)
    assert refused.value.code == "unauthorized"
    assert [gate.proves(name) for name in ("ticker", "whoever", "*")] == [True, False, False]
    assert gate.admit("client", "*", "guest", None) == Permissions((), ("NEWS",))
    assert not Authenticator(SecuritySettings()).proves("ticker")


def test_where_tls_is_mutual_clients_have_names_of_their_certificate(tmp_path):
    certificate = {"subject": ((("commonName", "ticker"),),), "subjectAltName": (("DNS", "quotes"), ("IP Address", "127.0.0.1"))}
    gate = Authenticator(SecuritySettings(mutual=True))
    for name in ("ticker", "quotes", "ticker~7f", "quotes~a~b"):
        assert gate.admit("client", name, None, certificate) is ALL
        assert gate.proves(name)
    for name in ("reader", "ticker7f", "~7f", "127.0.0.1", "client-7f"):
        with pytest.raises(Refused, match=r"expected a common name .* followed by '~' .*; found 'quotes', 'ticker' there"):
            gate.admit("client", name, None, certificate)
    with pytest.raises(Refused, match="found none there"):
        gate.admit("client", "ticker", None, None)
    (tmp_path / "tokens").write_text(TOKENS)
    both = Authenticator(SecuritySettings(mutual=True, tokens=tmp_path / "tokens"))
    assert both.admit("client", "ticker", "secret", certificate) == Permissions(("STOCK",), ("*",))
    assert both.admit("client", "ticker~7f", "guest", certificate) == Permissions((), ("NEWS",))
    assert both.admit("client", "ticker~7f", "secret", certificate) == Permissions(("STOCK",), ("*",))
    reader = {"subject": ((("commonName", "reader"),),)}
    for name, token, shown in (
        ("ticker", "secret", reader), ("ticker", "guest", certificate), ("whoever", "guest", certificate),
        ("reader", "secret", reader), ("ticker", None, certificate),
    ):  # fmt: skip
        with pytest.raises(Refused):
            both.admit("client", name, token, shown)
    with pytest.raises(Refused):
        both.admit("broker", "B1", "broker", reader)


@pytest.mark.parametrize("name", ["ticker", "straße", "x" * 64, None])
def test_the_common_name_of_a_file(tmp_path, name):
    made, file = trustme.CA().issue_cert("localhost", common_name=name), tmp_path / "certificate.pem"
    made.private_key_and_cert_chain_pem.write_to_path(str(file))
    assert common_name(file) == name
    data = file.read_bytes()
    for length in range(0, len(data), 97):  # whatever is cut off, it says a name or none
        file.write_bytes(data[:length] + b"\n-----END CERTIFICATE-----\n")
        assert common_name(file) in (name, None)
    assert common_name(tmp_path / "nowhere") is None


def test_keys_that_lost_a_name_do_not_get_it_back_while_it_is_in_use():
    one = claim_name(None, "c", "one", connected=False, proven=False)
    with pytest.raises(Refused, match="name-in-use"):
        claim_name(one, "c", "two", connected=True, proven=False)
    assert one.life == life_of("one")
    two = claim_name(one, "c", "two", connected=True, proven=True)
    assert (two is not one, two.life) == (True, life_of("two"))
    for connected in (True, False):
        with pytest.raises(Refused, match="session-taken-over"):
            claim_name(two, "c", "one", connected=connected, proven=True)
    # Without a key there is no session to resume, and no key that lost the name.
    none = claim_name(None, "d", None, connected=False, proven=False)
    again = claim_name(none, "d", None, connected=False, proven=False)
    assert (again is not none, again.lost, again.life) == (True, (), 0)
    with pytest.raises(Refused, match="name-in-use"):
        claim_name(none, "d", None, connected=True, proven=False)


def test_rights():
    rights = Permissions(("STOCK", "BOND"), ("NEWS",))
    assert [rights.allows_control(Advertise("a", each)) for each in (STOCK, NEWS, ANYTHING)] == [True, False, False]
    assert [rights.allows_control(Subscribe("s", each)) for each in (STOCK, NEWS, ANYTHING)] == [False, True, False]
    assert rights.allows_control(Unadvertise("a"))
    assert rights.allows_control(Unsubscribe("a"))
    assert rights.allows_publish(batch("STOCK", "BOND", "STOCK"))
    assert not rights.allows_publish(batch("STOCK", "NEWS"))
    assert not rights.allows_publish(Rows((Publish(parse_publication("[x,1]"), Header("p", 1)),)))
    assert not Permissions().allows_publish(batch("STOCK"))
    assert ALL.allows_publish(batch("STOCK", "NEWS"))
    assert ALL.allows_control(Subscribe("s", ANYTHING))


def test_nobody_publishes_in_the_name_of_a_module_without_control():
    status = parse_filter("[class,eq,'BROKER_STATUS'],[broker,eq,'B1']")
    everything = Permissions(("*",), ("*",))
    assert not everything.allows_publish(batch("STOCK", "BROKER_STATUS"))
    assert not everything.allows_control(Advertise("a", status))
    assert everything.allows_publish(batch("STOCK", "NEWS"))
    assert everything.allows_control(Advertise("a", ANYTHING))
    for permitted in (ALL, Permissions(("BROKER_STATUS",)), Permissions(("*",), control=True)):
        assert permitted.allows_publish(batch("BROKER_STATUS"))
        assert permitted.allows_control(Advertise("a", status))


@pytest.fixture
def made(tmp_path):
    """Settings with certificates of one authority."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    authority.issue_cert("127.0.0.1", common_name="B1").private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    return lambda **more: SecuritySettings(certificate=tmp_path / "both.pem", authorities=tmp_path / "ca.pem", **more)


def shake(server, client, host="127.0.0.1"):
    """What the server sees of the client's certificate, or the error of either."""
    one, other = socket.socketpair()
    seen = []

    def serve():
        try:
            with server.wrap_socket(one, server_side=True) as secured:
                seen.append(secured.getpeercert())
                secured.sendall(b"!")
        except OSError as error:
            seen.append(error)
            one.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(other, server_hostname=host) as secured:
            assert secured.recv(1) == b"!"
    finally:
        other.close()
        thread.join(10)
    return seen[0]


def test_tls(made):
    assert server_context(SecuritySettings()) is None
    assert not shake(server_context(made()), client_context(made()))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server_context(made()), client_context(SecuritySettings()))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake(server_context(made()), client_context(made()), host="127.0.0.2")


def test_mutual_tls(made):
    certificate = shake(server_context(made(mutual=True)), client_context(made(mutual=True)))
    assert Authenticator(made(mutual=True)).admit("broker", "B1", None, certificate) is ALL
    with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)):
        shake(server_context(made(mutual=True)), client_context(made()))


def test_a_certificate_without_its_key(made, tmp_path):
    trustme.CA().cert_pem.write_to_path(tmp_path / "both.pem")
    with pytest.raises(InvalidInput, match=r"security\.key: expected a PEM file, as .*both\.pem has no private key"):
        server_context(made())


def test_files_that_are_no_certificates(made, tmp_path):
    (tmp_path / "both.pem").write_text("nonsense")
    with pytest.raises(InvalidInput, match=r"security\.certificate: expected a PEM certificate and its key"):
        server_context(made())
    (tmp_path / "both.pem").unlink()
    with pytest.raises(InvalidInput, match=r"security\.certificate: expected a readable file"):
        server_context(made())


def test_a_generation_gives_no_right_to_an_id():
    mine, other = (Subscribe(at_generation(id, 2), parse_filter("[x,>,1]")) for id in ("c/s", "d/s"))
    rights = Permissions(("*",), ("*",))
    check_frame(ControlFrame(EPOCH, EPOCH, 0, 0, mine), "c", rights, 0, 10, 0)
    for message in (other, Unsubscribe(other.id)):
        with pytest.raises(Refused, match=r"bad-id: id 'd/s': expected one that begins with 'c/'"):
            check_frame(ControlFrame(EPOCH, EPOCH, 0, 0, message), "c", rights, 0, 10, 0)


def test_clients_cannot_reject_anything():
    frame = ControlFrame(EPOCH, EPOCH, 0, 0, Rejected("c/1", "code", "text"))
    with pytest.raises(Refused, match="bad-frame: expected a control message of a client"):
        check_frame(frame, "c", Permissions(("*",), ("*",)), 0, 10, 0)


@pytest.mark.parametrize(
    ("what", "most", "message"),
    [
        ("token", 512, lambda text: BarrierRequest(text, "B2")),
        ("broker", 255, lambda text: BarrierRequest("t", text)),
        ("token", 512, lambda text: MigrationResult(text)),
        ("error", 4096, lambda text: MigrationResult("t", text)),
    ],
)
def test_texts_in_messages_of_migrations_are_short(what, most, message):
    """Brokers add to a request for a barrier: a neighbour would refuse the longest of them, and the link again and again."""

    def check(text):
        check_frame(ControlFrame(EPOCH, EPOCH, 0, 0, message(text)), "c", Permissions((), ()), 0, 10, 0)

    check("ä" * (most // 2))
    with pytest.raises(Refused, match=rf"bad-frame: {what} of a migration: expected at most {most:,} bytes, got"):
        check("ä" * (most // 2 + 1))


def test_clients_cannot_use_the_urgent_lane():
    rows = Rows((Publish(parse_publication("[x,1]"), Header("c", 0, priority=Priority.URGENT)),))
    with pytest.raises(Refused, match="bad-frame: expected no urgent frame of a client"):
        check_frame(UrgentFrame(EPOCH, EPOCH, rows), "c", Permissions(("*",), ("*",)), 0, 10, 0)
    raw = RawRows(encode_rows(rows.publishes()), 1)
    with pytest.raises(Refused, match="bad-publication"):
        check_frame(BatchFrame(EPOCH, EPOCH, 0, 0, raw), "c", Permissions(("*",), ("*",)), 0, 10, 0)


@pytest.mark.parametrize("message", [LinkState("c/1", 0, 1, 1), StateSnapshot("c/1", ())])
def test_envelopes_of_routing_protocols_are_rejected_from_clients(message):
    frame = ControlFrame(EPOCH, EPOCH, 0, 0, message)
    with pytest.raises(Refused, match="bad-frame"):
        check_frame(frame, "c", Permissions(("*",), ("*",)), 0, 10, 0)
