"""A live view: frames of lines, each drawn over the one before, as ``watch`` does.

It needs no package: a frame is the lines of a table. On a terminal it takes the alternate screen, so that a window that
changes its size leaves no rests; at the end the last frame stays on the ordinary screen. In a pipe frames follow each
other, with an empty line between them.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Self

from ..system import System
from .terminal import Terminal
from .widths import cut

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"


class Live:
    """Shows frames until its block ends: ``with Live(...) as view: view.show(lines)``.

    ``leave``: the last frame stays on the screen afterwards.
    """

    def __init__(self, system: System, terminal: Terminal, *, leave: bool = True) -> None:
        self._leave = leave
        self._system, self._terminal = system, terminal
        self._last: Sequence[str] | None = None
        self._draws = terminal.is_terminal and system.environ.get("TERM") != "dumb"

    def __enter__(self) -> Self:
        if self._draws:
            self._write(_ENTER)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._draws and kind is not BrokenPipeError:
            # The window is closed, SIGHUP cancels the command, and every write fails from then on. An error of this one
            # would take the place of the cancellation, and its exit code. main() flushes what is left, and sees it.
            with suppress(OSError):
                self._write(_LEAVE + "".join(f"{line}\n" for line in (self._last or () if self._leave else ())))

    def show(self, lines: Sequence[str]) -> None:
        """Show a frame. What does not fit on the screen is left out of it, and its last line says how much."""
        if not self._draws:
            self._write(("\n" if self._last is not None else "") + "".join(f"{line}\n" for line in lines))
        else:
            height, width = self._terminal.height, self._terminal.width
            shown = list(lines)
            if len(shown) > height:
                shown = [*shown[: height - 1], f"… {len(lines) - height + 1} more lines"]
            self._write("\x1b[H" + "\r\n".join(f"{cut(line, width)}\x1b[K" for line in shown) + "\x1b[J")
        self._last = list(lines)

    def _write(self, text: str) -> None:
        self._system.stdout.write(text)
        self._system.stdout.flush()
