"""Which groups a command means: names and globs on the command line become groups of the cluster."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import escape
from typing import TYPE_CHECKING, Any, TypeAlias

from ...problems import quoted

if TYPE_CHECKING:
    from aiokc import Client
    from aiokc.admin import GroupDescription, GroupListing
    from aiokc.errors import KafkaError

    from ...context import Context
    from ...output.columns import Column

#: Told of each item that failed, with the reason: Context.fail, or what a live view collects.
Fail: TypeAlias = Callable[[str, object], None]

#: Told of what is less than it seems: Context.warn, or what a live view collects.
Warn: TypeAlias = Callable[[str], None]

_GLOB = frozenset("*?[")
#: A share group keeps no offsets that a lag could be computed from, and a streams group can't be described.
_WITH_OFFSETS = ("", "classic", "consumer")
_DESCRIBED = (*_WITH_OFFSETS, "share")
_OF_CONSUMERS = ("", "consumer")
_MOST_NAMED = 20  # members of one group


def add_execute(parser: ArgumentParser) -> None:
    """Add --execute: without it, a command that changes something says what it would do."""
    parser.add_argument("--execute", action="store_true", help="do it; without this, say what would be done")


def show_results(context: Context, columns: Sequence[Column], rows: Sequence[Sequence[Any]]) -> None:
    """Show what was done. Where nothing was yet, a table is without its last column, the results."""
    if context.out.format == "table" and not context.args.execute:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    context.out.rows(columns, rows)


def is_glob(name: str) -> bool:
    """Whether ``name`` is a pattern, and not one group."""
    return not _GLOB.isdisjoint(name)


def exactly(group_id: str) -> str:
    """Return what to write for just this group where a command takes patterns, too."""
    return escape(group_id)


async def listed(
    client: Client, fail: Fail, states: Iterable[str] = (), types: Iterable[str] = ()
) -> list[GroupListing]:
    """Return the groups that the brokers list; tell ``fail`` of each broker that did not answer."""
    from aiokc.admin import PartialListing

    try:
        return await client.list_groups(states, types)
    except PartialListing as partial:
        for node_id, error in sorted(partial.errors.items()):
            fail(f"the groups of broker {node_id}", error)
        return list(partial.groups)


async def chosen(client: Client, names: Sequence[str], fail: Fail) -> list[str]:
    """Return the ids of the groups that ``names`` mean, in order: names as they are, globs by what the cluster lists.

    Without names they are all groups of consumers. A glob that means no group has failed.
    """
    found = {name for name in names if not is_glob(name)}
    globs = [name for name in names if is_glob(name)]
    if globs or not names:
        groups = [group for group in await listed(client, fail) if group.type in _WITH_OFFSETS]
        for glob in globs:
            matching = {group.group_id for group in groups if fnmatchcase(group.group_id, glob)}
            if not matching:
                fail(quoted(glob), "no group has such a name" + _as_a_name(glob, groups))
            found |= matching
        if not names:
            found |= {group.group_id for group in groups if group.protocol_type in _OF_CONSUMERS}
    return sorted(found)


def _as_a_name(glob: str, groups: Iterable[GroupListing]) -> str:
    """Return the end of a sentence about a pattern that means no group, where it is the name of one."""
    is_name = any(group.group_id == glob for group in groups)
    return f": it is read as a pattern; for the group of this name write {quoted(exactly(glob))}" if is_name else ""


async def described(
    client: Client, group_ids: Sequence[str], fail: Fail, *, named: Iterable[str] = ()
) -> dict[str, GroupDescription]:
    """Return the groups of these ids that exist; tell ``fail`` why there is no description of another one.

    A group that is gone has failed if it is one of ``named``: the person asked for just that one.
    """
    groups, missing = await found_and_missing(client, group_ids, fail)
    wanted = set(named)
    missing = [group_id for group_id in missing if group_id in wanted]
    await tell_of_missing(client, missing, fail, "of which only the lag can be told (aiokc lag)")
    return groups


async def found_and_missing(
    client: Client, group_ids: Sequence[str], fail: Fail
) -> tuple[dict[str, GroupDescription], list[str]]:
    """Return the groups of these ids that can be described, and the ids that the coordinators do not know.

    Those are no groups, or groups of another kind, such as Kafka Streams' own (KIP-1071). Tells ``fail`` of all others.
    """
    from aiokc.errors import KafkaError

    groups: dict[str, GroupDescription] = {}
    missing = []
    for group_id, answer in (await client.describe_groups(group_ids)).items() if group_ids else ():
        if not does_exist(answer):
            missing.append(group_id)
        elif isinstance(answer, KafkaError):
            fail(f"group {group_id!r}", answer)
        else:
            groups[group_id] = answer
    return groups, missing


async def tell_of_missing(client: Client, missing: Sequence[str], fail: Fail, flaw: str) -> None:
    """Tell ``fail`` of groups that the coordinators do not know: whether they are of another kind, or there are none.

    ``flaw``: what is wrong with a group of another kind.
    """
    kinds = {group.group_id: group.type for group in await listed(client, fail)} if missing else {}
    for group_id in missing:
        kind = kinds.get(group_id, "")
        is_other = bool(kind) and kind not in _DESCRIBED
        fail(f"group {quoted(group_id)}", f"this is a {kind} group, {flaw}" if is_other else "there is no such group")


def does_exist(answer: GroupDescription | KafkaError) -> bool:
    """Whether there is such a group, as far as the answer tells. To brokers before Kafka 4.0 another one is "Dead"."""
    from aiokc import ErrorCode
    from aiokc.errors import BrokerError, KafkaError

    if isinstance(answer, KafkaError):
        return not (isinstance(answer, BrokerError) and answer.code == ErrorCode.GROUP_ID_NOT_FOUND)
    return answer.state != "Dead" or bool(answer.members)


def active_groups(groups: Mapping[str, GroupDescription]) -> list[str]:
    """Return a sentence for each group with members, which names them with their hosts."""
    return [active_sentence(group) for group in groups.values() if group.is_active]


def active_sentence(group: GroupDescription) -> str:
    """Say that a group is active, and name the members that are to be stopped, with their hosts."""
    count = len(group.members)
    if not count:
        return f"group {group.group_id!r} is {group.state}: it is changing its members right now"
    more = f"; and {count - _MOST_NAMED} more" if count > _MOST_NAMED else ""
    members = "; ".join(map(str, group.members[:_MOST_NAMED])) + more
    return f"group {group.group_id!r} is {group.state}, with {count} {'member' if count == 1 else 'members'}: {members}"
