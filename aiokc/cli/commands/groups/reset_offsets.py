"""``aiokc reset-offsets``: where a group goes on reading, as a plan, and with --execute for good."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...options.partitions import topic_choice
from ...output.columns import Column
from ...problems import Problem, Refused, UsageProblem, nearest, quoted
from .choosing import active_sentence, does_exist
from .command_lines import command_line, option_words
from .reset_arguments import add_reset_arguments, reset_options, target_of
from .undo import may_be_done, result_of, save_offsets, say_undo

if TYPE_CHECKING:
    from aiokc import Client, TopicPartition
    from aiokc.admin import LikeGroup, ResetPlan, ResetRow, ResetTarget

    from ...context import Context

HELP = (
    "Let a group go on reading elsewhere. Without --execute this shows the plan, and changes nothing.\n\n"
    "The group must have no members: otherwise exit code 4, and they are named. Offsets outside of the "
    "log become its nearest end. With --execute the old offsets are saved to a file first, and the line "
    "that brings them back is told."
)
EXAMPLES = (
    ("aiokc reset-offsets billing orders --to earliest", "the plan for all partitions of a topic"),
    ("aiokc reset-offsets billing orders --to 2026-11-01T00:00:00+01:00 --execute", "from a time on"),
    ("aiokc reset-offsets billing --all-topics --back 1h", "the last hour again"),
    ("aiokc reset-offsets billing orders:0,2-4 --shift=-100", "100 records again, in some partitions"),
    ("aiokc reset-offsets billing --to committed --all-topics --save now.csv", "keep what is committed in a file"),
    ("aiokc reset-offsets copy --like billing --execute", "where another group is"),
)

COLUMNS = (
    Column("topic"),
    Column("partition", "number"),
    Column("committed", "number"),
    Column("new", "number"),
    Column("diff", "number"),
    Column("reason"),
    Column("result"),
)
add_arguments = add_reset_arguments


async def run(context: Context) -> int:
    """Plan a reset of offsets, or do it."""
    args = context.args
    _check_scope(context)
    target = await target_of(context)
    async with context.client() as client:
        plan = await _plan(context, client, target)
        if args.save is not None:
            _save(context, plan)
        refusal = await _refusal(client, args.group)
        if refusal is not None:
            _show(context, plan, None)
            raise Refused(f"{refusal}; nothing was changed", "stop the members first: their commits would undo it")
        if args.execute:
            await _execute(context, client, plan)
        else:
            _show(context, plan, None)
    for row in plan.rows:
        if row.new is None:
            context.fail(str(row.partition), row.reason.value)
    if not args.execute:
        _say_how_to_go_on(context, plan)
    return context.exit_code


def _check_scope(context: Context) -> None:
    """A reset of more than is meant is dear: all topics are reset only where the person says so."""
    args = context.args
    named_by_target = args.from_file is not None or args.like is not None
    if args.all_topics and args.topics:
        raise UsageProblem("give either topics or --all-topics")
    if args.all_topics and args.from_file is not None:
        raise UsageProblem("--from-file names the partitions itself: leave out --all-topics")
    if not args.topics and not args.all_topics and not named_by_target:
        raise UsageProblem("which topics? Name them, or give --all-topics")
    if args.save is not None and Path(args.save).is_file():
        raise UsageProblem(f"--save {args.save}: this file exists already; choose another name, or remove it")


async def _plan(context: Context, client: Client, target: ResetTarget) -> ResetPlan:
    from aiokc import TopicPartition
    from aiokc.admin import LikeGroup
    from aiokc.errors import UnknownTopic

    group_id = context.args.group
    if context.args.from_file is not None:  # the target has only the chosen partitions
        return await client.plan_reset(group_id, target)
    choices = [topic_choice(text) for text in context.args.topics]
    topics = [choice.topic for choice in choices if choice.partitions is None]
    partitions = [TopicPartition(topic, number) for topic, numbers in choices for number in numbers or ()]
    if isinstance(target, LikeGroup) and not choices:
        partitions = await _partitions_like(context, client, target)
    try:
        return await client.plan_reset(group_id, target, topics=topics or None, partitions=partitions or None)
    except UnknownTopic as error:
        raise await _unknown_topic(client, topics, error) from error


async def _partitions_like(context: Context, client: Client, target: LikeGroup) -> list[TopicPartition]:
    """Return the partitions of --like where no topic is named: those of the other group, or with --all-topics our own.

    Raises UsageProblem where there are none: a plan of no partitions would mean those of the other group.
    """
    args = context.args
    group_id = args.group if args.all_topics else target.group_id
    partitions = sorted(await client.group_offsets(group_id))
    if partitions:
        return partitions
    if args.all_topics:
        raise UsageProblem(
            f"--all-topics: group {quoted(group_id)} has committed nothing",
            f"leave it out to take all that {target.group_id} has committed",
        )
    raise UsageProblem(f"--like {group_id}: that group has committed nothing")


async def _unknown_topic(client: Client, topics: Sequence[str], error: Exception) -> Problem:
    names = await client.list_topics()
    missing = [name for name in topics if name not in names]
    if not missing:
        return Problem(str(error))
    return Problem(f"there is no topic {quoted(missing[0])}{nearest(missing[0], names)}", "'aiokc topics' lists them")


async def _refusal(client: Client, group_id: str) -> str | None:
    """Return why the group's offsets cannot be written now: its members. A group that does not exist is created."""
    from aiokc.errors import KafkaError

    answer = (await client.describe_groups([group_id]))[group_id]
    if isinstance(answer, KafkaError):
        if does_exist(answer):
            raise answer
        return None
    return active_sentence(answer) if answer.is_active else None


async def _execute(context: Context, client: Client, plan: ResetPlan) -> None:
    from aiokc.admin import GroupIsActive, PlanIsOutdated

    if not plan.new_offsets:
        _show(context, plan, {})
        context.say("nothing is to be changed")
        return
    saved = save_offsets(context, plan.group_id, plan.old_offsets)
    try:
        results: Mapping[TopicPartition, object] = await client.apply_reset(plan)
    except (GroupIsActive, PlanIsOutdated) as refused:
        if saved is not None:
            saved.unlink(missing_ok=True)  # nothing was changed that it would undo
        raise Refused(str(refused)) from refused
    except BaseException:  # some offsets may have been written before, and a cancelled call is one of these
        say_undo(context, plan.group_id, saved, plan.first_commits)
        raise
    _show(context, plan, results)
    for tp, error in sorted(results.items(), key=lambda item: item[0]):
        if error is not None:
            context.fail(str(tp), error)
    written = {tp for tp, error in results.items() if may_be_done(error)}
    if written:
        say_undo(context, plan.group_id, saved, plan.first_commits & written)
    elif saved is not None:
        saved.unlink(missing_ok=True)


def _save(context: Context, plan: ResetPlan) -> None:
    try:
        plan.save(context.args.save)
    except OSError as error:
        raise UsageProblem(f"--save {context.args.save}: {error}") from error


def _show(context: Context, plan: ResetPlan, results: Mapping[TopicPartition, object] | None) -> None:
    """Show the plan, and what became of it, if it was executed."""
    columns: Sequence[Column] = COLUMNS
    rows = [_cells(row, results) for row in plan.rows]
    if context.out.format == "table" and results is None:
        columns, rows = COLUMNS[:-1], [row[:-1] for row in rows]
    if context.out.format != "table":
        columns, rows = (Column("group"), *columns), [[plan.group_id, *row] for row in rows]
    context.out.rows(columns, rows, empty="the group has committed nothing that could be reset")


def _cells(row: ResetRow, results: Mapping[TopicPartition, object] | None) -> Sequence[Any]:
    result: str | None = None
    if results is not None and row.partition in results:
        result = result_of(results[row.partition], "written")
    tp = row.partition
    return [tp.topic, tp.partition, row.committed, row.new, row.diff, row.reason.value or None, result]


def _say_how_to_go_on(context: Context, plan: ResetPlan) -> None:
    args = context.args
    if not plan.new_offsets:
        context.say("nothing is to be changed")
        return
    names, options = [args.group, *args.topics], reset_options(context)
    if args.save is not None and Path(args.save).is_file():  # a time is the same later, and the offsets are, too
        names, options = [args.group], option_words("--from-file", args.save)
    context.say("nothing was changed; to do it, run:")
    context.say(command_line(context, "reset-offsets", names, *options, "--execute"))
