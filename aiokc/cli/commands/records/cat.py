"""``aiokc cat``: the records of a topic, from the beginning to its end at start."""

from __future__ import annotations

from argparse import ArgumentParser
from contextlib import aclosing
from typing import TYPE_CHECKING

from .asking import FORMAT_HELP, add_reading, contents_of, format_of

if TYPE_CHECKING:
    from aiokc import Client
    from aiokc.admin import TopicDescription

    from ...context import Context
    from ...reading.contents import Contents
    from ...reading.printing import Printer
    from ...reading.ranges import Ranges

HELP = (
    "Write the records of a topic, from the beginning to the end that it has now. A pipe gets values, a line each. "
    "Partitions are read side by side; within each, records come in order."
)
EXAMPLES = (
    ("aiokc cat orders", "all records"),
    ("aiokc cat orders -o @-1h -J | jq .payload", "those of the last hour, in kcat's envelope"),
    ("aiokc cat orders -p 0 -o -5 -f '%o %k %s\\n'", "the last five offsets of partition 0"),
    ('aiokc cat orders --grep \'v:"status": ?"failed"\' --json', "those whose value matches"),
    ("aiokc cat orders -g billing -c 1", "what the group billing reads next"),
)
NOTES = FORMAT_HELP


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_reading(parser, start="beginning", ends="stop at the ends (always so)")


async def run(context: Context) -> int:
    """Write the records between two places."""
    return await write_window(context, "beginning")


async def write_window(context: Context, start: str) -> int:
    """Write what lies between ``start``, where -o does not say another place, and the end."""
    contents = contents_of(context)
    async with context.client() as client:
        topic, ranges, printer = await prepared(context, client, contents, start)
        await write_ranges(context, client, topic, ranges, contents, printer)
    tell_undecodable(context, contents)
    return 0


async def prepared(
    context: Context, client: Client, contents: Contents, start: str, *, follows: bool = False
) -> tuple[TopicDescription, Ranges, Printer]:
    """Return what to read, and what writes it, with everything that can be wrong with the arguments found.

    ``follows``: it will be read beyond the ends.
    """
    from ...options.partitions import partition_numbers
    from ...reading.filters import filter_of
    from ...reading.printing import Printer
    from ...reading.ranges import chosen_partitions, ranges_of, topic_named
    from ...reading.window import parse_window

    args = context.args
    window, notes = parse_window(args.offset or start, context.now_ms)
    numbers = None if args.partitions is None else partition_numbers(args.partitions)
    passes = filter_of(args.grep)
    format_of(context, contents, {})
    topic = await topic_named(client, args.topic)
    ranges = await ranges_of(client, chosen_partitions(topic, numbers), window, args.group, follows=follows)
    for note in [*notes, *ranges.notes]:
        context.say(note)
    leaders = {number: part.leader for number, part in topic.partitions.items()}
    return topic, ranges, Printer(context, format_of(context, contents, leaders), passes, args.count)


async def write_ranges(
    context: Context, client: Client, topic: TopicDescription, ranges: Ranges, contents: Contents, printer: Printer
) -> None:
    """Write the records of ``ranges``."""
    from ...output.progress import progress

    done = 0
    positions = {tp: start for tp, (start, _) in ranges.spans.items()}
    spans = {tp: span for tp, span in ranges.spans.items() if span[0] < span[1]}
    with progress(context.system, context.terminal, topic.name, ranges.offsets, quiet=context.args.quiet) as bar:
        async with aclosing(client.read(spans)) as parts:
            async for part in parts:
                found = await contents.prepare(printer.wanted(part.records))
                printer.take(found.ready)
                if found.problem is not None:
                    raise found.problem
                if context.terminal.is_terminal:
                    printer.flush()
                done += part.next_offset - positions[part.partition]
                positions[part.partition] = part.next_offset
                bar.reached(done)
                if printer.done:
                    break
    printer.flush()


def tell_undecodable(context: Context, contents: Contents) -> None:
    """Say how many keys and values are shown as hex, and why the first one is."""
    if contents.undecodable:
        context.warn(
            f"{contents.undecodable} keys or values could not be decoded, and are shown as hex; the first one: "
            f"{contents.first_problem}"
        )
