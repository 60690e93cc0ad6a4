"""``aiokc topics``: the topics of a cluster."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from ...output.columns import Column
from ...problems import Problem, nearest, quoted
from ..groups.choosing import is_glob

if TYPE_CHECKING:
    from aiokc import Client, TopicInfo, TopicPartition

    from ...context import Context

HELP = (
    "List the topics that you may see. RECORDS counts offsets: a compacted topic, and one with transactions, has fewer "
    "records."
)
EXAMPLES = (
    ("aiokc topics", "all topics but Kafka's own"),
    ("aiokc topics 'order*' --json", "those whose name begins with order, as JSON Lines"),
    ("aiokc topics --sizes --configs", "with the bytes on all disks, and the settings that are no defaults"),
    ("aiokc topics --under-replicated", "those that a broker's loss would hurt"),
)

_BY_KAFKA = "aiokc creates, changes and deletes no topics: Kafka's own tools do (kafka-topics.sh)"
#: Words that are no argument of this command, and what to say of them.
NOT_HERE = dict.fromkeys(("create", "alter", "delete"), _BY_KAFKA)

COLUMNS = (
    Column("topic"),
    Column("partitions", "number"),
    Column("replicas", "number"),
    Column("records", "number"),
)
SIZE = Column("size", "bytes")
CONFIGS = Column("configs", "list")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("glob", nargs="?", metavar="GLOB", help="names, with *, ? and [abc]; all without it")
    parser.add_argument("--internal", action="store_true", help="with the topics that Kafka keeps for itself")
    parser.add_argument("--under-replicated", action="store_true", help="only those with a replica that is not in sync")
    parser.add_argument("--sizes", action="store_true", help="with the bytes on the disks of all replicas")
    parser.add_argument("--configs", action="store_true", help="with the settings that are not defaults")


async def run(context: Context) -> int:
    """List topics."""
    args = context.args
    columns = [*COLUMNS, *([SIZE] if args.sizes else []), *([CONFIGS] if args.configs else [])]
    async with context.client() as client:
        known = await client.list_topics()
        _check_name(args.glob, known)
        topics = [topic for topic in known.values() if _is_wanted(topic, args)]
        topics.sort(key=lambda topic: topic.name)
        records = await _records(context, client, topics)
        sizes = await _sizes(context, client) if args.sizes else {}
        configs = await _configs(context, client, topics) if args.configs else {}
    rows = []
    for topic in topics:
        row: list[Any] = [topic.name, len(topic.partitions), _replicas(topic), records[topic.name]]
        row += [sizes.get(topic.name)] if args.sizes else []
        row += [configs.get(topic.name)] if args.configs else []
        rows.append(row)
    context.out.rows(columns, rows, empty="no topics")
    return 0


def _check_name(glob: str | None, known: Mapping[str, TopicInfo]) -> None:
    """Raise Problem for the name of a topic that does not exist: no topic is what a pattern may match."""
    if glob is None or is_glob(glob) or glob in known:
        return
    names = [topic.name for topic in known.values() if not topic.is_internal]
    hint = NOT_HERE.get(glob, "'aiokc topics' lists them")
    raise Problem(f"there is no topic {quoted(glob)}{nearest(glob, names)}", hint)


def _is_wanted(topic: TopicInfo, args: Namespace) -> bool:
    if topic.is_internal and not args.internal and args.glob != topic.name:
        return False
    if args.under_replicated and not _is_under_replicated(topic):
        return False
    return args.glob is None or fnmatchcase(topic.name, args.glob)


def _is_under_replicated(topic: TopicInfo) -> bool:
    return any(len(part.in_sync_replicas) < len(part.replicas) for part in topic.partitions.values())


def _replicas(topic: TopicInfo) -> int:
    return max((len(part.replicas) for part in topic.partitions.values()), default=0)


async def _records(context: Context, client: Client, topics: list[TopicInfo]) -> dict[str, int | None]:
    """Return for each topic how many offsets its logs hold; None where a partition has no leader, or no answer."""
    from aiokc import EARLIEST, LATEST, TopicPartition

    from ...reading.ranges import offsets_by_leader

    led = [topic for topic in topics if all(part.leader is not None for part in topic.partitions.values())]
    leaders = {
        TopicPartition(topic.name, number): part.leader
        for topic in led
        for number, part in topic.partitions.items()
        if part.leader is not None
    }
    found = await offsets_by_leader(context, client, leaders, EARLIEST, LATEST)
    counts: dict[str, int | None] = {topic.name: None for topic in topics} | {topic.name: 0 for topic in led}
    for tp in leaders:
        count, (start, end) = counts[tp.topic], found.get(tp, (None, None))
        if count is None or start is None or end is None:
            counts[tp.topic] = None
        else:
            counts[tp.topic] = count + end.offset - start.offset
    return counts


async def _sizes(context: Context, client: Client) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for tp, size in (await sizes_of_partitions(context, client)).items():
        sizes[tp.topic] = sizes.get(tp.topic, 0) + size
    return sizes


async def sizes_of_partitions(context: Context, client: Client) -> dict[TopicPartition, int]:
    """Return the bytes of all replicas, without those in brokers and directories that do not tell: these fail."""
    from aiokc.admin import partition_sizes
    from aiokc.errors import KafkaError

    log_dirs = await client.log_dirs()
    for node_id, answer in log_dirs.items():
        if isinstance(answer, KafkaError):
            context.fail(f"sizes on broker {node_id}", answer)
            continue
        for log_dir in answer.values():
            if log_dir.error is not None:
                context.fail(f"sizes on broker {node_id}, {log_dir.path}", log_dir.error)
    return {tp: sum(by_broker.values()) for tp, by_broker in partition_sizes(log_dirs).items()}


async def _configs(context: Context, client: Client, topics: Iterable[TopicInfo]) -> dict[str, list[str]]:
    """Return the settings of each topic that were made for it."""
    from aiokc.admin import ConfigSource
    from aiokc.errors import KafkaError

    names = [topic.name for topic in topics]
    settings: dict[str, list[str]] = {}
    for name, answer in (await client.topic_configs(names)).items() if names else ():
        if isinstance(answer, KafkaError):
            context.fail(f"configs of {name}", answer)
        else:
            own = (entry for entry in answer.values() if entry.source is ConfigSource.DYNAMIC_TOPIC_CONFIG)
            settings[name] = sorted(f"{entry.name}={entry.value}" for entry in own)
    return settings
