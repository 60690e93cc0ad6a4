"""The partition of a key: murmur2 as Java's producer has it, CRC-32 as librdkafka's. All partitions count, led or not.

A key must go to the same partition from every client that writes the topic, so these two functions are a format, not
an implementation: one bit of difference would scatter the records of a key.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias
from zlib import crc32

from ...config import ProducerConfig
from ...records.encoding.murmur2 import murmur2_partition

#: Returns the partition of a key among so many partitions; None: the key decides nothing, the choice is sticky.
KeyPartition: TypeAlias = Callable[[bytes | None, int], int | None]


def murmur2_random(key: bytes | None, count: int) -> int | None:
    """Java's choice. An empty key is a key; only None is none."""
    return None if key is None else murmur2_partition(key, count)


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
