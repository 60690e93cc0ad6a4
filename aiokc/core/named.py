"""Names partitions in errors and log lines: the first of them, and how many more there are."""

from __future__ import annotations

from collections.abc import Collection
from heapq import nsmallest
from typing import Final

from ..types import TopicPartition

_MOST: Final = 20


def named(partitions: Collection[TopicPartition], most: int = _MOST) -> str:
    """Return "a-0, a-1 and 4,998 more": the first ``most`` in order. A consumer may have thousands."""
    shown = ", ".join(map(str, nsmallest(most, partitions))) or "no partition"
    return f"{shown} and {len(partitions) - most:,} more" if len(partitions) > most else shown
