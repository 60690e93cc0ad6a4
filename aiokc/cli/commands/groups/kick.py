"""``aiokc groups kick``: takes members out of a group, which frees the place of a static member."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ...output.columns import Column
from ...problems import Problem, UsageProblem
from .choosing import add_execute, described, exactly, show_results
from .command_lines import command_line, option_words
from .showing import assignment_text
from .undo import result_of

if TYPE_CHECKING:
    from aiokc.admin import GroupDescription, MemberDescription

    from ...context import Context

HELP = (
    "Take members out of a group. The group rebalances. A member that still runs joins again, so stop it "
    "first.\n\n"
    "A static member keeps its place, and its partitions, until its session times out: this frees them at "
    "once."
)
EXAMPLES = (
    ("aiokc groups kick billing --instance pod-3", "what would be done"),
    ("aiokc groups kick billing --instance pod-3 --execute", "free the place of the static member pod-3"),
)

COLUMNS = (
    Column("group"),
    Column("member"),
    Column("instance"),
    Column("host"),
    Column("client_id"),
    Column("assignment"),
    Column("result"),
)


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("group", metavar="GROUP")
    parser.add_argument("--member", action="append", default=[], metavar="ID", help="a member's id; may be repeated")
    parser.add_argument(
        "--instance", action="append", default=[], metavar="ID", help="a static member's group.instance.id"
    )
    parser.add_argument("--reason", default="", metavar="TEXT", help="for the coordinator's log")
    add_execute(parser)


async def run(context: Context) -> int:
    """Take members out of a group."""
    args = context.args
    if not args.member and not args.instance:
        raise UsageProblem(
            "which members? Give --member ID or --instance ID",
            f"{command_line(context, 'groups show', [exactly(args.group)], '--members')} lists them",
        )
    async with context.client() as client:
        groups = await described(client, [args.group], context.fail, named=[args.group])
        if args.group not in groups:
            return context.exit_code
        group = groups[args.group]
        members = _wanted(context, group)
        results: dict[str, object] = {}
        if args.execute and members:
            # A dynamic member has no instance, and a static one is only found by its own (KIP-345).
            results.update(
                await client.remove_members(
                    args.group,
                    [one.member_id for one in members if one.group_instance_id is None],
                    instances=[one.group_instance_id for one in members if one.group_instance_id is not None],
                    reason=args.reason,
                )
            )
        _tell(context, group, members, results)  # before the client stops, which Ctrl-C may end
    return context.exit_code


def _tell(
    context: Context, group: GroupDescription, members: Sequence[MemberDescription], results: Mapping[str, object]
) -> None:
    """Say what was done, or how to do it."""
    args = context.args
    rows = []
    for member in members:
        error = results.get(member.group_instance_id or member.member_id)
        if error is not None:
            context.fail(f"member {member.member_id} of group {group.group_id!r}", error)
        result = result_of(error, "removed") if args.execute else None
        rows.append(_row(group, member, result))
    show_results(context, COLUMNS, rows)
    if not args.execute and members:
        words = [word for name in args.member for word in option_words("--member", name)]
        words += [word for name in args.instance for word in option_words("--instance", name)]
        words += option_words("--reason", args.reason) if args.reason else []
        context.say("nothing was changed; to take them out of the group, run:")
        context.say(command_line(context, "groups kick", [args.group], *words, "--execute"))


def _wanted(context: Context, group: GroupDescription) -> list[MemberDescription]:
    """Return the members that are meant, each once; those that are not there have failed."""
    found: dict[str, MemberDescription] = {}
    for option, names, attribute in (
        ("--member", context.args.member, "member_id"),
        ("--instance", context.args.instance, "group_instance_id"),
    ):
        for name in names:
            those = [member for member in group.members if getattr(member, attribute) == name]
            if not those:
                context.fail(f"{option} {name}", f"group {group.group_id!r} has no such member")
            found.update({member.member_id: member for member in those})
    if not group.members:
        raise Problem(f"group {group.group_id!r} has no members")
    return list(found.values())


def _row(group: GroupDescription, member: MemberDescription, result: str | None) -> Sequence[str | None]:
    return (
        group.group_id,
        member.member_id,
        member.group_instance_id,
        member.host,
        member.client_id,
        assignment_text(member.assignment),
        result,
    )
