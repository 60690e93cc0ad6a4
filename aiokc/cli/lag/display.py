"""Displays of a live view: they draw lines of styled text over what they drew before, and give the terminal back."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..output.live import Live

if TYPE_CHECKING:
    from types import TracebackType

    from ..output.terminal import Terminal
    from ..system import System
    from .watch_screen import Line

_STYLES: Final[dict[str, tuple[str, ...]]] = {
    "": (),
    "title": ("bold", "cyan"),
    "bold": ("bold",),
    "dim": ("dim",),
    "good": ("green",),
    "warn": ("yellow",),
    "bad": ("red",),
    "bar": ("blue",),
}


class Display(Protocol):
    """Draws on the terminal's second screen while it is entered. The first one has the last picture afterwards."""

    def __enter__(self) -> Display: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def draw(self, lines: list[Line]) -> None:
        """Show these lines and nothing else."""


class PlainDisplay(Live):
    """Draws with the escape sequences that every terminal of today knows."""

    def draw(self, lines: list[Line]) -> None:
        self.show([_painted(self._terminal, line) for line in lines])


class RichDisplay:
    """Draws with rich, which knows older terminals, too: those of few colours, and the old consoles of Windows."""

    def __init__(self, system: System, terminal: Terminal) -> None:
        from rich.console import Console
        from rich.live import Live as RichLive

        self._system, self._terminal = system, terminal
        self._console = Console(
            file=system.stdout, force_terminal=True, no_color=not terminal.has_colors(), highlight=False, markup=False
        )
        self._live = RichLive(
            console=self._console, screen=True, auto_refresh=False, redirect_stdout=False, redirect_stderr=False
        )
        self._last: list[Line] = []

    def __enter__(self) -> RichDisplay:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(OSError):  # as in Live
            self._live.__exit__(kind, error, trace)
            if kind is not BrokenPipeError:
                for line in self._last:
                    self._system.stdout.write(f"{_painted(self._terminal, line).rstrip()}\n")
                self._system.stdout.flush()

    def draw(self, lines: list[Line]) -> None:
        from rich.text import Text

        self._console.size = self._size()
        text = Text(no_wrap=True, end="")
        for number, line in enumerate(lines):
            text.append("\n" if number else "")
            for piece, style in line:
                text.append(piece, style=" ".join(_STYLES[style]))
        self._live.update(text, refresh=True)
        self._last = lines

    def _size(self) -> Any:
        from rich.console import ConsoleDimensions

        return ConsoleDimensions(self._terminal.width, self._terminal.height)


def _painted(terminal: Terminal, line: Line) -> str:
    return "".join(terminal.painted(text, *_STYLES[style]) for text, style in line)


def display_for(system: System, terminal: Terminal) -> Display:
    """Return a display with rich, where that is installed (the extra ``cli``)."""
    try:
        return RichDisplay(system, terminal)
    except ImportError:
        return PlainDisplay(system, terminal)
