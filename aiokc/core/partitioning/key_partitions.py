"""The partition of a key: murmur2 as Java's producer has it, CRC-32 as librdkafka's. All partitions count, led or not.

A key must go to the same partition from every client that writes the topic, so these two functions are a format, not
an implementation: one bit of difference would scatter the records of a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias
from zlib import crc32

from ... import native
from ...config import ProducerConfig

#: Returns the partition of a key among so many partitions; None: the key decides nothing, the choice is sticky.
KeyPartition: TypeAlias = Callable[[bytes | None, int], int | None]

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


def murmur2_random(key: bytes | None, count: int) -> int | None:
    """Java's choice (BuiltInPartitioner.partitionForKey). The sign bit is cleared: abs() would choose another one.

    An empty key is a key; only None is none.
    """
    return None if key is None else (murmur2(key) & 0x7FFF_FFFF) % count


def consistent_random(key: bytes | None, count: int) -> int | None:
    """librdkafka's default (rd_kafka_msg_partitioner_consistent_random): there, an empty key is as good as none."""
    return crc32(key) % count if key else None


def no_key(key: bytes | None, count: int) -> int | None:
    """The choice of ``partitioner_ignore_keys``: no key decides anything."""
    return None


def key_partition(config: ProducerConfig) -> KeyPartition:
    """Return how a key chooses a partition. With a Partitioner of the application none does, after that chose none."""
    if config.partitioner == "consistent_random":
        return consistent_random
    return murmur2_random if config.partitioner == "murmur2_random" and not config.partitioner_ignore_keys else no_key
