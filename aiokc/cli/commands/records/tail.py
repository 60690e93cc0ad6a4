"""``aiokc tail``: the last records of a topic, and those that come."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .asking import FORMAT_HELP, add_reading, contents_of

if TYPE_CHECKING:
    from aiokc import RawRecord

    from ...context import Context
    from ...reading.contents import Contents
    from ...reading.printing import Printer
    from ...reading.ranges import Ranges

HELP = (
    "Write the last ten records of each partition, and then those that come, until Ctrl-C. It joins no group and "
    "commits nothing. Brokers that go away are waited for, and without -e a schema registry, too: stderr says so."
)
EXAMPLES = (
    ("aiokc tail orders", "the last ten of each partition, and what comes"),
    ("aiokc tail orders -o end -c 1", "the next record"),
    ("aiokc tail orders --grep '!k:^test' --headers", "with headers, without keys that begin with test"),
    ("aiokc tail orders -e -o -3 --json", "the last three of each partition, and no more"),
)
NOTES = FORMAT_HELP
_START = "-10"
_LOOK_MS = 1_000
_AGAIN_S = 1.0


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    add_reading(parser, start="-10", ends="stop at the ends that the partitions have now")
    parser.set_defaults(client_kind="reader")


async def run(context: Context) -> int:
    """Write the last records, and follow."""
    from ...reading.window import parse_window
    from .cat import prepared, tell_undecodable, write_window

    args = context.args
    window, _ = parse_window(args.offset or _START, context.now_ms)
    if args.exit_at_end or window.end is not None:
        return await write_window(context, _START)
    contents = contents_of(context)
    async with context.client() as client:
        _, ranges, printer = await prepared(context, client, contents, _START, follows=True)
    try:
        await _follow(context, ranges, contents, printer)
    finally:
        tell_undecodable(context, contents)
    return 0


async def _follow(context: Context, ranges: Ranges, contents: Contents, printer: Printer) -> None:
    """Write what the partitions have from the starts on, for ever."""
    from aiokc import Consumer

    # Where retention overtakes the reader, it must not skip records without a word.
    options = {} if "auto_offset_reset" in context.settings.values else {"auto_offset_reset": "none"}
    config = context.settings.reader_config(**options)
    trouble = _Trouble(context)
    async with Consumer(config=config) as consumer:
        consumer.assign(ranges.spans)
        for tp, (start, _) in ranges.spans.items():
            consumer.seek(tp, start)
        while not printer.done:
            batch = await consumer.getmany(timeout_ms=_LOOK_MS)
            for records in batch.values():
                await _write(context, printer.wanted(records), contents, printer)
            printer.flush()
            trouble.look(consumer.health().last_error, records=len(batch))


async def _write(context: Context, records: Iterable[RawRecord], contents: Contents, printer: Printer) -> None:
    """Write these records; a schema registry that does not answer is waited for, as brokers are.

    Raises Problem where it refuses, which does not end by itself.
    """
    said = ""
    while True:
        ready, problem, records = await contents.prepare(records)
        printer.take(ready)
        printer.flush()
        if problem is None:
            break
        if not problem.passes:
            raise problem
        if str(problem) != said:
            said = str(problem)
            context.warn(f"{said}; trying again until Ctrl-C")
        await asyncio.sleep(_AGAIN_S)
    if said:
        context.say("the schema registry answers again")


class _Trouble:
    """Says on stderr what is wrong, once, and that records arrive again."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._said = ""
        self._is_over = True

    def look(self, error: Exception | None, *, records: int) -> None:
        """Compare what is wrong now with what was said. A broker that is not needed any more stays in ``error``."""
        if not self._is_over and (error is None or records):
            self._is_over = True
            self._context.say("records arrive again" if records else "connected again")
        if error is None:
            self._said = ""
        elif not records and str(error) != self._said:
            self._said, self._is_over = str(error), False
            self._context.warn(f"{error}; trying again until Ctrl-C")
