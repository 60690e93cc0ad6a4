"""``aiokc lag``: how far groups are behind."""

from __future__ import annotations

import re
from argparse import ArgumentParser
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ...exit_codes import DONE, FOUND
from ...lag.answers import lag_rows
from ...lag.limits import Limit, parse_limit, rows_above
from ...lag.rows import Grouping, LagRow, summed
from ...options.settings import BY_COMMAND
from ...options.times import duration_ms
from ...output.columns import Column
from ...output.units import duration_shown
from ...problems import UsageProblem, quoted
from .choosing import Fail, Warn, chosen, does_exist, found_and_missing, is_glob, tell_of_missing

if TYPE_CHECKING:
    from aiokc import Client, TopicPartition
    from aiokc.admin import Lag

    from ...context import Context

HELP = (
    "Show how far groups are behind, partition by partition: what they have committed against the end of "
    "the log.\n\n"
    'LAG-TIME is the age of the record to read next. LAG is "-" where the group has committed nothing.'
)
EXAMPLES = (
    ("aiokc lag billing", "one group"),
    ("aiokc lag 'billing-*' --watch", "several, again every two seconds, with rates"),
    ("aiokc lag --total", "one line for each group"),
    ("aiokc lag billing --fail-above 5m || page", "exit code 3 where a record waits longer than that"),
    ("aiokc lag billing --total --fail-above 10000 -q", "... or where more records wait, over all partitions"),
)

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]

_DEFAULT_INTERVAL = "2s"
_LEAST_MS, _MOST_MS = 100, 86_400_000
# What begins as a number is meant as a time, also a negative one or none at all: those are refused.
_IS_TIME = re.compile(r"-|[+.]?[0-9]|$")
_LOOK_MS = 5_000  # how long a look of --watch may take at least, unless --timeout says it

_WHERE = {
    "partition": (Column("topic"), Column("partition", "number")),
    "topic": (Column("topic"),),
    "member": (Column("member"),),
    "group": (),
}


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("groups", nargs="*", metavar="GROUP", help="names, also with *, ? and [abc]; all without any")
    parser.add_argument(
        "--watch", nargs="?", const=_DEFAULT_INTERVAL, metavar="TIME", help="look again every so often (2s), with rates"
    )
    sums = parser.add_mutually_exclusive_group()
    sums.add_argument("--total", action="store_true", help="one row for each group")
    sums.add_argument("--by", choices=("topic", "member"), help="one row for each topic or member of a group")
    parser.add_argument(
        "--fail-above",
        metavar="N|TIME",
        help="exit with 3 if a row has more lag than N records, or more LAG-TIME than TIME, such as 5m",
    )
    parser.add_argument(
        "--isolation",
        choices=("read_uncommitted", "read_committed"),
        metavar="LEVEL",
        help="read_uncommitted, or read_committed: up to the last stable offset",
    )


async def run(context: Context) -> int:
    """Show lag."""
    args = context.args
    limit = None if args.fail_above is None else parse_limit(args.fail_above)
    by: Grouping = "group" if args.total else args.by or "partition"
    interval_ms = _interval_ms(context)
    async with context.client(**_patience(context, interval_ms)) as client:
        question = Question(context, client, args.groups, args.isolation)
        if interval_ms is not None:
            from .lag_watch import watch

            return await watch(context, question, interval_seconds=interval_ms / 1000, by=by, limit=limit)
        rows = summed(await question.ask(context.fail, context.warn), by)
    columns = columns_of(by, context.out.format)
    if rows or not context.exit_code:  # else what was said of groups that are not there says it all
        context.out.rows(columns, (cells_of(row, columns) for row in rows), empty=nothing_of(args.groups))
    return check(context, rows, limit, question.uncommitted)


def nothing_of(groups: Sequence[str]) -> str:
    """What there is to say where no row is: these groups (none: all) have committed nothing."""
    return f"no offset is committed: {', '.join(map(quoted, groups))}" if groups else "no group has committed an offset"


def _interval_ms(context: Context) -> int | None:
    text = context.args.watch
    if text is None:
        return None
    if not _IS_TIME.match(text):  # ``--watch billing``: that is a group, and the interval was left out
        context.args.groups = [text, *context.args.groups]
        text = _DEFAULT_INTERVAL
    interval = duration_ms(text, "--watch")
    if not _LEAST_MS <= interval <= _MOST_MS:
        raise UsageProblem(f"--watch {text}: write a time between 100ms and 1d")
    return interval


def _patience(context: Context, interval_ms: int | None) -> dict[str, int]:
    """Return the option that bounds a look, unless somebody has set it: who watches wants to know soon of no answer."""
    is_set = context.settings.values["default_api_timeout_ms"].origin != BY_COMMAND
    return {} if interval_ms is None or is_set else {"default_api_timeout_ms": max(_LOOK_MS, 2 * interval_ms)}


class Question:
    """Asks the cluster how far the chosen groups are behind, again and again.

    ``uncommitted``: the groups without a row in the last answer: they own no partition, and have committed nothing that
    this principal may see.
    """

    def __init__(
        self, context: Context, client: Client, names: Sequence[str], isolation: IsolationLevel | None
    ) -> None:
        self._context, self._client, self._isolation = context, client, isolation
        self.names = names
        self.uncommitted: Sequence[str] = ()

    async def ask(self, fail: Fail, warn: Warn) -> list[LagRow]:
        """Return a row for each partition.

        Tells ``fail`` of groups that are not there, and of what is not known, and ``warn`` of a lag that is not true.
        """
        from aiokc.errors import KafkaError

        client = self._client
        isolation = self._isolation or client.config.isolation_level
        groups, missing = await found_and_missing(client, await chosen(client, self.names, fail), fail)
        named = {name for name in self.names if not is_glob(name)}
        missing = [group_id for group_id in missing if group_id in named]
        # Groups of Kafka Streams' own, which can't be described, have offsets all the same.
        asked = [*groups, *missing]
        lags = await client.group_lag(asked, isolation_level=isolation, with_time=True) if asked else {}
        unknown: list[str] = []
        rows: list[LagRow] = []
        self.uncommitted = [group_id for group_id, answer in sorted(lags.items()) if not answer]
        for group_id, answer in sorted(lags.items()):
            if isinstance(answer, KafkaError):
                if group_id in groups or does_exist(answer):
                    fail(f"group {group_id!r}", answer)
                else:
                    unknown.append(group_id)
            else:
                rows += lag_rows(group_id, groups.get(group_id), answer, self._context.now_ms)
                tell_of_errors(group_id, answer, fail)
                warn_of_ends(group_id, answer, isolation, warn)
        await tell_of_missing(client, unknown, fail, "which has committed nothing")
        return rows


def tell_of_errors(group_id: str, lags: Mapping[TopicPartition, Lag], fail: Fail) -> None:
    """Tell of each kind of error once, however many partitions have it: most errors name their partition."""
    found: dict[tuple[type, object], list[TopicPartition]] = {}
    for tp, lag in sorted(lags.items()):
        if lag.error is not None:
            found.setdefault((type(lag.error), getattr(lag.error, "code", None)), []).append(tp)
    for those in found.values():
        more = f" and {len(those) - 1} more" if len(those) > 1 else ""
        fail(f"group {group_id!r}, {those[0]}{more}", lags[those[0]].error)


def warn_of_ends(group_id: str, lags: Mapping[TopicPartition, Lag], isolation: IsolationLevel, warn: Warn) -> None:
    """Warn of partitions whose log ends below what the group has committed: their lag, 0, says that all is read.

    Of readers of committed records nothing is told: a group that reads all is ahead of them while a transaction is
    open.
    """
    above = [
        tp
        for tp, lag in sorted(lags.items())
        if lag.committed is not None and lag.end is not None and lag.committed.offset > lag.end
    ]
    if above and isolation == "read_uncommitted":
        more = f" and {len(above) - 1} more" if len(above) > 1 else ""
        # Without the offsets, which are in the rows: --watch tells once what stays as it is.
        warn(
            f"group {group_id!r}, {above[0]}{more}: what the group has committed is above the log's end: the log was "
            "truncated, or the topic recreated"
        )


def columns_of(by: Grouping, format: str) -> tuple[Column, ...]:
    """Return the columns of rows; scripts get more than fits a terminal."""
    counts = (Column("partitions", "number"), Column("unknown", "number")) if by != "partition" else ()
    offsets = (Column("committed", "number"), Column("end", "number")) if by == "partition" else ()
    lag = (Column("lag", "number"), Column("lag_time_ms", "duration", "LAG-TIME"))
    member = (Column("member"),) if by == "partition" else ()
    columns = (Column("group"), *_WHERE[by], *counts, *offsets, *lag, *member)
    if format == "table":
        return columns
    return (*columns, *((Column("member_id"),) if by in ("partition", "member") else ()), Column("error"))


_FIELDS = {"lag_time_ms": "lag_ms"}


def cells_of(row: LagRow, columns: Sequence[Column]) -> list[Any]:
    """Return the values of a row, column by column."""
    return [getattr(row, _FIELDS.get(column.name, column.name)) for column in columns]


def check(context: Context, rows: Sequence[LagRow], limit: Limit | None, uncommitted: Sequence[str]) -> int:
    """Return the exit code of --fail-above, and say on stderr what is above it, and what could not be checked.

    ``uncommitted`` are the groups without a row.
    """
    if limit is None:
        return DONE
    if uncommitted:
        context.warn(f"{_few(list(map(quoted, uncommitted)))}: no committed offset is seen, so nothing is checked")
    unknown = [row for row in rows if limit.cannot_tell(row)]
    if unknown:
        context.warn(f"{_named(unknown)}: not all of the lag is known, so not all is checked")
    above = rows_above(rows, limit)
    if not above:
        return DONE
    context.say(f"above {context.args.fail_above}: {_named(above, with_lag=True)}")
    return FOUND


def _named(rows: Sequence[LagRow], *, with_lag: bool = False) -> str:
    return _few([_name(row, with_lag=with_lag) for row in rows])


def _few(names: Sequence[str], most: int = 5) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def _name(row: LagRow, *, with_lag: bool) -> str:
    where = [row.group]
    if row.topic is not None:
        where.append(row.topic if row.partition is None else f"{row.topic}-{row.partition}")
    if row.partition is None and row.member is not None:
        where.append(row.member)
    name = " ".join(where)
    if not with_lag:
        return name
    age = "" if row.lag_ms is None else f", {duration_shown(row.lag_ms)}"
    return f"{name} ({row.lag} records{age})"
