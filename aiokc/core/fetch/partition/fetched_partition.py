"""The value that enters the fetch buffer: one partition's records or error; and the limits for opening batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ....errors import KafkaError
from ....types import TopicPartition


@dataclass(slots=True)
class FetchedPartition:
    """One partition's part of a Fetch response, asked for from ``offset`` on under ``token``.

    ``aborted``: the producer id and first offset of each aborted transaction. ``broker``: the node id of the sender.
    """

    tp: TopicPartition
    token: int
    offset: int
    records: memoryview
    aborted: Sequence[tuple[int, int]] | None = None
    error: KafkaError | None = None
    broker: int = -1


@dataclass(slots=True)
class Limits:
    """How batches are opened, by the options ``check_crcs`` and ``max_decompressed_batch_bytes``.

    ``unpacks_ahead``: a thread may unpack batches before they are needed (the option ``reader_thread``).
    """

    check_crcs: bool = True
    max_decompressed_bytes: int = 128 << 20
    unpacks_ahead: bool = False
