"""Certificates that expire: when, read from PEM files, for warnings at the start of a broker and for its metrics.

`ssl` tells of the certificates that a peer has shown, and not of one's own; so this walks the few fields of X.509 (RFC 5280,
4.1) that stand before the validity.
"""

import re
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.settings import SecuritySettings

#: Warn from so long before a certificate expires.
WARN_S = 30 * 86_400.0
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _UTC_TIME, _GENERALIZED_TIME, _VERSION = 0x30, 0x17, 0x18, 0xA0
#: Two digits of a year from here on are of the last century (RFC 5280, 4.1.2.5.1).
_CENTURY = 50


def expiries(security: SecuritySettings) -> dict[str, float]:
    """When the broker's certificate and its authorities expire, in seconds since 1970: the first of each file, by setting."""
    found = {}
    for name, file in (("certificate", security.certificate), ("authorities", security.authorities)):
        if file is not None:
            times_s = [expires_at_s(ssl.PEM_cert_to_DER_cert(pem)) for pem in _pems(file)]
            if times_s:
                found[name] = min(times_s)
    return found


def warn_of_expiry(security: SecuritySettings, now_s: float, log: Log) -> dict[str, float]:
    """What `expiries` finds; of certificates that are about to expire, or have expired, the log tells."""
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
    _, certificate, _ = _element(der)
    _, fields, _ = _element(certificate)  # what is signed
    tag, _, rest = _element(fields)
    if tag == _VERSION:
        _, _, rest = _element(rest)  # the serial number
    for _ in ("signature", "issuer"):
        _, _, rest = _element(rest)
    tag, validity, _ = _element(rest)
    if tag != _SEQUENCE:
        raise ValueError("expected a certificate's validity")
    _, _, rest = _element(validity)
    return _time_s(*_element(rest)[:2])


def _pems(file: Path) -> Iterator[str]:
    return (match[0] for match in _PEM.finditer(file.read_text(encoding="utf-8", errors="replace")))


def _element(data: bytes) -> tuple[int, bytes, bytes]:
    """Tag and content of the first element of some DER, and what follows it."""
    if len(data) < 2:
        raise ValueError("expected a certificate in DER, found its end")
    length, at = data[1], 2
    if length & 0x80:
        count = length & 0x7F
        length, at = int.from_bytes(data[2 : 2 + count], "big"), 2 + count
    if at + length > len(data):
        raise ValueError("expected a certificate in DER, found its end")
    return data[0], data[at : at + length], data[at + length :]


def _time_s(tag: int, content: bytes) -> float:
    text = content.decode("ascii")
    if tag == _UTC_TIME:
        text = ("19" if int(text[:2]) >= _CENTURY else "20") + text
    elif tag != _GENERALIZED_TIME:
        raise ValueError("expected a certificate's time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC).timestamp()
