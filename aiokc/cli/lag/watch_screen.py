"""The screen of `aiokc lag --watch`: lines of styled text for a width and a height, computed from values alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from ..output.escapes import escaped
from ..output.units import count_shown, duration_shown
from ..output.widths import ELLIPSIS, fitted, padded, width_of
from .limits import Limit
from .rates import Rates
from .rows import LagRow

#: A piece of a line, and its style: "", "dim", "bold", "title", "good", "bad", "warn" or "bar".
Span: TypeAlias = tuple[str, str]
Line: TypeAlias = list[Span]

_BAR_CELLS: Final = 10
_EIGHTHS: Final = " ▏▎▍▌▋▊▉█"
_LEVELS: Final = "▁▂▃▄▅▆▇█"
_GAP: Final = "  "
_DASH: Final = "-"


@dataclass(frozen=True, slots=True)
class WatchState:
    """All that the screen shows.

    ``clock`` is the time of the last answer as text, ``total`` the sum over all rows with its rates, ``history`` the
    totals of the lag so far, the oldest first. ``problem`` says why there was no answer since, ``is_asking`` that there
    was none yet.
    """

    title: str
    clock: str
    interval_seconds: float
    rows: Sequence[tuple[LagRow, Rates]] = ()
    total: tuple[LagRow, Rates] | None = None
    history: Sequence[int] = ()
    problem: str | None = None
    limit: Limit | None = None
    foot: str = "Ctrl-C ends"
    is_asking: bool = False
    ascii_only: bool = False


@dataclass(slots=True)
class _Column:
    """A column: columns that are dropped first have the lowest ``worth``; ``least`` is how far it may be cut."""

    name: str
    worth: int
    cell: Callable[[LagRow, Rates], str]
    right: bool = True
    least: int | None = None
    style: Callable[[LagRow, Rates], str] | None = None
    cells: list[str] = field(default_factory=list)
    width: int = 0


def screen(state: WatchState, width: int, height: int) -> list[Line]:
    """Return at most ``height`` lines of at most ``width`` columns: a head, the rows that fit, and a foot."""
    head = [_title(state, width), *_totals(state, width)]
    foot = _foot(state, width)
    rows = list(state.rows)
    room = max(1, height - len(head) - len(foot) - 1)  # one line is the table's heading
    left_out: Line = []
    if len(rows) > room:
        # The rows keep their places between two looks, as long as they all fit. Otherwise the worst are what matters.
        rows.sort(key=lambda pair: -1 if pair[0].lag is None else pair[0].lag, reverse=True)
        rows, hidden = rows[: max(1, room - 1)], rows[max(1, room - 1) :]
        left_out = [(_cut(f"{len(hidden)} more, with less lag", width, state.ascii_only), "dim")]
    table = _table(state, rows, width)
    lines = [*head, *table, *([left_out] if left_out else []), *foot]
    return lines[:height]


def _title(state: WatchState, width: int) -> Line:
    right = f"{state.clock}  every {state.interval_seconds:g} s"
    if len(state.title) + len(right) + 2 > width:
        right = state.clock
    room = width - len(right) - 2
    if room < 8:
        return [(_cut(state.title, width, state.ascii_only), "title")]
    title = _cut(state.title, room, state.ascii_only)
    return [(title, "title"), (" " * (width - len(title) - len(right)), ""), (right, "dim")]


def _totals(state: WatchState, width: int) -> list[Line]:
    if state.total is None:
        return []
    row, rates = state.total
    pieces: Line = [("LAG ", "dim"), (count_text(row.lag), _lag_style(row, rates, state.limit) or "bold")]
    if row.unknown:
        pieces += [(f" ({row.unknown} of {row.partitions} unknown)", "warn")]
    for name, text in (("IN/s", rate_text(rates.into)), ("OUT/s", rate_text(rates.out)), ("ETA", eta_text(rates))):
        if sum(len(piece) for piece, _ in pieces) + len(name) + len(text) + 3 > width:
            break
        pieces += [(f"{_GAP}{name} ", "dim"), (text, "")]
    room = width - sum(len(piece) for piece, _ in pieces) - len(_GAP)
    if room >= 8 and len(state.history) > 1 and not state.ascii_only:
        pieces += [(_GAP, ""), (sparkline(state.history, min(room, 60)), "bar")]
    return [_cut_line(pieces, width)]


def _foot(state: WatchState, width: int) -> list[Line]:
    if state.problem is not None:
        return [[(_cut(state.problem, width, state.ascii_only), "bad")]]
    return [[(_cut(state.foot, width, state.ascii_only), "dim")]] if state.foot else []


def _columns(state: WatchState, rows: Sequence[tuple[LagRow, Rates]]) -> list[_Column]:
    most = max((row.lag or 0 for row, _ in rows), default=0)
    columns = [
        _Column("GROUP", 85, lambda row, _: row.group, right=False, least=8),
        _Column("TOPIC", 90, lambda row, _: row.topic or _DASH, right=False, least=8),
        _Column("PARTITION", 95, lambda row, _: _number(row.partition)),
        _Column("PARTITIONS", 40, lambda row, _: str(row.partitions)),
        _Column("COMMITTED", 20, lambda row, _: _number(row.committed)),
        _Column("END", 19, lambda row, _: _number(row.end)),
        _Column(
            "LAG", 100, lambda row, _: count_text(row.lag), style=lambda row, rates: _lag_style(row, rates, state.limit)
        ),
        _Column("", 30, lambda row, _: bar(row.lag or 0, most, state.ascii_only), right=False, style=lambda *_: "bar"),
        _Column("LAG-TIME", 60, lambda row, _: age_text(row.lag_ms)),
        _Column("IN/s", 50, lambda _, rates: rate_text(rates.into)),
        _Column("OUT/s", 70, lambda _, rates: rate_text(rates.out)),
        _Column("ETA", 80, lambda _, rates: eta_text(rates), style=lambda _, rates: _eta_style(rates)),
        _Column("MEMBER", 10, lambda row, _: row.member or _DASH, right=False, least=10),
    ]
    of_partitions = any(row.partition is not None for row, _ in rows)
    unwanted = {"PARTITIONS" if of_partitions else "PARTITION"}
    if len({row.group for row, _ in rows}) < 2:
        unwanted.add("GROUP")
    if not any(row.topic is not None for row, _ in rows):
        unwanted.add("TOPIC")
    if not any(row.member is not None for row, _ in rows):
        unwanted.add("MEMBER")
    return [column for column in columns if column.name not in unwanted]


def _table(state: WatchState, rows: Sequence[tuple[LagRow, Rates]], width: int) -> list[Line]:
    if not rows:
        if state.is_asking:
            return []
        return [[(_cut("no partition with a commit or a member", width, state.ascii_only), "dim")]]
    columns = _columns(state, rows)
    for column in columns:
        column.cells = [escaped(column.cell(*row)) for row in rows]
        column.width = max(width_of(column.name), *map(width_of, column.cells))
    columns = _fitted(columns, width)
    lines: list[Line] = [_cut_line([(_padded(c, c.name, state.ascii_only) + _GAP, "bold") for c in columns], width)]
    for index, row in enumerate(rows):
        line: Line = []
        for column in columns:
            line.append(
                (_padded(column, column.cells[index], state.ascii_only), column.style(*row) if column.style else "")
            )
            line.append((_GAP, ""))
        lines.append(_cut_line(line, width))
    return lines


def _fitted(columns: list[_Column], width: int) -> list[_Column]:
    """Cut the texts that may be cut, then leave out columns, the least worth first, until the rest fits."""
    for column in columns:
        if column.least is not None:  # none is longer than a line: what follows takes a step for each column too much
            column.width = min(column.width, max(width, column.least))
    while True:
        excess = sum(column.width + len(_GAP) for column in columns) - len(_GAP) - width
        if excess <= 0:
            return columns
        texts = [column for column in columns if column.least is not None and column.width > column.least]
        if sum(column.width - (column.least or 0) for column in texts) >= excess:
            while excess > 0:  # the widest first
                widest = max(texts, key=lambda column: column.width - (column.least or 0))
                widest.width -= 1
                excess -= 1
            return columns
        if len(columns) == 1:
            return columns
        columns = [column for column in columns if column is not min(columns, key=lambda one: one.worth)]


def _padded(column: _Column, text: str, ascii_only: bool) -> str:
    return padded(_cut(text, column.width, ascii_only), column.width, to_the_right=column.right)


def _cut(text: str, width: int, ascii_only: bool) -> str:
    text = escaped(text)
    if width_of(text) <= width:
        return text
    cut = fitted(text, width)
    return cut.replace(ELLIPSIS, "~") if ascii_only else cut


def _cut_line(line: Line, width: int) -> Line:
    out: Line = []
    for text, style in line:
        if width <= 0:
            break
        shown = text if width_of(text) <= width else fitted(text, width + 1)[:-1]
        out.append((shown, style))
        width -= width_of(shown)
    return out


def _lag_style(row: LagRow, rates: Rates, limit: Limit | None) -> str:
    if row.error is not None or (limit is not None and limit.above(row)):
        return "bad"
    if row.lag is None:
        return "dim"
    if row.lag == 0:
        return "good"
    return "warn" if rates.eta_seconds is not None and math.isinf(rates.eta_seconds) else ""


def _eta_style(rates: Rates) -> str:
    return "warn" if rates.eta_seconds is not None and math.isinf(rates.eta_seconds) else ""


def _number(value: int | None) -> str:
    return _DASH if value is None else str(value)


def count_text(value: float | None) -> str:
    """Return a count that a glance takes in: exact up to 9,999,999, then with a unit."""
    if value is None:
        return _DASH
    return f"{round(value):,}" if abs(value) < 10_000_000 else count_shown(value)


def rate_text(value: float | None) -> str:
    """Return records per second, with a decimal where there are few."""
    if value is None:
        return _DASH
    return f"{value:.1f}" if 0 < abs(value) < 10 else count_text(value)


def age_text(milliseconds: int | None) -> str:
    """Return an age as its two largest units."""
    return _DASH if milliseconds is None else duration_shown(milliseconds)


def eta_text(rates: Rates) -> str:
    """Return when the lag is gone: "never" where it does not shrink."""
    if rates.eta_seconds is None:
        return _DASH
    if rates.eta_seconds == 0:
        return "0 s"
    if rates.eta_seconds < 1:
        return "< 1 s"
    return "never" if math.isinf(rates.eta_seconds) else duration_shown(1000 * rates.eta_seconds)


def bar(value: int, most: int, ascii_only: bool = False) -> str:
    """Return a bar of ten characters: full where ``value`` is ``most``, empty where it is nothing."""
    if value <= 0 or most <= 0:
        return " " * _BAR_CELLS
    if ascii_only:
        return ("#" * max(1, round(_BAR_CELLS * min(value, most) / most))).ljust(_BAR_CELLS)
    eighths = max(1, round(8 * _BAR_CELLS * min(value, most) / most))
    text = "█" * (eighths // 8) + (_EIGHTHS[eighths % 8] if eighths % 8 else "")
    return text.ljust(_BAR_CELLS)


def sparkline(values: Sequence[int], width: int) -> str:
    """Return the last ``width`` values as a line of small columns, from nothing to the largest of them."""
    values = values[-width:]
    most = max(values, default=0)
    if most <= 0:
        return _LEVELS[0] * len(values)
    return "".join(_LEVELS[math.ceil(value * (len(_LEVELS) - 1) / most)] for value in values)
