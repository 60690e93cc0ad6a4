"""``aiokc groups show``: groups in detail, with the columns of kafka-consumer-groups --describe."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from ...output.columns import Column
from .choosing import chosen, described, is_glob

if TYPE_CHECKING:
    from aiokc import Client, TopicPartition
    from aiokc.admin import BrokerDescription, GroupDescription, Lag

    from ...context import Context

HELP = (
    "Show groups: the offsets of each partition and the member that owns it, or the members, or the "
    "state.\n\n"
    "The columns are those of kafka-consumer-groups --describe, and LAG-TIME: the age of the record to "
    "read next."
)
EXAMPLES = (
    ("aiokc groups show billing", "partition by partition"),
    ("aiokc groups show billing --members", "who is in the group, on which host"),
    ("aiokc groups show billing --members --verbose", "... with racks, epochs and assignments"),
    ("aiokc groups show 'billing-*' --state", "coordinator, assignor and state of several groups"),
)

_OFFSETS = (
    Column("group"),
    Column("topic"),
    Column("partition", "number"),
    Column("leader_epoch", "number"),
    Column("current_offset", "number"),
    Column("log_end_offset", "number"),
    Column("lag", "number"),
    Column("lag_time_ms", "duration", "LAG-TIME"),
    Column("consumer_id"),
    Column("host"),
    Column("client_id"),
    Column("metadata"),
)
_MEMBERS = (
    Column("group"),
    Column("consumer_id"),
    Column("group_instance_id"),
    Column("host"),
    Column("client_id"),
    Column("partitions", "number", "#PARTITIONS"),
    Column("rack"),
    Column("current_epoch", "number"),
    Column("current_assignment"),
    Column("target_epoch", "number"),
    Column("target_assignment"),
    Column("upgraded"),
    Column("subscription"),
)
_STATE = (
    Column("group"),
    Column("type"),
    Column("coordinator", "text", "COORDINATOR (ID)"),
    Column("assignment_strategy"),
    Column("state"),
    Column("group_epoch", "number"),
    Column("target_assignment_epoch", "number"),
    Column("members", "number", "#MEMBERS"),
)
#: Columns that a table has with --verbose only. Scripts get all.
_VERBOSE = {
    *("leader_epoch", "metadata", "rack", "current_epoch", "current_assignment", "target_epoch", "target_assignment"),
    *("upgraded", "subscription", "group_epoch", "target_assignment_epoch"),
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("groups", nargs="+", metavar="GROUP", help="names, also with *, ? and [abc]")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--members", action="store_true", help="the members; with --verbose also what each one owns")
    what.add_argument("--state", action="store_true", help="coordinator, assignor, state")


async def run(context: Context) -> int:
    """Show groups."""
    args = context.args
    async with context.client() as client:
        named = [name for name in args.groups if not is_glob(name)]
        group_ids = await chosen(client, args.groups, context.fail)
        groups = await described(client, group_ids, context.fail, named=named)
        columns: Sequence[Column]
        rows: Sequence[Sequence[Any]]
        if args.members:
            columns, rows = _MEMBERS, [row for group in groups.values() for row in _member_rows(group)]
        elif args.state:
            brokers = {broker.node_id: broker for broker in (await client.describe_cluster()).brokers}
            columns, rows = _STATE, [_state_row(group, brokers) for group in groups.values()]
        else:
            columns, rows = _OFFSETS, await _offset_rows(context, client, groups)
    for group in groups.values():
        _say_about(context, group)
    columns, rows = _chosen_columns(context, columns, rows)
    if groups or not context.exit_code:
        context.out.rows(columns, rows, empty="nothing to show")
    return 0


def _say_about(context: Context, group: GroupDescription) -> None:
    """Say what Kafka's own tool says, too: that there are no members, or that they are changing."""
    if group.state == "Empty":
        context.say(f"group {group.group_id!r} has no active members")
    elif group.state not in ("Stable", "Dead"):
        context.say(f"group {group.group_id!r} is rebalancing ({group.state})")


def _chosen_columns(
    context: Context, columns: Sequence[Column], rows: Sequence[Sequence[Any]]
) -> tuple[Sequence[Column], Sequence[Sequence[Any]]]:
    if context.out.format != "table" or context.args.verbose:
        return columns, rows
    kept = [
        at
        for at, column in enumerate(columns)
        if column.name not in _VERBOSE and not (column.name == "group_instance_id" and not any(row[at] for row in rows))
    ]
    return [columns[at] for at in kept], [[row[at] for at in kept] for row in rows]


async def _offset_rows(context: Context, client: Client, groups: dict[str, GroupDescription]) -> list[Sequence[Any]]:
    from aiokc.errors import KafkaError

    from .lag import warn_of_ends

    rows: list[Sequence[Any]] = []
    lags = await client.group_lag(groups, with_time=True) if groups else {}
    for group_id, answer in sorted(lags.items()):
        if isinstance(answer, KafkaError):
            context.fail(f"the offsets of group {group_id!r}", answer)
            continue
        for tp, lag in sorted(answer.items()):
            if lag.error is not None:
                context.fail(f"group {group_id!r}, {tp}", lag.error)
            rows.append(_offset_row(groups[group_id], tp, lag, context.now_ms))
        warn_of_ends(group_id, answer, client.config.isolation_level, context.warn)
    return rows


def _offset_row(group: GroupDescription, tp: TopicPartition, lag: Lag, now_ms: int) -> Sequence[Any]:
    owner, committed = group.owner(tp), lag.committed
    return (
        group.group_id,
        tp.topic,
        tp.partition,
        None if committed is None else committed.leader_epoch,
        None if committed is None else committed.offset,
        lag.end,
        lag.lag,
        lag.age_ms(now_ms),
        *((None, None, None) if owner is None else (owner.member_id, owner.host, owner.client_id)),
        None if committed is None else committed.metadata,
    )


def _member_rows(group: GroupDescription) -> Iterator[Sequence[Any]]:
    for member in sorted(group.members, key=lambda member: member.member_id):
        yield (
            group.group_id,
            member.member_id,
            member.group_instance_id,
            member.host,
            member.client_id,
            len(member.assignment),
            member.rack,
            member.epoch,
            assignment_text(member.assignment),
            group.assignment_epoch,
            None if member.target is None else assignment_text(member.target),
            None if member.is_classic is None else str(not member.is_classic).lower(),
            member.subscription_pattern or ",".join(member.subscription),
        )


def assignment_text(partitions: Sequence[TopicPartition]) -> str | None:
    """Return partitions as Kafka's tool writes them, ``orders:0,1;returns:2``; None for none."""
    by_topic: dict[str, list[int]] = {}
    for tp in sorted(partitions):
        by_topic.setdefault(tp.topic, []).append(tp.partition)
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in by_topic.items()) or None


def _state_row(group: GroupDescription, brokers: dict[int, BrokerDescription]) -> Sequence[Any]:
    broker = brokers.get(group.coordinator)
    from aiokc.types import address_text

    address = "" if broker is None else f"{address_text(broker.host, broker.port)} "
    where = f"{address}({group.coordinator})"
    return (
        group.group_id,
        group.type,
        where,
        group.assignor or None,
        group.state,
        group.epoch,
        group.assignment_epoch,
        len(group.members),
    )
