"""``aiokc offsets``: where the logs of a topic begin and end, or which offsets belong to a time."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, NamedTuple

from ...options.partitions import topic_choice
from ...output.columns import Column
from ...problems import Problem, UsageProblem, cut, quoted

if TYPE_CHECKING:
    from aiokc import Client, TopicPartition

    from ...context import Context

HELP = (
    "Show where the logs of topics begin and end; with --at the offset that belongs to a time or a place, and with "
    "T:P=N the record at an offset. -X isolation.level=read_committed ends at the last stable offset."
)
EXAMPLES = (
    ("aiokc offsets orders", "where each partition begins and ends"),
    ("aiokc offsets orders:0,2-4 --at -1h", "the first offsets of the last hour, of these partitions"),
    ("aiokc offsets orders --at 2026-11-01T00:00:00+01:00 --csv", "those of a time"),
    ("aiokc offsets orders --at max-timestamp", "the records with the highest timestamps"),
    ("aiokc offsets orders:0=42", "the time of the record at offset 42"),
)

EDGES = (Column("topic"), Column("partition", "number"), Column("earliest", "number"), Column("latest", "number"))
PLACES = (
    Column("topic"),
    Column("partition", "number"),
    Column("offset", "number"),
    Column("timestamp", "time"),
    Column("leader_epoch", "number"),
)
_AT_OFFSET = re.compile(r"(.+):([^:=]*)=(.*)", re.DOTALL)
_MOST_PARTITION, _MOST_OFFSET = (1 << 31) - 1, (1 << 63) - 1


class _Asked(NamedTuple):
    """A topic and its partitions (None: all); with ``offset`` the record there is meant."""

    topic: str
    partitions: tuple[int, ...] | None
    offset: int | None = None


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("topics", nargs="+", metavar="T[:0,2-4]|T:P=N", help="topics and partitions, or one offset")
    parser.add_argument(
        "--at",
        metavar="WHERE",
        help="earliest, latest, max-timestamp, earliest-local, latest-tiered, or a time: the first offset from then on",
    )


async def run(context: Context) -> int:
    """Show offsets."""
    from aiokc.errors import KafkaError

    asked = [_asked(text) for text in context.args.topics]
    at = context.args.at
    if at is not None and any(each.offset is not None for each in asked):
        raise UsageProblem("T:P=N names an offset, and --at another one: give one of them")
    if len({each.offset is None for each in asked}) > 1:
        raise UsageProblem("T:P=N shows records, and T shows where logs begin and end: give one kind of them")
    timestamp = None if at is None else _timestamp(context, at)
    async with context.client() as client:
        rows: list[tuple[Any, ...]] = []
        for each in asked:
            try:
                rows += await _rows(context, client, each, timestamp)
            except (Problem, KafkaError) as error:
                context.fail(cut(each.topic), error)
    context.out.rows(EDGES if at is None and asked[0].offset is None else PLACES, rows)
    return 0


def _asked(text: str) -> _Asked:
    if found := _AT_OFFSET.fullmatch(text):
        topic, partition, offset = found[1], _number(found[2], _MOST_PARTITION), _number(found[3], _MOST_OFFSET)
        if partition is None:
            raise UsageProblem(f"{quoted(text)}: T:P=N takes one partition, and {quoted(found[2])} is none")
        if offset is None:
            raise UsageProblem(
                f"{quoted(text)}: {quoted(found[3])} is no offset: write a number from 0 to {_MOST_OFFSET}"
            )
        return _Asked(topic, (partition,), offset)
    choice = topic_choice(text)
    return _Asked(choice.topic, choice.partitions)


def _number(text: str, most: int) -> int | None:
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(most)) or int(text) > most:
        return None
    return int(text)


def _timestamp(context: Context, at: str) -> int:
    """Return what ListOffsets takes for --at."""
    from aiokc.admin import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP

    from ...options.times import is_local, time_ms
    from ...output.units import time_shown

    specs = {
        "earliest": EARLIEST,
        "latest": LATEST,
        "max-timestamp": MAX_TIMESTAMP,
        "earliest-local": EARLIEST_LOCAL,
        "latest-tiered": LATEST_TIERED,
    }
    if at in specs:
        return specs[at]
    when = time_ms(at, context.now_ms, "--at")
    if is_local(at):
        context.say(f"{at} is taken as local time: {time_shown(when)}")
    return when


async def _rows(context: Context, client: Client, asked: _Asked, timestamp: int | None) -> list[tuple[Any, ...]]:
    from ...reading.ranges import chosen_partitions, topic_named

    topic = await topic_named(client, asked.topic)
    leaders: dict[TopicPartition, int] = {}
    for tp in chosen_partitions(topic, asked.partitions):
        leader = topic.partitions[tp.partition].leader
        if leader is None:
            context.fail(str(tp), "has no leader at the moment")
        else:
            leaders[tp] = leader
    if asked.offset is not None:
        return [await _record_at(client, tp, asked.offset) for tp in leaders]
    if timestamp is None:
        return await _edges(context, client, leaders)
    return await _places(context, client, leaders, timestamp)


async def _edges(context: Context, client: Client, leaders: dict[TopicPartition, int]) -> list[tuple[Any, ...]]:
    from aiokc import EARLIEST, LATEST

    from ...reading.ranges import offsets_by_leader

    found = await offsets_by_leader(context, client, leaders, EARLIEST, LATEST)
    return [(*tp, *(one and one.offset for one in found[tp])) for tp in leaders if tp in found]


async def _places(
    context: Context, client: Client, leaders: dict[TopicPartition, int], timestamp: int
) -> list[tuple[Any, ...]]:
    from ...reading.ranges import offsets_by_leader

    found = await offsets_by_leader(context, client, leaders, timestamp)
    rows: list[tuple[Any, ...]] = []
    for tp in leaders:
        place = found[tp][0] if tp in found else None
        if place is not None:
            rows.append((*tp, place.offset, None if place.timestamp < 0 else place.timestamp, place.leader_epoch))
        elif tp in found:
            rows.append((*tp, None, None, None))
    return rows


async def _record_at(client: Client, tp: TopicPartition, offset: int) -> tuple[Any, ...]:
    """Return offset, time and epoch of the first record at or behind ``offset``: compaction may have removed it."""
    from aiokc import EARLIEST, LATEST

    from ...reading.ranges import offsets_at

    first, end = (await offsets_at(client, [tp], EARLIEST))[tp], (await offsets_at(client, [tp], LATEST))[tp]
    if not first <= offset < end:
        raise Problem(f"{tp} has no offset {offset}: its log has those from {first} to before {end}")
    async with aclosing(client.read({tp: (offset, end)})) as parts:
        async for part in parts:
            for record in part.records:
                return (*tp, record.offset, record.timestamp if record.timestamp >= 0 else None, record.leader_epoch)
    raise Problem(f"{tp} has no record from offset {offset} on")
