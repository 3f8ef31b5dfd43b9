"""When certificates expire, against what the library `cryptography` reads; and what the log and the metrics say of it."""

import asyncio
import ssl
from datetime import UTC, datetime, timedelta

import pytest
import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.drivers.tcp.certificates import WARN_S, expires_at_s, expiries, warn_of_expiry
from overweave.drivers.tcp.metrics import _GAUGES
from overweave.drivers.tcp.settings import SecuritySettings
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, with_changes

KEY = ec.generate_private_key(ec.SECP256R1())
START = datetime(1970, 1, 2, tzinfo=UTC)
# Around 2050 the form of the time changes.
TIMES = st.datetimes(datetime(1970, 1, 3), datetime(2200, 1, 1)).map(lambda time: time.replace(microsecond=0, tzinfo=UTC))


def certificate(until, name="x"):
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(KEY.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(START).not_valid_after(until)
    return builder.sign(KEY, hashes.SHA256())


@settings(max_examples=30)
@given(TIMES, st.text("abc", min_size=1, max_size=60))
def test_the_end_of_the_validity_is_found(until, name):
    made = certificate(until, name)
    assert expires_at_s(made.public_bytes(Encoding.DER)) == made.not_valid_after_utc.timestamp()


@settings(max_examples=100)
@given(st.integers(0, 400), st.binary(max_size=4))
def test_what_is_no_certificate_is_a_value_error_or_a_time(at, put):
    der = certificate(datetime(2030, 1, 1, tzinfo=UTC)).public_bytes(Encoding.DER)
    try:
        expires_at_s(der[:at] + put + der[at + len(put) :])
    except ValueError:
        pass
    with pytest.raises(ValueError, match="expected a certificate in DER"):
        expires_at_s(der[:40])


class Log:
    def __init__(self):
        self.lines = []

    def warning(self, event, **fields):
        self.lines.append(("warning", event, fields["text"]))

    error = lambda self, event, **fields: self.lines.append(("error", event, fields["text"]))  # noqa: E731


def written(file, *untils):
    made = [certificate(until).public_bytes(Encoding.PEM).decode() for until in untils]
    file.write_text("# a comment\n" + "text between\n".join(made))
    return file


def test_certificates_that_expire_soon_or_have_are_told_of(tmp_path):
    now = datetime(2030, 6, 15, tzinfo=UTC)
    security = SecuritySettings(
        certificate=written(tmp_path / "c", now + timedelta(days=400), now + timedelta(days=12, hours=3)),
        authorities=written(tmp_path / "a", now - timedelta(days=1)),
    )
    log = Log()
    assert warn_of_expiry(security, now.timestamp(), log) == expiries(security)
    assert log.lines == [
        ("warning", "certificate-expires", "security.certificate: it expires on 2030-06-27, in 12 days"),
        ("error", "certificate-expired", "security.authorities: it expired on 2030-06-14"),
    ]
    log = Log()
    warn_of_expiry(security, now.timestamp() - WARN_S - 2 * 86_400, log)
    assert not log.lines
    (tmp_path / "c").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    assert warn_of_expiry(security, now.timestamp(), log) == {}
    assert log.lines[0][:2] == ("warning", "certificate-unreadable")


def test_a_broker_exports_when_its_certificates_expire(tmp_path):
    authority = trustme.CA()
    made = authority.issue_cert("127.0.0.1", not_after=datetime.now(UTC) + timedelta(days=3))
    made.private_key_and_cert_chain_pem.write_to_path(str(tmp_path / "c.pem"))
    authority.cert_pem.write_to_path(str(tmp_path / "a.pem"))
    security = SecuritySettings(certificate=tmp_path / "c.pem", authorities=tmp_path / "a.pem")

    async def work():
        async with running(with_changes(network_settings(Overlay(["B1"]), scheme="tls"), security=security)) as nodes:
            return nodes["B1"].gauges()

    gauges = asyncio.run(work())
    assert gauges.keys() <= _GAUGES.keys(), "a gauge has a help text"
    own = x509.load_pem_x509_certificate(made.cert_chain_pems[0].bytes())
    assert gauges["certificate_expires_at_s"] == own.not_valid_after_utc.timestamp()
    der = ssl.PEM_cert_to_DER_cert(authority.cert_pem.bytes().decode())
    assert gauges["authorities_expires_at_s"] == x509.load_der_x509_certificate(der).not_valid_after_utc.timestamp()
