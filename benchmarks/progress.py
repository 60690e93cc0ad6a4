"""The display of a run's progress."""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class Display:
    """Progress on stderr: a line for each step that is done, and on a terminal also a bar."""

    def __init__(self, steps: int) -> None:
        self._console = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)
        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}", markup=False),
        )
        self._bar = Progress(*columns, console=self._console, disable=not self._console.is_terminal, transient=True)
        self._task = self._bar.add_task("starting the broker", total=steps)

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(self, *_error: object) -> None:
        self._bar.stop()

    def begin(self, activity: str) -> None:
        self._bar.update(self._task, description=activity)

    def end(self, line: str | None = None) -> None:
        self._bar.advance(self._task)
        if line is not None:
            self._console.print(line)
