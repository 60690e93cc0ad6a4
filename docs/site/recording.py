"""Records the screen of any command, as a terminal emulator shows it, and draws it as an animated SVG."""

from __future__ import annotations

import asyncio
import fcntl
import os
import pty
import signal
import struct
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any, Final

import pyte
from drawing import MONO, Palette, svg

_CELL: Final = (8.4, 18.0)
_MARGIN: Final = 16.0
_BAR: Final = 26.0  # of the window's title
_LAST_SECONDS: Final = 2.5  # how long the last screen stays

#: Characters side by side that look the same: the column, the text, the colour ("default"), whether bold.
Span = tuple[int, str, str, bool]
Screen = tuple[tuple[Span, ...], ...]


@dataclass(frozen=True, slots=True)
class Recording:
    """What a command showed: each screen with the second in which it appeared."""

    columns: int
    lines: int
    screens: tuple[tuple[float, Screen], ...]

    def text(self, index: int = -1) -> str:
        """Return one of the screens as plain text."""
        rows = ["".join(words for _, words, *_ in row) for row in self.screens[index][1]]
        return "\n".join(rows).rstrip()


async def record(
    command: Sequence[str],
    *,
    columns: int = 92,
    lines: int = 14,
    seconds: float,
    environment: Mapping[str, str] | None = None,
    each: float = 0.1,
) -> Recording:
    """Run the command in a terminal of that size, look at it every ``each`` seconds, and end it like Ctrl-C does.

    It ends by itself, or after ``seconds``. Raises RuntimeError if it ends with another code than 0 or that of Ctrl-C.
    """
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    surroundings = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "", **(environment or {})}
    surroundings.pop("NO_COLOR", None)
    process = await asyncio.create_subprocess_exec(
        *command, stdin=theirs, stdout=theirs, stderr=theirs, env=surroundings, start_new_session=True
    )
    os.close(theirs)
    screen = pyte.Screen(columns, lines)
    stream = pyte.ByteStream(screen)
    loop, began = asyncio.get_running_loop(), time.monotonic()
    os.set_blocking(ours, False)

    def read() -> None:
        try:
            stream.feed(os.read(ours, 1 << 16))
        except OSError:  # Linux's end of a terminal that its last process has closed
            loop.remove_reader(ours)

    loop.add_reader(ours, read)
    seen: list[tuple[float, Screen]] = []
    try:
        while process.returncode is None and time.monotonic() - began < seconds:
            await asyncio.sleep(each)
            _look(screen, time.monotonic() - began, seen)
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGINT)
        code = await asyncio.wait_for(process.wait(), 20)
        loop.remove_reader(ours)
        os.close(ours)
    _look(screen, time.monotonic() - began, seen)
    if code not in (0, 130, -signal.SIGINT):
        raise RuntimeError(f"{' '.join(command)} ended with {code}:\n{Recording(columns, lines, tuple(seen)).text()}")
    return Recording(columns, lines, tuple(seen))


def _look(screen: pyte.Screen, now: float, seen: list[tuple[float, Screen]]) -> None:
    shown = tuple(_row(screen.buffer[line], screen.columns) for line in range(screen.lines))
    if any(shown) and (not seen or seen[-1][1] != shown):
        seen.append((now, shown))


def _row(cells: Any, columns: int) -> tuple[Span, ...]:
    spans, at = [], 0
    line = [cells[column] for column in range(columns)]
    for (colour, bold), some in groupby(line, lambda cell: (cell.fg, cell.bold)):
        words = "".join(cell.data for cell in some)
        spans.append((at, words, colour, bold))
        at += len(words)
    while spans and not spans[-1][1].strip():
        spans.pop()
    return tuple(spans)


def draw(recording: Recording, palette: Palette, title: str) -> str:
    """Return an SVG that plays the recording for ever; who wants less motion sees its last screen."""
    width = recording.columns * _CELL[0] + 2 * _MARGIN
    height = recording.lines * _CELL[1] + 2 * _MARGIN + _BAR
    first = recording.screens[0][0]
    starts = [at - first for at, _ in recording.screens]
    total = starts[-1] + _LAST_SECONDS
    style = [".screen{visibility:hidden;animation-iteration-count:infinite;animation-timing-function:step-end;"]
    style.append(f"animation-duration:{total:.2f}s}}")
    parts = [_window(width, palette, title)]
    for index, (_, screen) in enumerate(recording.screens):
        begin = 100 * starts[index] / total
        end = 100 * starts[index + 1] / total if index + 1 < len(starts) else 100.0
        hidden = "0%{visibility:hidden}" if begin > 0 else ""
        after = f"{end:.2f}%{{visibility:hidden}}" if end < 100 else ""
        style.append(f"@keyframes s{index}{{{hidden}{begin:.2f}%{{visibility:visible}}{after}}}")
        style.append(f".s{index}{{animation-name:s{index}}}")
        parts.append(f'<g class="screen s{index}">{_lines(screen, palette)}</g>')
    last = len(starts) - 1
    style.append(f"@media(prefers-reduced-motion:reduce){{.screen{{animation:none}}.s{last}{{visibility:visible}}}}")
    return svg(width, height, title, parts, palette, style="".join(style))


def _window(width: float, palette: Palette, title: str) -> str:
    dots = "".join(f'<circle cx="{18 + 16 * n}" cy="15" r="5" fill="{palette.line}"/>' for n in range(3))
    style = f'text-anchor="middle" font-family="{MONO}" font-size="12" fill="{palette.quiet}"'
    words = f'<text x="{width / 2:g}" y="19" {style}>'
    edge = f'<rect x="0.5" y="0.5" width="{width - 1:g}" height="99.7%" rx="6" fill="none" stroke="{palette.line}"/>'
    return f"{edge}{dots}{words}{escape(title)}</text>"


def _lines(screen: Screen, palette: Palette) -> str:
    drawn = []
    for number, row in enumerate(screen):
        y = _BAR + _MARGIN + (number + 0.75) * _CELL[1]
        for at, words, colour, bold in row:
            if not words.strip():
                continue
            fill = palette.ansi.get(colour.removeprefix("bright"), palette.text)
            size = f'x="{_MARGIN + at * _CELL[0]:.1f}" y="{y:.1f}" textLength="{len(words) * _CELL[0]:.1f}"'
            weight = ' font-weight="700"' if bold else ""
            drawn.append(
                f'<text {size} xml:space="preserve" font-family="{MONO}" font-size="14"{weight} fill="{fill}">'
                f"{escape(words)}</text>"
            )
    return "".join(drawn)
