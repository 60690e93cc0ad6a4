"""The header of an lz4 frame: its flags, and its checksum, which magic 0 has over the wrong bytes (KIP-57)."""

from __future__ import annotations

from typing import Final

MAGIC: Final = 0x184D2204
DICTIONARY_ID: Final = 0x01
CONTENT_CHECKSUM: Final = 0x04
CONTENT_SIZE: Final = 0x08
BLOCK_CHECKSUM: Final = 0x10
_DESCRIPTOR_AT: Final = 4


def with_right_checksum(frame: bytes) -> bytes:
    """Return the lz4 frame with the header checksum that the standard demands.

    The former checksum is not checked, as in Java. A frame that breaks off in its header is returned as it is.
    """
    if len(frame) < _DESCRIPTOR_AT + 2:
        return frame
    flags = frame[_DESCRIPTOR_AT]
    end = _DESCRIPTOR_AT + 2 + (8 if flags & CONTENT_SIZE else 0) + (4 if flags & DICTIONARY_ID else 0)
    checksum = _xxh32(frame[_DESCRIPTOR_AT:end]) >> 8 & 0xFF
    return frame[:end] + bytes((checksum,)) + frame[end + 1 :] if end < len(frame) else frame


def _xxh32(data: bytes) -> int:
    """Return the xxHash of fewer than 16 bytes: a frame's descriptor is never longer."""
    whole = len(data) & ~3
    number = 0x165667B1 + len(data)
    for at in range(0, whole, 4):
        number += int.from_bytes(data[at : at + 4], "little") * 0xC2B2AE3D
        number = _rotated(number, 17) * 0x27D4EB2F
    for byte in data[whole:]:
        number += byte * 0x165667B1
        number = _rotated(number, 11) * 0x9E3779B1
    number &= 0xFFFF_FFFF
    number = (number ^ number >> 15) * 0x85EBCA77 & 0xFFFF_FFFF
    number = (number ^ number >> 13) * 0xC2B2AE3D & 0xFFFF_FFFF
    return number ^ number >> 16


def _rotated(number: int, bits: int) -> int:
    number &= 0xFFFF_FFFF
    return (number << bits | number >> 32 - bits) & 0xFFFF_FFFF
