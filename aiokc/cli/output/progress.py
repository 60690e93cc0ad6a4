"""A progress bar on stderr for reads that take long: with rich (``pip install 'aiokc[cli]'``), at a terminal."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
def progress(
    system: System,
    terminal: Terminal,
    what: str,
    total: int | None,
    *,
    quiet: bool,
    shows_records: bool = True,
    in_bytes: bool = False,
) -> Iterator[Progress]:
    """Show a bar until the block ends, if stderr is a terminal on which no records are shown, and rich is installed.

    ``total`` None: nobody knows; then the bar counts. ``shows_records``: stdout has records. ``in_bytes``: it counts
    bytes.
    """
    is_hidden = quiet or (shows_records and terminal.is_terminal) or not system.is_terminal(system.stderr)
    if is_hidden or (total is not None and total <= 0):
        yield _Unseen()
        return
    try:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
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
    count = DownloadColumn(binary_units=True) if in_bytes else MofNCompleteColumn()
    columns = (TextColumn("{task.description}"), BarColumn(), count, TimeRemainingColumn())
    bar = Bar(*columns, console=console, transient=True)
    task = bar.add_task(what, total=total)

    class _Seen:
        def reached(self, done: int) -> None:
            bar.update(task, completed=done)

    bar.start()
    try:
        yield _Seen()
    finally:
        with suppress(OSError):  # as in Live: the terminal is gone
            bar.stop()
