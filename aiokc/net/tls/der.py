"""What is read of DER without a parser of certificates: where an element ends, and until when one is valid."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Final, NamedTuple

_SEQUENCE: Final = 0x30
_VERSION: Final = 0xA0
_UTC_TIME: Final = 0x17
_GENERALIZED_TIME: Final = 0x18
_LENGTH_BYTES: Final = 4  # of a length: nothing that is read here is longer than 4 GiB


class Element(NamedTuple):
    """A tag, and where its content begins and ends."""

    tag: int
    start: int
    end: int


def element(data: bytes, at: int = 0) -> Element:
    """Return the element at ``at``. Raises ValueError if it is cut off, or no DER."""
    if at + 2 > len(data):
        raise ValueError("cut off")
    tag, length, start = data[at], data[at + 1], at + 2
    if length >= 0x80:
        size = length - 0x80
        if not 0 < size <= _LENGTH_BYTES or start + size > len(data):
            raise ValueError("not DER")
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    if start + length > len(data):
        raise ValueError("cut off")
    return Element(tag, start, start + length)


def parts(data: bytes, whole: Element) -> list[Element]:
    """Return the elements that a SEQUENCE or a SET holds. Raises ValueError."""
    found, at = list[Element](), whole.start
    while at < whole.end:
        found.append(element(data, at))
        at = found[-1].end
    return found


def is_whole_sequence(data: bytes) -> bool:
    """Whether ``data`` is one SEQUENCE, such as a certificate, and nothing behind it."""
    try:
        found = element(data)
    except ValueError:
        return False
    return found.tag == _SEQUENCE and found.end == len(data)


class Validity(NamedTuple):
    """From when until when a certificate is valid."""

    begin: datetime
    end: datetime


def validity(certificate: bytes) -> Validity:
    """Return the validity of a certificate in DER. Raises ValueError."""
    found = _fields(certificate)[3]
    begin, end = parts(certificate, found)
    return Validity(_time(certificate, begin), _time(certificate, end))


def issuer_and_subject(certificate: bytes) -> tuple[bytes, bytes]:
    """Return both names of a certificate in DER, not decoded: its issuer is the same bytes there as a subject.

    Raises ValueError.
    """
    fields = _fields(certificate)
    issuer, subject = (certificate[found.start : found.end] for found in (fields[2], fields[4]))
    return issuer, subject


def _fields(certificate: bytes) -> Sequence[Element]:
    """Return serial number, signature algorithm, issuer, validity, subject and what follows (RFC 5280, section 4.1)."""
    fields = parts(certificate, element(certificate, element(certificate).start))
    if fields and fields[0].tag == _VERSION:
        del fields[0]
    if len(fields) < 6:
        raise ValueError("no certificate")
    return fields


def _time(data: bytes, found: Element) -> datetime:
    text = data[found.start : found.end].decode("ascii")
    if found.tag == _UTC_TIME:  # two digits of the year: 50 is 1950, 49 is 2049
        text = ("19" if text[:2] >= "50" else "20") + text
    elif found.tag != _GENERALIZED_TIME:
        raise ValueError("not a time")
    return datetime.strptime(text, "%Y%m%d%H%M%SZ").replace(tzinfo=UTC)
