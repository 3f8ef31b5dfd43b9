"""Certificates: the names they prove, the default name of a client, and their expiry.

`ssl` tells of the certificates that a peer has shown, and not of one's own; so this reads the few fields of X.509 (RFC 5280,
4.1) that are needed.
"""

import re
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.settings import SecuritySettings

#: What follows the name in a certificate where several clients share it: ``NAME~ANYTHING``.
SEPARATOR = "~"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SET, _VERSION, _UTC_TIME, _GENERALIZED_TIME = 0x31, 0xA0, 0x17, 0x18
_COMMON_NAME = bytes((0x55, 0x04, 0x03))
#: By the kind of text: UTF8String, PrintableString, T61String, IA5String, BMPString.
_ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}

#: Warn from so long before a certificate expires.
WARN_S = 30 * 86_400.0
#: Two digits of a year from here on are of the last century (RFC 5280, 4.1.2.5.1).
_CENTURY = 50


def names(certificate: Mapping[str, Any]) -> set[str]:
    """The common names and DNS names of a certificate, as `ssl.SSLObject.getpeercert` tells it."""
    found = {value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"}
    return found | {value for key, value in certificate.get("subjectAltName", ()) if key == "DNS"}


def proves(certificate: Mapping[str, Any], name: str) -> bool:
    """Whether a client may have a name by its certificate: one of the names there, or one of them with something after ``~``.

    >>> ticker = {"subject": ((("commonName", "ticker"),),)}
    >>> [proves(ticker, name) for name in ("ticker", "ticker~7f", "ticker2", "tick", "~7f")]
    [True, True, False, False, False]
    """
    return any(may_be_called(each, name) for each in names(certificate) if each)


def may_be_called(proven: str, name: str) -> bool:
    """Whether a client with a proven name may have another one: the same, or with something after ``~``."""
    return name == proven or name.startswith(proven + SEPARATOR)


def common_name(file: Path | str) -> str | None:
    """The common name in the first certificate of a PEM file; None when there is none that can be read."""
    try:
        der = next(_certificates(Path(file)), None)
        return None if der is None else _common_name(der)
    except (OSError, ValueError, IndexError):
        return None  # an error when it is presented


def expiries(security: SecuritySettings) -> dict[str, float]:
    """When the broker's certificate and its authorities expire, in seconds since 1970: the first of each file, by setting."""
    found = {}
    for name, file in (("certificate", security.certificate), ("authorities", security.authorities)):
        if file is not None:
            times_s = [expires_at_s(der) for der in _certificates(file)]
            if times_s:
                found[name] = min(times_s)
    return found


def warn_of_expiry(security: SecuritySettings, now_s: float, log: Log) -> dict[str, float]:
    """The expiry times of `expiries`; logs certificates that have expired or soon will."""
    try:
        found = expiries(security)
    except ValueError as error:
        log.warning("certificate-unreadable", text=str(error))
        return {}
    for name, at_s in found.items():
        file, day = getattr(security, name), datetime.fromtimestamp(at_s, UTC).date().isoformat()
        if at_s <= now_s:
            log.error("certificate-expired", file=file, text=f"security.{name}: it expired on {day}")
        elif at_s <= now_s + WARN_S:
            days = int((at_s - now_s) // 86_400)
            log.warning("certificate-expires", file=file, text=f"security.{name}: it expires on {day}, in {days} days")
    return found


def expires_at_s(der: bytes) -> float:
    """When a certificate in DER expires, in seconds since 1970; a ValueError when it is none."""
    try:
        _, (kind, time) = _values(_fields(der)[3][1])
    except (IndexError, ValueError):
        raise ValueError("expected a certificate in DER") from None
    return _time_s(kind, time)


def _certificates(file: Path) -> Iterator[bytes]:
    """The certificates of a PEM file, in DER."""
    return (ssl.PEM_cert_to_DER_cert(pem.group().decode("ascii")) for pem in _PEM.finditer(file.read_bytes()))


def _fields(der: bytes) -> list[tuple[int, bytes]]:
    """Of a certificate, after its version: serial number, signature, issuer, validity, subject and more."""
    ((_, certificate), *_) = _values(der)
    fields = _values(_values(certificate)[0][1])
    return fields[1:] if fields[0][0] == _VERSION else fields


def _common_name(der: bytes) -> str | None:
    for kind, part in _values(_fields(der)[4][1]):
        for attribute in _values(part) if kind == _SET else ():
            (_, object_id), (text_kind, text) = _values(attribute[1])
            if object_id == _COMMON_NAME and text_kind in _ENCODINGS:
                return text.decode(_ENCODINGS[text_kind])
    return None


def _values(data: bytes) -> list[tuple[int, bytes]]:
    """The values that lie one after the other in DER, each with its kind."""
    found, at = [], 0
    while at < len(data):
        kind, length, at = data[at], data[at + 1], at + 2
        if length >= 0x80:
            size = length & 0x7F
            length, at = int.from_bytes(data[at : at + size], "big"), at + size
        if at + length > len(data):
            raise ValueError("expected a value within its bytes")
        found.append((kind, data[at : at + length]))
        at += length
    return found


def _time_s(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("expected a certificate's time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
