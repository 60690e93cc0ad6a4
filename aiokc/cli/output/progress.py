"""A progress bar on stderr for reads that take long: with rich (``pip install 'aiokc[cli]'``), at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from ..system import System
from .terminal import Terminal


class Progress(Protocol):
    """Takes how far a command is."""

    def reached(self, done: int) -> None: ...


class _Unseen:
    def reached(self, done: int) -> None:
        """Nobody looks."""


@contextmanager
def progress(system: System, terminal: Terminal, what: str, total: int, *, quiet: bool) -> Iterator[Progress]:
    """Show a bar until the block ends, if stderr is a terminal on which no records are shown, and rich is installed."""
    if quiet or total <= 0 or terminal.is_terminal or not system.is_terminal(system.stderr):
        yield _Unseen()
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as Bar
    except ImportError:
        yield _Unseen()
        return
    console = Console(
        file=system.stderr,
        width=system.width(system.stderr),
        color_system="auto" if terminal.has_colors(system.stderr) else None,
        force_terminal=True,
    )
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)

        class _Seen:
            def reached(self, done: int) -> None:
                bar.update(task, completed=done)

        yield _Seen()
