"""Which offsets of which partitions to read: a window, a group's committed offsets, and what the logs hold."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from aiokc import EARLIEST, LATEST, OffsetAndTimestamp, TopicPartition
from aiokc.types import partition_count

from ..options.partitions import numbers_below
from ..problems import Problem, UsageProblem, nearest, quoted
from .window import Place, Window

if TYPE_CHECKING:
    from aiokc import Client
    from aiokc.admin import TopicDescription

    from ..context import Context

#: For each partition what its leader answers at each of the timestamps.
Found: TypeAlias = dict[TopicPartition, list[OffsetAndTimestamp | None]]

_LONGEST_NAME = 249


class Ranges(NamedTuple):
    """For each partition from where until where (exclusive) to read; ``ends`` are those of the logs at start.

    ``notes`` are what the person should know: offsets that the log does not hold any more.
    """

    spans: dict[TopicPartition, tuple[int, int]]
    ends: dict[TopicPartition, int]
    notes: list[str]

    @property
    def offsets(self) -> int:
        """How many offsets there are to read; of records there may be fewer."""
        return sum(until - start for start, until in self.spans.values())


async def topic_named(client: Client, name: str) -> TopicDescription:
    """Return the topic. Raises Problem (exit code 1) where there is none, with the nearest name.

    One broker's answer counts, unlike with list_topics(), which waits for a topic that may have just been created.
    """
    from aiokc.errors import ConfigError, KafkaError, UnknownTopic

    if len(name) > _LONGEST_NAME:  # the broker's answer would have all of it
        raise UsageProblem(f"{quoted(name)} is no topic: a name has {_LONGEST_NAME} characters at most")
    try:
        found = (await client.describe_topics([name]))[name]
    except ConfigError as error:
        raise UsageProblem(str(error)) from error
    if isinstance(found, UnknownTopic):
        names = [topic.name for topic in (await client.list_topics()).values() if not topic.is_internal]
        raise Problem(f"there is no topic {quoted(name)}{nearest(name, names)}", "'aiokc topics' lists them")
    if isinstance(found, KafkaError):
        raise found
    return found


def chosen_partitions(topic: TopicDescription, numbers: Iterable[int] | None) -> list[TopicPartition]:
    """Return the partitions of ``topic`` with these numbers (None: all). Raises Problem for one that it has not."""
    wanted = sorted(topic.partitions) if numbers is None else list(numbers)
    missing = [number for number in wanted if number not in topic.partitions]
    if missing:
        count = partition_count(topic.partitions)
        if missing[0] < count:
            raise Problem(f"topic {topic.name!r}: the broker has left out partition {missing[0]}", "try again")
        raise Problem(f"topic {topic.name!r} has no partition {missing[0]}: it has {numbers_below(count)}")
    return [TopicPartition(topic.name, number) for number in wanted]


async def ranges_of(
    client: Client,
    partitions: Iterable[TopicPartition],
    window: Window,
    group: str | None = None,
    *,
    follows: bool = False,
) -> Ranges:
    """Ask the cluster which offsets ``window`` means; with ``group`` the start is what that group has committed.

    ``follows``: what comes behind the ends will be read, too. A start may then be above the last stable offset, which
    is the end for readers of committed records: those in between were read before, or are not asked for.
    """
    wanted = list(partitions)
    first = await offsets_at(client, wanted, EARLIEST)
    ends = await offsets_at(client, wanted, LATEST)
    starts = await _placed(client, window.start, first, ends)
    untils = ends if window.end is None else await _placed(client, window.end, first, ends)
    notes: list[str] = []
    committed: dict[TopicPartition, int] = {}
    if group is not None:
        committed = {tp: at.offset for tp, at in (await client.committed(group, wanted)).items() if at is not None}
        notes += [
            f"{tp}: the group {quoted(group)} has committed nothing; reading from {starts[tp]}"
            for tp in wanted
            if tp not in committed
        ]
        starts |= committed
    log_ends = ends | await _log_ends(client, [tp for tp in wanted if starts[tp] > ends[tp]])
    notes += [
        f"{tp}: what the group has committed, {at}, is above the log's end, {log_ends[tp]}: the log was truncated, or "
        "the topic recreated"
        for tp, at in committed.items()
        if at > log_ends[tp]
    ]
    spans = {}
    for tp in wanted:
        if starts[tp] < first[tp]:
            notes.append(f"{tp}: offset {starts[tp]} is deleted; the log begins at {first[tp]}")
        start = min(max(starts[tp], first[tp]), (log_ends if follows else ends)[tp])
        spans[tp] = (start, max(start, min(untils[tp], ends[tp])))
    return Ranges(spans, ends, notes)


async def _log_ends(client: Client, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
    """Return where logs end: not the last stable offset, by which readers of committed records know the end."""
    asked = dict.fromkeys(partitions, LATEST)
    found = await client.list_offsets(asked, isolation_level="read_uncommitted") if asked else {}
    return {tp: end.offset for tp, end in found.items() if end is not None}


async def _placed(
    client: Client, place: Place, first: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    if place.kind == "time":
        return await offsets_at(client, ends, place.number, missing=ends)
    if place.kind == "offset":
        return dict.fromkeys(ends, place.number)
    if place.kind == "from end":
        return {tp: max(first[tp], end - place.number) for tp, end in ends.items()}
    return dict(first if place.kind == "beginning" else ends)


async def offsets_at(
    client: Client,
    partitions: Iterable[TopicPartition],
    timestamp: int,
    missing: Mapping[TopicPartition, int] | None = None,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition at ``timestamp``; where there is none, that of ``missing``."""
    asked = dict.fromkeys(partitions, timestamp)
    found = await client.list_offsets(asked) if asked else {}
    return {tp: found[tp].offset if found[tp] is not None else (missing or {})[tp] for tp in asked}  # type: ignore[union-attr]


async def offsets_by_leader(
    context: Context, client: Client, leaders: Mapping[TopicPartition, int], *timestamps: int
) -> Found:
    """Return what each leader answers for its partitions, without those of a leader that does not: that fails.

    One call for all leaders would have nothing to return where one of them hangs.
    """
    from aiokc.errors import KafkaError

    found: Found = {}
    errors: dict[int, KafkaError] = {}

    async def ask(node_id: int, partitions: list[TopicPartition]) -> None:
        try:
            answers = [await client.list_offsets(dict.fromkeys(partitions, timestamp)) for timestamp in timestamps]
        except KafkaError as error:
            errors[node_id] = error
        else:
            found.update((tp, [answer[tp] for answer in answers]) for tp in partitions)

    by_leader: dict[int, list[TopicPartition]] = {}
    for tp, node_id in leaders.items():
        by_leader.setdefault(node_id, []).append(tp)
    async with asyncio.TaskGroup() as tasks:
        for node_id, partitions in by_leader.items():
            tasks.create_task(ask(node_id, partitions))
    for node_id, error in sorted(errors.items()):
        context.fail(f"offsets on broker {node_id}", error)
    return found
