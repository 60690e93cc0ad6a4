"""``aiokc perf``: how old records are when they arrive."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from ...output.columns import Column
from ...problems import quoted

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aiokc import RawRecord

    from ...context import Context
    from ...output.live import Live

HELP = (
    "Read what arrives in a topic, and show how old it is: now minus the record's timestamp. Both clocks count: "
    "that of what wrote the timestamp, and that of this machine."
)
EXAMPLES = (
    ("aiokc perf orders", "ten seconds"),
    ("aiokc perf orders --seconds 60 --percentiles 50,99,99.9 --json", "a minute, as JSON"),
)
_LOOK_MS = 500


def _percentiles(text: str) -> tuple[float, ...]:
    try:
        percentiles = tuple(float(part) for part in text.split(","))
    except ValueError:
        percentiles = ()
    if not percentiles or not all(0 < percent <= 100 for percent in percentiles):
        raise ArgumentTypeError(f"{quoted(text)}: write numbers up to 100, such as 50,95,99.9")
    return percentiles


def seconds(text: str) -> float:
    """Return a number of seconds, or what 1m and 500ms are in seconds, for argparse."""
    from ...options.times import duration_ms
    from ...problems import UsageProblem

    try:
        ms = duration_ms(text)
    except UsageProblem as problem:
        raise ArgumentTypeError(str(problem)) from problem
    if ms < 1:
        raise ArgumentTypeError(f"{quoted(text)} is too short")
    return ms / 1000


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("topic", metavar="TOPIC")
    parser.add_argument("--seconds", type=seconds, default=10.0, metavar="TIME", help="how long (10)")
    parser.add_argument(
        "--percentiles", type=_percentiles, default=(50.0, 95.0, 99.0), metavar="50,95,99", help="which ones"
    )
    parser.set_defaults(client_kind="reader")


async def run(context: Context) -> int:
    """Measure for some seconds, then show what was seen."""
    from aiokc import Consumer

    from ...output.live import Live
    from ...reading.ranges import chosen_partitions, ranges_of, topic_named
    from ...reading.window import Place, Window

    async with context.client() as client:
        topic = await topic_named(client, context.args.topic)
        ranges = await ranges_of(client, chosen_partitions(topic, None), Window(Place("end")))
    ages = Ages(context)
    is_live = context.terminal.is_terminal and context.out.format == "table"
    config = context.settings.reader_config()
    async with Consumer(config=config) as consumer:
        consumer.assign(ranges.spans)
        for tp, (_, end) in ranges.spans.items():
            consumer.seek(tp, end)
        with Live(context.system, context.terminal) if is_live else nullcontext() as view:
            await _measure(consumer, ages, context.args.seconds, view)
    ages.warn()
    if not is_live:
        ages.write()
    return 0


async def _measure(consumer: Any, ages: Ages, seconds: float, view: Live | None) -> None:
    from asyncio import get_running_loop

    loop = get_running_loop()
    end = shown_at = loop.time()
    end += seconds
    while (left := end - loop.time()) > 0:
        batch = await consumer.getmany(timeout_ms=min(_LOOK_MS, left * 1000))
        ages.take(record for records in batch.values() for record in records)
        if not batch:
            ages.trouble = consumer.health().last_error or ages.trouble
        if view is not None and loop.time() - shown_at >= _LOOK_MS / 1000:
            shown_at = loop.time()
            view.show(ages.drawn())
    if view is not None:
        view.show(ages.drawn())


class Ages:
    """The ages of records."""

    def __init__(self, context: Context) -> None:
        from ...reading.histogram import Histogram

        self._context = context
        self._histogram = Histogram()
        self.without_time = self.from_future = self.appended = 0
        self.trouble: Exception | None = None  # what was wrong while no record arrived
        self._percentiles: tuple[float, ...] = context.args.percentiles

    def take(self, records: Iterable[RawRecord]) -> None:
        """Count the ages of records that have just arrived."""
        from aiokc import LOG_APPEND_TIME

        now_ms = self._context.system.now() * 1000
        ages = []
        for record in records:
            if record.timestamp < 0:
                self.without_time += 1
                continue
            self.appended += record.timestamp_type == LOG_APPEND_TIME
            self.from_future += record.timestamp > now_ms + 1  # timestamps are in whole ms
            ages.append(now_ms - record.timestamp)
        self._histogram.add(ages)

    def _row(self) -> dict[str, Any]:
        seen = self._histogram
        row: dict[str, Any] = {"records": seen.count, "min_ms": _tenths(seen.least if seen.count else None)}
        row |= {f"p{percent:g}_ms": _tenths(seen.percentile(percent)) for percent in self._percentiles}
        return row | {"max_ms": _tenths(seen.greatest if seen.count else None)}

    def write(self) -> None:
        """Write what was seen."""
        row = self._row()
        if self._context.out.format == "table":
            self._context.out.lines(self.drawn())
        else:
            self._context.out.rows([Column(name, "number") for name in row], [tuple(row.values())])

    def drawn(self) -> list[str]:
        """Return what was seen as a table and a histogram."""
        from ...output.tables import drawn

        row, terminal = self._row(), self._context.terminal
        columns = [Column(name, "number" if name == "records" else "duration", _heading(name)) for name in row]
        bars = self._histogram.drawn(terminal.width)
        return [*drawn(columns, [tuple(row.values())], terminal), *([""] if bars else []), *bars]

    def warn(self) -> None:
        """Say what makes the ages mean something else than one might think."""
        warn = self._context.warn
        if self.trouble is not None:
            if not (self._histogram.count or self.without_time):
                self._context.fail("no record arrived", self.trouble)
                return
            warn(f"for a while no record arrived: {self.trouble}")
        if not self._histogram.count:
            warn("no record arrived, so there is nothing to measure")
        if self.appended:
            warn(
                f"{self.appended} records have LogAppendTime: their age begins when the broker wrote them, not when "
                "they were produced"
            )
        if self.from_future:
            warn(f"{self.from_future} records have a timestamp of the future, and count as 0 ms: the clocks differ")
        if self.without_time:
            warn(f"{self.without_time} records have no timestamp, and do not count")


def _tenths(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 1)


def _heading(name: str) -> str:
    return name.removesuffix("_ms").upper()
