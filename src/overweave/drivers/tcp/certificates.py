"""What certificates say of names: which they prove, and which a client takes that gives itself none."""

import re
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any

#: What follows the name in a certificate where several clients share it: ``NAME~ANYTHING``.
SEPARATOR = "~"
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)
_SEQUENCE, _SET, _OBJECT_ID, _VERSION = 0x30, 0x31, 0x06, 0xA0
_COMMON_NAME = bytes((0x55, 0x04, 0x03))
#: By the kind of text: UTF8String, PrintableString, T61String, IA5String, BMPString.
_ENCODINGS = {0x0C: "utf-8", 0x13: "ascii", 0x14: "latin-1", 0x16: "ascii", 0x1E: "utf-16-be"}


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
    return any(name == each or name.startswith(each + SEPARATOR) for each in names(certificate) if each)


def common_name(file: Path | str) -> str | None:
    """The common name in the first certificate of a PEM file; None when there is none that can be read."""
    try:
        pem = _PEM.search(Path(file).read_bytes())
        return None if pem is None else _common_name(ssl.PEM_cert_to_DER_cert(pem.group().decode("ascii")))
    except (OSError, ValueError, IndexError):
        return None  # whoever is to present it says what is wrong


def _common_name(der: bytes) -> str | None:
    """Of a certificate (RFC 5280, 4.1): its subject is the fifth after the version."""
    ((_, certificate),) = _values(der)
    fields = _values(_values(certificate)[0][1])
    subject = fields[5 if fields[0][0] == _VERSION else 4]
    for kind, part in _values(subject[1]):
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
