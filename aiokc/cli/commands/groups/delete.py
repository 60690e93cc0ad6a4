"""``aiokc groups delete``: deletes groups, with all that they have committed."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ...output.columns import Column
from ...problems import Refused, quoted
from .choosing import active_groups, add_execute, chosen, described, exactly, is_glob, show_results
from .command_lines import command_line
from .undo import may_be_done, result_of, save_offsets, say_undo

if TYPE_CHECKING:
    from aiokc import Client, TopicPartition
    from aiokc.admin import GroupDescription

    from ...context import Context

HELP = (
    "Delete groups without members, and all that they have committed.\n\n"
    "Where one of the groups has members, none is deleted: exit code 4. What they had committed is saved "
    "to a file first, but only for topics that you may DESCRIBE: brokers show nothing of the others, and delete "
    "what was committed for them, too."
)
EXAMPLES = (
    ("aiokc groups delete old-billing", "what would be deleted"),
    ("aiokc groups delete 'test-*' --execute", "delete all groups of such a name"),
)

COLUMNS = (
    Column("group"),
    Column("type"),
    Column("state"),
    Column("partitions", "number"),
    Column("result"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("groups", nargs="+", metavar="GROUP", help="names, also with *, ? and [abc]")
    add_execute(parser)


async def run(context: Context) -> int:
    """Delete groups."""
    args = context.args
    async with context.client() as client:
        named = [name for name in args.groups if not is_glob(name)]
        group_ids = await chosen(client, args.groups, context.fail)
        groups = await described(client, group_ids, context.fail, named=named)
        active = active_groups(groups)
        if active:
            raise Refused("; ".join([*active, "nothing was deleted"]), "stop the members first")
        offsets = {group_id: await _offsets(client, group_id) for group_id in groups}
        results: Mapping[str, object] = {}
        saved: dict[str, Path | None] = {}
        if args.execute and groups:
            saved = {group_id: save_offsets(context, group_id, offsets[group_id]) for group_id in groups}
            results = await _delete(context, client, saved)
        _tell(context, groups, offsets, results, saved)  # before the client stops, which Ctrl-C may end
    return context.exit_code


def _tell(
    context: Context,
    groups: Mapping[str, GroupDescription],
    offsets: Mapping[str, Mapping[TopicPartition, int]],
    results: Mapping[str, object],
    saved: Mapping[str, Path | None],
) -> None:
    """Say what was done, and how to undo it; or how to do it."""
    args = context.args
    rows = []
    for group_id, group in groups.items():
        error = results.get(group_id)
        result = result_of(error, "deleted") if args.execute else None
        rows.append((group_id, group.type, group.state, len(offsets[group_id]), result))
    show_results(context, COLUMNS, rows)
    for group_id, error in results.items():
        if error is not None:
            context.fail(f"group {quoted(group_id)}", error)
        if may_be_done(error):
            say_undo(context, group_id, saved.get(group_id))
    if not args.execute and groups:
        context.say("nothing was changed; to delete them, run:")
        context.say(command_line(context, "groups delete", [*map(exactly, groups)], "--execute"))


async def _delete(context: Context, client: Client, saved: Mapping[str, Path | None]) -> Mapping[str, object]:
    """Delete these groups; return what became of each."""
    try:
        return await client.delete_groups(saved)
    except BaseException:  # some may have been deleted before, and a cancelled call is one of these
        for group_id, file in saved.items():
            say_undo(context, group_id, file)
        raise


async def _offsets(client: Client, group_id: str) -> dict[TopicPartition, int]:
    return {tp: committed.offset for tp, committed in (await client.group_offsets(group_id)).items()}
