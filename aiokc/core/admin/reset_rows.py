"""Decides the rows of a reset plan: from the target, what is committed, and where the logs begin and end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ...admin import (
    EARLIEST,
    LATEST,
    Back,
    LikeGroup,
    ResetReason,
    ResetRow,
    ResetTarget,
    Shift,
    ToCommitted,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToOffsets,
    ToTime,
)
from ...types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition

_NO_REASON: Final = ResetReason.NONE

Found: TypeAlias = Mapping[TopicPartition, OffsetAndTimestamp | None]


@dataclass(frozen=True, slots=True)
class ResetFacts:
    """What a plan stands on.

    starts, ends  the first offset of each log, and the one behind its last record. Both lack the partitions that do
                  not exist
    committed     what the group has committed
    at_time       for ToTime and Back: the first offset at or after that time; None where there is none
    copied        for LikeGroup: what the other group has committed
    """

    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]
    committed: Mapping[TopicPartition, OffsetAndMetadata]
    at_time: Found = field(default_factory=dict)
    copied: Mapping[TopicPartition, OffsetAndMetadata] = field(default_factory=dict)


def time_of(target: ResetTarget, now_ms: int) -> int | None:
    """Return the timestamp to look up for a target; None where it needs none."""
    if isinstance(target, ToTime):
        return target.timestamp
    return max(0, now_ms - target.duration_ms) if isinstance(target, Back) else None


def bounds(partitions: Iterable[TopicPartition]) -> list[dict[TopicPartition, int]]:
    """Return what to ask ListOffsets for every plan: where each log begins, and where it ends."""
    wanted = list(partitions)
    return [dict.fromkeys(wanted, EARLIEST), dict.fromkeys(wanted, LATEST)]


def reset_rows(target: ResetTarget, partitions: Iterable[TopicPartition], facts: ResetFacts) -> tuple[ResetRow, ...]:
    """Return a row for each partition, in order."""
    return tuple(_row(target, tp, facts) for tp in sorted(set(partitions)))


def _row(target: ResetTarget, tp: TopicPartition, facts: ResetFacts) -> ResetRow:
    known = facts.committed.get(tp)
    committed = known.offset if known is not None else None
    if tp not in facts.starts or tp not in facts.ends:
        return ResetRow(tp, committed, None, ResetReason.NO_SUCH_PARTITION)
    wanted, reason = _wanted(target, tp, committed, facts)
    if wanted is None:
        return ResetRow(tp, committed, None, reason)
    new = min(max(wanted, facts.starts[tp]), facts.ends[tp])
    if reason is _NO_REASON and new != wanted:
        reason = ResetReason.CLAMPED
    elif reason is _NO_REASON and new == committed:
        reason = ResetReason.UNCHANGED
    return ResetRow(tp, committed, new, reason)


def _wanted(
    target: ResetTarget, tp: TopicPartition, committed: int | None, facts: ResetFacts
) -> tuple[int | None, ResetReason]:
    """Return the offset that the target means, before it is moved into the log; and the reason for one, or for none."""
    match target:
        case ToEarliest():
            return facts.starts[tp], _NO_REASON
        case ToLatest():
            return facts.ends[tp], _NO_REASON
        case ToTime() | Back():
            found = facts.at_time.get(tp)
            if found is None:
                return facts.ends[tp], ResetReason.NO_RECORD_THAT_YOUNG
            return found.offset, _NO_REASON
        case ToOffset(offset):
            return offset, _NO_REASON
        case ToCommitted():
            return (facts.ends[tp], ResetReason.NOTHING_COMMITTED) if committed is None else (committed, _NO_REASON)
        case Shift(offsets):
            return (None, ResetReason.NOTHING_COMMITTED) if committed is None else (committed + offsets, _NO_REASON)
        case LikeGroup():
            copied = facts.copied.get(tp)
            return (None, ResetReason.NOTHING_TO_COPY) if copied is None else (copied.offset, _NO_REASON)
        case ToOffsets(offsets):
            wanted = offsets.get(tp)
            return (None, ResetReason.NO_OFFSET_GIVEN) if wanted is None else (wanted, _NO_REASON)
