"""What a Fetch response brought of one partition, and how much of it may be opened."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ...errors import KafkaError
from ...types import TopicPartition


@dataclass(slots=True)
class FetchedPartition:
    """One partition's part of a Fetch response, asked from ``offset`` by the claim that ``token`` names."""

    tp: TopicPartition
    token: int
    offset: int
    records: memoryview
    aborted: Sequence[tuple[int, int]] | None = None
    error: KafkaError | None = None
    broker: int = -1


@dataclass(slots=True)
class Limits:
    """How batches are opened. ``check_crcs`` and ``max_decompressed_bytes`` are the consumer's options."""

    check_crcs: bool = True
    max_decompressed_bytes: int = 128 << 20
