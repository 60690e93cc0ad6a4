"""``aiokc groups``: the groups of a cluster."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Sequence
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from aiokc.admin.groups import GROUP_STATES, GROUP_TYPES

from ...output.columns import Column
from ...problems import UsageProblem, nearest, quoted
from .choosing import described, is_glob, listed

if TYPE_CHECKING:
    from aiokc import Client
    from aiokc.admin import GroupListing

    from ...context import Context

HELP = "List the groups that you may see, with their type, state, members and the sum of their lag."
EXAMPLES = (
    ("aiokc groups", "all groups"),
    ("aiokc groups --json", "... as JSON Lines"),
    ("aiokc groups 'billing-*' --state stable,empty", "some of them, by name and state"),
    ("aiokc groups --type consumer", "those of the new consumer protocol (KIP-848)"),
)

COLUMNS = (
    Column("group"),
    Column("type"),
    Column("state"),
    Column("protocol"),
    Column("members", "number"),
    Column("lag", "number"),
)
_WITH_LAG = ("", "classic", "consumer")
_AT_ONCE = 200  # groups whose members and lags are asked for together: answers stay of a size


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("globs", nargs="*", metavar="GLOB", help="names with *, ? and [abc]; all without any")
    parser.add_argument(
        "--state",
        action="append",
        default=[],
        metavar="STATE,…",
        help=f"one of {', '.join(map(str.lower, GROUP_STATES))}",
    )
    parser.add_argument(
        "--type", action="append", default=[], metavar="TYPE,…", help=f"one of {', '.join(GROUP_TYPES)}"
    )


async def run(context: Context) -> int:
    """List groups."""
    args = context.args
    states, types = _values("--state", args.state, GROUP_STATES), _values("--type", args.type, GROUP_TYPES)
    async with context.client() as client:
        groups = await listed(client, context.fail, states, types)
        if not (states or types or context.exit_code):  # else the brokers may not have listed it
            _tell_of_missing(context, args.globs, groups)
        if args.globs:
            groups = [group for group in groups if any(fnmatchcase(group.group_id, glob) for glob in args.globs)]
        rows = []
        for start in range(0, len(groups), _AT_ONCE):
            rows += await _rows(context, client, groups[start : start + _AT_ONCE])
    if rows or not context.exit_code:  # else what was said of groups that are not there says it all
        context.out.rows(COLUMNS, rows, empty="no such group" if args.globs or states or types else "no group")
    return 0


def _tell_of_missing(context: Context, globs: Sequence[str], groups: Sequence[GroupListing]) -> None:
    """A group that is named, and is not there, has failed; a pattern may match nothing."""
    known = {group.group_id for group in groups}
    for name in globs:
        if not is_glob(name) and name not in known:
            context.fail(f"group {quoted(name)}", f"there is no such group{nearest(name, known)}")


def _values(option: str, given: Sequence[str], known: Sequence[str]) -> list[str]:
    """Return the values of an option that takes several, by Kafka's names. Raises UsageProblem for an unknown one."""
    by_lower = {name.lower(): name for name in known}
    found = []
    for text in (part.strip() for texts in given for part in texts.split(",")):
        name = by_lower.get(text.lower().replace("_", "").replace("-", ""))
        if name is None:
            known_names = ", ".join(by_lower)
            raise UsageProblem(
                f"{option} {quoted(text)} is unknown{nearest(text.lower(), by_lower)}", f"known: {known_names}"
            )
        found.append(name)
    return found


async def _rows(
    context: Context, client: Client, groups: Sequence[GroupListing]
) -> list[tuple[str, str, str, str, int | None, int | None]]:
    from aiokc.errors import KafkaError

    from .lag import tell_of_errors, warn_of_ends

    describable = [group.group_id for group in groups if group.type != "streams"]
    descriptions = await described(client, describable, context.fail)
    with_lag = [group.group_id for group in groups if group.type in _WITH_LAG and group.group_id in descriptions]
    lags = await client.group_lag(with_lag) if with_lag else {}
    rows = []
    for group in groups:
        answer = lags.get(group.group_id)
        if isinstance(answer, KafkaError):
            context.fail(f"the lag of group {group.group_id!r}", answer)
            answer = None
        tell_of_errors(group.group_id, answer or {}, context.fail)  # of what is missing in the sum
        warn_of_ends(group.group_id, answer or {}, client.config.isolation_level, context.warn)
        known = [] if answer is None else [lag.lag for lag in answer.values() if lag.lag is not None]
        group_now = descriptions.get(group.group_id)
        rows.append(
            (
                group.group_id,
                group.type or (group_now.type if group_now is not None else ""),
                group.state or (group_now.state if group_now is not None else ""),
                group.protocol_type,
                None if group_now is None else len(group_now.members),
                sum(known) if known else None,
            )
        )
    return rows
