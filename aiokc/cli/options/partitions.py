"""Partitions as people write them: ``0,3-5``, ``orders:0,2-4``; and those of a topic, in words."""

from __future__ import annotations

from typing import NamedTuple

from ..problems import UsageProblem, quoted

_MOST = (1 << 31) - 1
_MANY = 1_000_000


class PartitionChoice(NamedTuple):
    """A topic, and its partitions (None: all of them)."""

    topic: str
    partitions: tuple[int, ...] | None


def partition_numbers(text: str) -> tuple[int, ...]:
    """Return the partitions that ``0,3-5`` means, ascending. Raises UsageProblem."""
    found: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isascii() and first.isdigit()) or (dash and not (last.isascii() and last.isdigit())):
            raise UsageProblem(f"{quoted(text)} names no partitions: write 0,3-5")
        low, high = (int(part[:10]) for part in (first, last or first))
        if max(len(first), len(last)) > 10 or high < low or high > _MOST or high - low > _MANY:
            raise UsageProblem(f"{quoted(text)} names no partitions: {quoted(part.strip())} is no range of partitions")
        found.update(range(low, high + 1))
    return tuple(sorted(found))


def topic_choice(text: str) -> PartitionChoice:
    """Return the topic and the partitions of ``T`` or ``T:0,2-4``. Raises UsageProblem."""
    topic, colon, partitions = text.partition(":")
    if not topic:
        raise UsageProblem(f"{quoted(text)} names no topic")
    return PartitionChoice(topic, partition_numbers(partitions) if colon else None)


def numbers_below(count: int) -> str:
    """Return the numbers of so many partitions in words."""
    return f"0 to {count - 1}" if count > 1 else "0 alone"
