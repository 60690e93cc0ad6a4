"""Tables for people: as wide as the terminal, and as one block a row where that is too narrow for columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .columns import Column
from .terminal import Terminal
from .widths import fitted, padded, width_of

_GAP = "  "
_LEAST = 8  # columns that a text keeps when a table must become narrower
_MOST_SPACES = 200  # to which a pipe's rows are padded: else one long name would make all rows as long


def drawn(columns: Sequence[Column], rows: Sequence[Sequence[Any]], terminal: Terminal) -> list[str]:
    """Return the lines of a table. Without a terminal nothing is cut: a pipe has no width.

    What is longer than 200 columns there moves the rest of its row to the right, and no other row.
    """
    cells = [[column.shown(value) for column, value in zip(columns, row, strict=True)] for row in rows]
    widths = [max([width_of(column.title), *(width_of(row[at]) for row in cells)]) for at, column in enumerate(columns)]
    if terminal.is_terminal:
        narrowed = _narrowed(columns, widths, terminal.width)
        if narrowed is None:
            return _blocks(columns, cells, terminal)
        widths = narrowed
        cells = [[fitted(cell, width) for cell, width in zip(row, widths, strict=True)] for row in cells]
    else:
        widths = [min(width, _MOST_SPACES) for width in widths]
    heading = _line(columns, [column.title for column in columns], widths)
    lines = [terminal.painted(heading, "bold")]
    lines += [_line(columns, row, widths, terminal) for row in cells]
    return lines


def _narrowed(columns: Sequence[Column], widths: list[int], room: int) -> list[int] | None:
    """Return widths that fit into ``room`` by cutting texts, the longest first; None if they can't."""
    texts = [at for at, column in enumerate(columns) if column.kind in ("text", "list")]
    # First those that are longer than a line: what follows takes a step for each column that is too much.
    widths = [min(width, room) if at in texts else width for at, width in enumerate(widths)]
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    while excess > 0:
        widest = max(texts, key=lambda at: widths[at], default=None)
        if widest is None or widths[widest] <= max(_LEAST, width_of(columns[widest].title)):
            return None
        widths[widest] -= 1
        excess -= 1
    return widths


def _line(
    columns: Sequence[Column], cells: Sequence[str], widths: Sequence[int], terminal: Terminal | None = None
) -> str:
    parts = []
    for column, cell, width in zip(columns, cells, widths, strict=True):
        text = padded(cell, width, to_the_right=column.to_the_right)
        parts.append(terminal.painted(text, column.style) if terminal and column.style else text)
    return _GAP.join(parts).rstrip()


def _blocks(columns: Sequence[Column], cells: Sequence[Sequence[str]], terminal: Terminal) -> list[str]:
    """Return each row as lines of heading and value, with an empty line between two rows."""
    heading_width = max(width_of(column.title) for column in columns)
    room = max(1, terminal.width - heading_width - len(_GAP))
    lines: list[str] = []
    for row in cells:
        lines += [""] if lines else []
        for column, cell in zip(columns, row, strict=True):
            title = terminal.painted(padded(column.title, heading_width), "bold")
            lines.append(f"{title}{_GAP}{fitted(cell, room)}")
    return lines
