"""How far groups are behind: what they have committed, where the logs begin and end, and how old the next record is."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias

import anyio

from ...admin import EARLIEST, LATEST, GroupDescription, Lag
from ...config import IsolationLevel
from ...core.admin.group_answers import Described, is_undescribed
from ...core.admin.offset_answers import Offsets
from ...errors import KafkaError, UsageError
from ...types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from .asking import Asking
from .coordinators import ask_coordinators
from .groups import describe_at, offsets_at
from .leaders import list_each, record_times

Committed: TypeAlias = dict[TopicPartition, OffsetAndMetadata | None]
Found: TypeAlias = Mapping[TopicPartition, OffsetAndTimestamp | KafkaError | None]
Ranges: TypeAlias = dict[TopicPartition, tuple[int, int]]
Known: TypeAlias = dict[str, dict[TopicPartition, Lag]]
Times: TypeAlias = Mapping[TopicPartition, int | KafkaError | None]
Lags: TypeAlias = dict[str, dict[TopicPartition, Lag] | KafkaError]


async def group_lag(
    asking: Asking, group_ids: Collection[str], isolation_level: IsolationLevel, *, with_time: bool
) -> Lags:
    facts = await _facts(asking.part(), group_ids)
    committed = {one: found for one, found in facts.items() if not isinstance(found, KafkaError)}
    items = sum(map(len, committed.values()))
    partitions = await asking.read(lambda: sorted({tp for of_group in committed.values() for tp in of_group}), items)
    starts, ends = await _bounds(asking.part() if with_time else asking, partitions, isolation_level)
    lags = await asking.read(lambda: _lags(committed, starts, ends), items)
    if with_time:
        lags = await _with_times(asking, lags, isolation_level, items)
    return {one: found if isinstance(found, KafkaError) else lags[one] for one, found in facts.items()}


async def _facts(asking: Asking, group_ids: Collection[str]) -> dict[str, Committed | KafkaError]:
    """Return what each group has committed, and None for what a member owns without a commit."""

    async def ask(node_id: int, groups: Sequence[str]) -> dict[str, Committed | KafkaError]:
        offsets = await offsets_at(asking, node_id, groups, stable=False)
        described = await describe_at(asking, node_id, groups)
        return await asking.read(lambda: _facts_of(groups, offsets, described), sum(map(_size, offsets.values())))

    return await ask_coordinators(asking, group_ids, ask)


def _facts_of(
    groups: Sequence[str], offsets: Mapping[str, Offsets | KafkaError], described: Described
) -> dict[str, Committed | KafkaError]:
    return {one: _fact(one, offsets[one], described[one]) for one in groups if one in offsets and one in described}


def _size(offsets: Offsets | KafkaError) -> int:
    return 1 if isinstance(offsets, KafkaError) else len(offsets)


def _fact(group_id: str, offsets: Offsets | KafkaError, group: GroupDescription | KafkaError) -> Committed | KafkaError:
    if isinstance(offsets, KafkaError):
        return offsets
    if isinstance(group, KafkaError):
        # A group that has offsets may be one that this client cannot describe.
        return dict(offsets) if offsets and is_undescribed(group) else group
    if group.type == "share":
        return UsageError(f"group {group_id!r} is a share group: those commit no offsets, so they have no lag")
    return {**dict.fromkeys(tp for member in group.members for tp in member.assignment), **offsets}


async def _bounds(
    asking: Asking, partitions: Collection[TopicPartition], isolation_level: IsolationLevel
) -> tuple[Found, Found]:
    found: dict[int, Found] = {}

    async def ask(timestamp: int) -> None:
        found[timestamp] = await list_each(asking, dict.fromkeys(partitions, timestamp), isolation_level)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask, EARLIEST)
        tasks.start_soon(ask, LATEST)
    return found[EARLIEST], found[LATEST]


def _lags(committed: Mapping[str, Committed], starts: Found, ends: Found) -> Known:
    return {
        one: {tp: _lag(of_group[tp], starts[tp], ends[tp]) for tp in sorted(of_group)}
        for one, of_group in committed.items()
    }


def _lag(
    committed: OffsetAndMetadata | None,
    start: OffsetAndTimestamp | KafkaError | None,
    end: OffsetAndTimestamp | KafkaError | None,
) -> Lag:
    errors = [one for one in (end, start) if isinstance(one, KafkaError)]
    return Lag(
        committed,
        start.offset if isinstance(start, OffsetAndTimestamp) else None,
        end.offset if isinstance(end, OffsetAndTimestamp) else None,
        error=errors[0] if errors else None,
    )


async def _with_times(asking: Asking, lags: Known, isolation_level: IsolationLevel, items: int) -> Known:
    """Add the timestamps. A Fetch has one offset of a partition: groups at others of its offsets have the next one."""
    unread = await asking.read(lambda: _all_unread(lags), items)
    rounds = await asking.read(lambda: _rounds(unread.values()), items)
    answers = [await record_times(asking, some, isolation_level) for some in rounds]
    return await asking.read(lambda: _all_timed(lags, unread, zip(rounds, answers, strict=True)), items)


def _all_unread(lags: Known) -> dict[str, Ranges]:
    return {
        group_id: {tp: reach for tp, lag in of_group.items() if (reach := _unread(lag)) is not None}
        for group_id, of_group in lags.items()
    }


def _rounds(wanted: Iterable[Ranges]) -> list[Ranges]:
    """Distribute all offsets to as few rounds as possible, in each of which a partition has one."""
    rounds: list[Ranges] = []
    counts: dict[TopicPartition, int] = {}  # a partition is in so many rounds, the first ones
    for tp, reach in {(tp, reach[0]): (tp, reach) for of_group in wanted for tp, reach in of_group.items()}.values():
        count = counts.get(tp, 0)
        if count == len(rounds):
            rounds.append({})
        rounds[count][tp] = reach
        counts[tp] = count + 1
    return rounds


def _all_timed(lags: Known, unread: Mapping[str, Ranges], answers: Iterable[tuple[Ranges, Times]]) -> Known:
    times = {(tp, some[tp][0]): time for some, found in answers for tp, time in found.items()}
    return {
        group_id: {
            tp: _timed(lag, times[tp, unread[group_id][tp][0]]) if tp in unread[group_id] else lag
            for tp, lag in of_group.items()
        }
        for group_id, of_group in lags.items()
    }


def _unread(lag: Lag) -> tuple[int, int] | None:
    """Return the offsets that the group has to read; None where there are none, or they are not known."""
    if lag.committed is None or lag.start is None or lag.end is None or not lag.lag:
        return None
    return max(lag.committed.offset, lag.start), lag.end


def _timed(lag: Lag, found: int | KafkaError | None) -> Lag:
    return replace(lag, error=found) if isinstance(found, KafkaError) else replace(lag, timestamp=found)
