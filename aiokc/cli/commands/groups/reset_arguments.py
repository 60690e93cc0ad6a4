"""The arguments of ``aiokc reset-offsets``: where a group is to read from, and which partitions are meant."""

from __future__ import annotations

import csv
import io
from argparse import ArgumentParser
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...options.partitions import topic_choice
from ...options.times import duration_ms, is_local, time_ms
from ...output.units import time_shown
from ...problems import UsageProblem, quoted
from .choosing import add_execute
from .command_lines import option_words

if TYPE_CHECKING:
    from aiokc import TopicPartition
    from aiokc.admin import ResetTarget

    from ...context import Context

_MOST_BYTES: Final = 64 << 20
_YEAR_2000_MS: Final = 946_684_800_000
_DAY_MS: Final = 86_400_000
_LIKE_SECONDS: Final = range(10**8, 10**10)  # from 1973 to 2286; as ms, the first months of 1970


def add_reset_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("topics", nargs="*", metavar="TOPIC[:0,2-4]", help="topics, or some of their partitions")
    parser.add_argument("--all-topics", action="store_true", help="all that the group has committed offsets for")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument(
        "--to",
        metavar="WHERE",
        help="earliest, latest, committed, an OFFSET, or a time: 2026-11-01T00:00:00+01:00, -2h, @MS since the epoch",
    )
    where.add_argument("--shift", metavar="N", help="N records on from what is committed, -N back")
    where.add_argument("--back", metavar="TIME", help="the records of the last 30m, 1h, 2d or PT1H")
    where.add_argument(
        "--like",
        metavar="GROUP",
        help="what another group has committed: all of it, or for TOPIC, or with --all-topics for this group's topics",
    )
    where.add_argument(
        "--from-file",
        metavar="FILE",
        help="CSV of topic, partition and offset, from --save or kafka-consumer-groups --export: all of it, or for "
        "TOPIC; - is stdin",
    )
    parser.add_argument("--save", metavar="FILE", help="write the plan as such a file, too")
    add_execute(parser)


def reset_options(context: Context) -> list[str]:
    """Return the options of this command line, without --save and --execute."""
    args = context.args
    words = ["--all-topics"] if args.all_topics else []
    for option in ("to", "shift", "back", "like", "from_file"):
        value = getattr(args, option)
        if value is not None:
            words += option_words("--" + option.replace("_", "-"), value)
    return words


async def target_of(context: Context) -> ResetTarget:
    """Return what the arguments mean. Raises UsageProblem."""
    from aiokc.admin import Back, LikeGroup, Shift

    args = context.args
    if args.to is not None:
        return _target_of_to(context, args.to)
    if args.shift is not None:
        return Shift(_whole("--shift", args.shift))
    if args.back is not None:
        return Back(duration_ms(args.back, "--back"))
    if args.like is not None:
        if args.like == args.group:
            raise UsageProblem(f"--like {args.like}: that is the group itself; --to committed keeps its offsets")
        return LikeGroup(args.like)
    return await _target_of_file(context)


def _target_of_to(context: Context, text: str) -> ResetTarget:
    from aiokc.admin import ToCommitted, ToEarliest, ToLatest, ToOffset, ToTime

    named: dict[str, ResetTarget] = {"earliest": ToEarliest(), "latest": ToLatest(), "committed": ToCommitted()}
    if text in named:
        return named[text]
    if text.isascii() and text.isdigit():
        return ToOffset(_offset(text, context.now_ms))
    if text.startswith("@"):
        return ToTime(_since_epoch(text))
    if text.isalpha():
        raise UsageProblem(f"--to {quoted(text)} is unknown: write earliest, latest, committed, an offset or a time")
    when = time_ms(text, context.now_ms, "--to")
    if is_local(text):
        context.say(f"{text} is in local time: {time_shown(when)}")
    if when > context.now_ms:
        context.warn(f"{time_shown(when)} has not come yet")
    return ToTime(when)


def _offset(text: str, now_ms: int) -> int:
    """Return the offset of --to. As a time it would skip all that is unread: other options take a number for one."""
    offset = _whole("--to", text)
    if _YEAR_2000_MS <= offset < now_ms + _DAY_MS:
        raise UsageProblem(
            f"--to {text} is an offset, and as ms since the epoch it would be {time_shown(offset)}",
            f"for the time write --to @{text}; --from-file takes any offset",
        )
    return offset


def _since_epoch(text: str) -> int:
    """Return the ms of @MS. Seconds would be a time in 1970: each log would be read again from its beginning."""
    ms = _whole("--to", text[1:])
    if ms in _LIKE_SECONDS:
        raise UsageProblem(
            f"--to {text} is {time_shown(ms)}: @ takes milliseconds", f"were seconds meant? Write --to @{ms}000"
        )
    return ms


def _whole(option: str, text: str) -> int:
    digits = text.strip().removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit()) or len(digits) > 19 or int(digits) >= 1 << 63:
        raise UsageProblem(f"{option} {quoted(text)} is no whole number of 64 bits")
    return int(text)


async def _target_of_file(context: Context) -> ResetTarget:
    from aiokc.admin import ToOffsets
    from aiokc.errors import ConfigError

    from ...producing.lines import content

    name = context.args.from_file
    try:
        data = await content(context.system.stdin, name, _MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise UsageProblem(f"--from-file {name} is longer than {_MOST_BYTES} bytes: is it a plan?")
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageProblem(f"--from-file {name}: {error}") from error
    try:
        target = ToOffsets.from_csv(_of_group(text, context.args.group))
    except ConfigError as error:
        raise UsageProblem(f"--from-file {name}: {error}") from error
    choices = [topic_choice(text) for text in context.args.topics]
    if choices:
        chosen = {tp: at for tp, at in target.offsets.items() if any(_is_of(tp, choice) for choice in choices)}
        target = ToOffsets(chosen)
    if not target.offsets:
        raise UsageProblem(f"--from-file {name}: there is no offset in it for what is to be reset")
    return target


def _of_group(text: str, group_id: str) -> str:
    """Return the rows of one group, without its name, where Kafka's tool has exported several groups."""
    try:
        rows = [row for row in csv.reader(io.StringIO(text, newline=""), strict=True) if row]
    except csv.Error:
        return text  # ToOffsets says which line is wrong
    if not rows or any(len(row) != 4 for row in rows):
        return text
    mine = [row[1:] for row in rows if row[0] == group_id]
    if not mine:
        groups = ", ".join(sorted({row[0] for row in rows})[:10])
        raise UsageProblem(f"--from-file: the file has no rows of group {quoted(group_id)}, but of {groups}")
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="\n").writerows(mine)
    return out.getvalue()


def _is_of(tp: TopicPartition, choice: tuple[str, Sequence[int] | None]) -> bool:
    topic, numbers = choice
    return tp.topic == topic and (numbers is None or tp.partition in numbers)
