"""The type of partitioners: code of the application that chooses the partition of each record."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, TypeAlias


class Partitioner(Protocol):
    """A plain function that chooses the partition of a record which names none. It must be quick."""

    def __call__(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        partitions: Sequence[int],
        available: Sequence[int],
        /,
    ) -> int | None:
        """Return a partition's number, or None for the sticky choice, which fills one batch after the other.

        ``partitions`` are all of the topic, ``available`` those that have a leader now. For a number that the topic
        does not have (yet), send() asks for newer metadata until max_block_ms. For a negative one, and for an
        exception, it raises PartitioningFailed.
        """


#: Built-in partitioners, under librdkafka's names. "murmur2_random": by the key as Java's, without a key sticky;
#: "consistent_random": by the key as librdkafka's default (CRC-32), without a key, or with an empty one, sticky.
PartitionerName: TypeAlias = Literal["murmur2_random", "consistent_random"]
