"""``aiokc groups forget``: deletes what a group has committed for topics."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...options.partitions import PartitionChoice, topic_choice
from ...output.columns import Column
from ...problems import cut, quoted
from .choosing import add_execute, described, show_results
from .command_lines import command_line
from .undo import may_be_done, result_of, save_offsets, say_undo

if TYPE_CHECKING:
    from aiokc import TopicPartition

    from ...context import Context

HELP = (
    "Delete what a group has committed for topics, or for some of their partitions.\n\n"
    "The broker refuses it for a topic that a member subscribes to. What was committed is saved to a file "
    "first."
)
EXAMPLES = (
    ("aiokc groups forget billing old-orders", "what would be deleted"),
    ("aiokc groups forget billing orders:0,2-4 --execute", "delete the offsets of some partitions"),
)

COLUMNS = (
    Column("group"),
    Column("topic"),
    Column("partition", "number"),
    Column("committed", "number"),
    Column("result"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("topics", nargs="+", metavar="TOPIC[:0,2-4]", help="topics, or some of their partitions")
    add_execute(parser)


async def run(context: Context) -> int:
    """Delete committed offsets of topics."""
    args = context.args
    choices = [topic_choice(text) for text in args.topics]
    async with context.client() as client:
        await described(client, [args.group], context.fail, named=[args.group])
        if context.exit_code:
            return context.exit_code
        committed = {tp: at.offset for tp, at in (await client.group_offsets(args.group)).items()}
        wanted = _wanted(context, choices, committed)
        results: dict[TopicPartition, object] = {}
        saved = None
        if args.execute and wanted:
            saved = save_offsets(context, args.group, wanted)
            try:
                results.update(await client.delete_group_offsets(args.group, wanted))
            except BaseException:  # they may have been deleted before, and a cancelled call is one of these
                say_undo(context, args.group, saved)
                raise
        _tell(context, wanted, results, saved)  # before the client stops, which Ctrl-C may end
    return context.exit_code


def _tell(
    context: Context,
    wanted: Mapping[TopicPartition, int],
    results: Mapping[TopicPartition, object],
    saved: Path | None,
) -> None:
    """Say what was done, and how to undo it; or how to do it."""
    args = context.args
    rows = []
    for tp, offset in sorted(wanted.items()):
        error = results.get(tp)
        if error is not None:
            context.fail(f"group {quoted(args.group)}, {tp}", error)
        result = result_of(error, "deleted") if args.execute else None
        rows.append((args.group, tp.topic, tp.partition, offset, result))
    show_results(context, COLUMNS, rows)
    if any(_is_subscribed(error) for error in results.values()):
        context.say("a member of the group subscribes to the topic: stop the members first")
    if any(map(may_be_done, results.values())):
        say_undo(context, args.group, saved)
    elif not args.execute and wanted:
        context.say("nothing was changed; to delete these offsets, run:")
        context.say(command_line(context, "groups forget", [args.group, *args.topics], "--execute"))


def _is_subscribed(error: object) -> bool:
    from aiokc import ErrorCode
    from aiokc.errors import BrokerError

    return isinstance(error, BrokerError) and error.code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


def _wanted(
    context: Context, choices: list[PartitionChoice], committed: dict[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return what is committed for the chosen partitions; a choice without anything has failed."""
    wanted: dict[TopicPartition, int] = {}
    for text, (topic, numbers) in zip(context.args.topics, choices, strict=True):
        found = {
            tp: offset
            for tp, offset in committed.items()
            if tp.topic == topic and (numbers is None or tp.partition in numbers)
        }
        missing = [] if numbers is None else sorted(set(numbers) - {tp.partition for tp in found})
        if not found or missing:
            what = f"{topic}:{','.join(map(str, missing[:20]))}" if found else text
            context.fail(cut(what), f"group {quoted(context.args.group)} has committed nothing there")
        wanted |= found
    return wanted
