"""``aiokc topics show``: one topic, partition by partition, or its settings."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import TYPE_CHECKING

from ...output.columns import Column

if TYPE_CHECKING:
    from aiokc import Client
    from aiokc.admin import TopicDescription

    from ...context import Context

HELP = "Show the leader, the replicas and the offsets of each partition of a topic."
EXAMPLES = (
    ("aiokc topics show orders", "its partitions"),
    ("aiokc topics show orders --configs", "its settings, and where each comes from"),
)

COLUMNS = (
    Column("partition", "number"),
    Column("leader", "number"),
    Column("replicas", "list"),
    Column("isr", "list"),
    Column("earliest", "number"),
    Column("latest", "number"),
)
SIZE = Column("size", "bytes")
CONFIG_COLUMNS = (Column("config"), Column("value"), Column("source"), Column("is_default", "flag", "DEFAULT"))


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--configs", action="store_true", help="its settings in the place of its partitions")
    parser.add_argument("--sizes", action="store_true", help="with the bytes on the disks of all replicas")


async def run(context: Context) -> int:
    """Show a topic."""
    from ...reading.ranges import topic_named

    async with context.client() as client:
        topic = await topic_named(client, context.args.topic)
        if context.args.configs:
            await _show_configs(context, client, topic.name)
        else:
            await _show_partitions(context, client, topic)
    return 0


async def _show_partitions(context: Context, client: Client, topic: TopicDescription) -> None:
    from aiokc import EARLIEST, LATEST, TopicPartition

    from ...reading.ranges import offsets_by_leader
    from .topics import sizes_of_partitions

    parts = sorted(topic.partitions.values())
    leaders = {TopicPartition(topic.name, part.partition): part.leader for part in parts if part.leader is not None}
    found = await offsets_by_leader(context, client, leaders, EARLIEST, LATEST)
    sizes = await sizes_of_partitions(context, client) if context.args.sizes else {}
    rows = []
    for part in parts:
        tp = TopicPartition(topic.name, part.partition)
        start, end = found.get(tp, (None, None))
        row = [part.partition, part.leader, part.replicas, part.in_sync_replicas]
        row += [start.offset if start else None, end.offset if end else None]
        rows.append([*row, sizes.get(tp)] if context.args.sizes else row)
    context.out.rows([*COLUMNS, SIZE] if context.args.sizes else COLUMNS, rows)


async def _show_configs(context: Context, client: Client, name: str) -> None:
    from aiokc.errors import KafkaError

    answer = (await client.topic_configs([name]))[name]
    if isinstance(answer, KafkaError):
        raise answer
    rows = [
        (entry.name, "***" if entry.is_sensitive else entry.value, entry.source.name, entry.is_default)
        for entry in sorted(answer.values(), key=lambda entry: entry.name)
    ]
    context.out.rows(CONFIG_COLUMNS, rows)
