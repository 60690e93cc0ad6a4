"""MurmurHash2 with Java's seed: by it Java's producer, and all that agree with it, choose the partition of a key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ... import native

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_R: Final = 24
_32_BITS: Final = 0xFFFF_FFFF


def murmur2_in_python(data: bytes) -> int:
    """Return MurmurHash2 of the bytes, of 32 bits, with Java's seed; unsigned, where Java's is signed.

    Words are little-endian. The bytes of an incomplete last word are unsigned, as in Java with its ``& 0xff``.
    """
    size = len(data)
    whole = size & ~3
    h = _SEED ^ size
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _32_BITS
        k = (k ^ k >> _R) * _M & _32_BITS
        h = h * _M & _32_BITS ^ k
    if size > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * _M & _32_BITS
    h = (h ^ h >> 13) * _M & _32_BITS
    return h ^ h >> 15


murmur2: Final[Callable[[bytes], int]] = native.extension.murmur2 if native.NATIVE else murmur2_in_python


def murmur2_partition(key: bytes, count: int) -> int:
    """Return the partition of a key among so many (BuiltInPartitioner.partitionForKey).

    The sign bit is cleared: abs() would choose another one.
    """
    return (murmur2(key) & 0x7FFF_FFFF) % count
