"""``aiokc lag --watch``: the same question again and again, as a live view or as lines."""

from __future__ import annotations

import asyncio
import shlex
import signal
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from ...lag.display import display_for
from ...lag.limits import Limit, rows_above
from ...lag.rates import LagHistory, Rates
from ...lag.rows import Grouping, LagRow, summed, total
from ...lag.watch_screen import WatchState, eta_text, screen
from ...output.columns import Column
from ...output.units import duration_shown
from .choosing import Fail, Warn
from .lag import cells_of, check, columns_of, nothing_of

if TYPE_CHECKING:
    from ...context import Context

_TOTALS_KEPT = 500  # wider than the line that shows them


class Asks(Protocol):
    """What is asked again and again: the rows of all partitions, and which groups have none.

    Problems are told to ``fail``.
    """

    names: Sequence[str]
    uncommitted: Sequence[str]

    def ask(self, fail: Fail, warn: Warn, /) -> Awaitable[list[LagRow]]: ...


async def watch(context: Context, question: Asks, *, interval_seconds: float, by: Grouping, limit: Limit | None) -> int:
    """Ask every ``interval_seconds`` until Ctrl-C, or until a row is above ``limit``: then it returns FOUND."""
    watched = Watched(context, question, interval_seconds, by, limit)
    if context.out.format == "table" and context.terminal.is_terminal and not _is_dumb(context):
        return await _live(context, watched)
    return await _in_lines(context, watched)


def _is_dumb(context: Context) -> bool:
    return context.system.environ.get("TERM") == "dumb"


class Watched:
    """What was seen so far: the rows of the last answer, rates over the last answers, and why there is no newer one."""

    def __init__(
        self, context: Context, question: Asks, interval_seconds: float, by: Grouping, limit: Limit | None
    ) -> None:
        self._context, self._question = context, question
        self.interval_seconds, self.limit, self.by = interval_seconds, limit, by
        self.rows: list[LagRow] = []
        self.asked_at_ms: int | None = None
        self.problem: str | None = None
        self._history, self._total_history = LagHistory(), LagHistory()
        self._totals: deque[int] = deque(maxlen=_TOTALS_KEPT)
        self._total: LagRow | None = None

    async def look(self) -> bool:
        """Ask once; return whether there was an answer. Without one, the rows stay, and ``problem`` says why."""
        from aiokc.errors import KafkaError

        failures: list[str] = []
        loop = asyncio.get_running_loop()
        try:
            partitions = await self._question.ask(
                lambda item, error: failures.append(f"{item}: {error}"), failures.append
            )
        except (KafkaError, OSError) as error:
            self.problem = self._without_answer(error)
            return False
        self.problem = _first_of(failures)
        self.asked_at_ms = self._context.now_ms
        self.rows = summed(partitions, self.by)
        self._history.add(loop.time(), self.rows)
        self._total = total(partitions)
        self._total_history.add(loop.time(), [] if self._total is None else [self._total])
        if self._total is not None and self._total.lag is not None:
            self._totals.append(self._total.lag)
        return True

    def _without_answer(self, error: Exception) -> str:
        if self.asked_at_ms is None:
            return f"no answer yet: {error}"
        return f"no answer for {duration_shown(self._context.now_ms - self.asked_at_ms)}: {error}"

    def rates(self, row: LagRow) -> Rates:
        """Return the rates of one of ``rows``."""
        return self._history.rates(row)

    @property
    def uncommitted(self) -> Sequence[str]:
        """The groups of the last answer that have no rows."""
        return self._question.uncommitted

    def is_above(self) -> bool:
        """Whether a row is above the limit."""
        return self.limit is not None and bool(rows_above(self.rows, self.limit))

    def state(self) -> WatchState:
        """Return what a screen shows."""
        of_all = self._total
        return WatchState(
            title=shlex.join(["aiokc", "lag", *self._question.names]),
            clock="asking ..." if self.asked_at_ms is None else _clock(self.asked_at_ms),
            interval_seconds=self.interval_seconds,
            rows=[(row, self.rates(row)) for row in self.rows],
            total=None if of_all is None else (of_all, self._total_history.rates(of_all)),
            history=tuple(self._totals),
            problem=self.problem,
            limit=self.limit,
            is_asking=self.asked_at_ms is None,
            ascii_only=not _has_blocks(self._context.system.stdout),
        )


def _first_of(failures: Sequence[str]) -> str | None:
    if not failures:
        return None
    return failures[0] + (f" (and {len(failures) - 1} more problems)" if len(failures) > 1 else "")


def _clock(ms: int) -> str:
    from datetime import datetime

    return datetime.fromtimestamp(ms / 1000).strftime("%H:%M:%S")


def _has_blocks(stream: Any) -> bool:
    try:
        "█▏▁…".encode(stream.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True


async def _live(context: Context, watched: Watched) -> int:
    terminal = context.terminal
    with display_for(context.system, terminal) as display:

        def draw() -> None:
            display.draw(screen(watched.state(), terminal.width, terminal.height))

        draw()
        ticks = _Ticks(watched.interval_seconds)
        try:
            with _at_resize(draw):
                while True:
                    await watched.look()
                    draw()
                    if watched.is_above():
                        break
                    await ticks.next()
        finally:  # the last picture stays on the terminal, with all rows
            height = len(watched.rows) + 20
            with suppress(OSError):  # as in Live: the terminal is gone
                display.draw(screen(replace(watched.state(), foot=""), terminal.width, height))
    return check(context, watched.rows, watched.limit, watched.uncommitted)


async def _in_lines(context: Context, watched: Watched) -> int:
    columns = _columns(watched.by, context.out.format)
    ticks = _Ticks(watched.interval_seconds)
    said: str | None = None
    is_first = heading = True
    while not watched.is_above():
        if context.out.lost is not None:  # nobody watches
            raise context.out.lost
        if not is_first:
            await ticks.next()
        is_first = False
        answered = await watched.look()
        said = _say_what_is_new(context, watched, said, answered=answered)
        if answered:
            rows = [_cells(row, watched, columns, context.out.format) for row in watched.rows]
            context.out.rows(columns, rows, empty=nothing_of(context.args.groups), heading=heading)
            context.out.flush()
            heading = False
    return check(context, watched.rows, watched.limit, watched.uncommitted)


def _say_what_is_new(context: Context, watched: Watched, said: str | None, *, answered: bool) -> str | None:
    """Say on stderr what keeps the answer away, or is wrong with it: once, not at each tick."""
    kind = None if watched.problem is None else watched.problem if answered else "no answer"
    if kind is not None and kind != said:
        context.warn(watched.problem or "")
    elif kind is None and said == "no answer":
        context.say("the cluster answers again")
    return kind


def _columns(by: Grouping, format: str) -> tuple[Column, ...]:
    rates = (
        Column("in_per_second", "number", "IN/s"),
        Column("out_per_second", "number", "OUT/s"),
        Column("eta_ms", "number", "ETA"),
    )
    return (Column("time_ms", "time", "TIME"), *columns_of(by, format), *rates)


def _cells(row: LagRow, watched: Watched, columns: Sequence[Column], format: str) -> list[Any]:
    rates = watched.rates(row)
    eta = rates.eta_seconds
    into, out = (None if rate is None else round(rate, 1) for rate in (rates.into, rates.out))
    if format == "table":
        shown: object = eta_text(rates)
    else:  # never is null, as what is not known: in_per_second and out_per_second tell them apart
        shown = None if eta is None or eta == float("inf") else round(1000 * eta)
    return [watched.asked_at_ms, *cells_of(row, columns[1:-3]), into, out, shown]


class _Ticks:
    """Times that are ``seconds`` apart; those that pass while the caller is busy are left out."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._loop = seconds, asyncio.get_running_loop()
        self._at = self._loop.time()

    async def next(self) -> None:
        """Wait for the next one."""
        self._at = max(self._at + self._seconds, self._loop.time() + self._seconds / 10)
        await asyncio.sleep(self._at - self._loop.time())


@contextmanager
def _at_resize(draw: Callable[[], None]) -> Iterator[None]:
    """Draw at once when the terminal's size changes."""
    loop = asyncio.get_running_loop()
    try:
        number = signal.SIGWINCH
        loop.add_signal_handler(number, draw)
    except (AttributeError, NotImplementedError, ValueError, RuntimeError):
        yield  # on Windows, and outside of the main thread: the next tick draws in the new size
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(number)
