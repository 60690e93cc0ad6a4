"""What the demo shows: a live table on a terminal, plain lines everywhere else."""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Protocol

from consuming import Glance

if TYPE_CHECKING:
    from rich.table import Table


class Display(Protocol):
    """Where the demo speaks to its user."""

    def say(self, text: str = "") -> None:
        """Show a line, or several."""

    def waiting(self, what: str) -> AbstractContextManager[None]:
        """Show that ``what`` is going on, until the context ends."""

    def live(self) -> AbstractContextManager[Callable[[Glance], None]]:
        """Show each Glance that is given, until the context ends."""


def choose() -> Display:
    """Return the display that fits stdout."""
    return OnTerminal() if sys.stdout.isatty() else PlainLines()


class PlainLines:
    """Lines for a log: one each second while records flow, and one for each new assignment."""

    def say(self, text: str = "") -> None:
        print(text, flush=True)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        started, over = time.monotonic(), threading.Event()

        def tick() -> None:
            while not over.wait(2):
                self.say(f"  ... {time.monotonic() - started:.0f} s")

        self.say(f"{what} ...")
        ticking = threading.Thread(target=tick, daemon=True)
        ticking.start()
        try:
            yield
        finally:
            over.set()
            ticking.join()

    @contextmanager
    def live(self) -> Iterator[Callable[[Glance], None]]:
        last_line, last_assignments = float("-inf"), ""

        def show(glance: Glance) -> None:
            nonlocal last_line, last_assignments
            assignments = ", ".join(f"{m.name} has {numbers(m.assignment)}" for m in glance.members if m.assignment)
            if assignments and assignments != last_assignments:
                self.say(f"  assignment: {assignments}")
                last_assignments = assignments
            if time.monotonic() - last_line >= 0.9:
                self.say("  " + line(glance))
                last_line = time.monotonic()

        yield show


class OnTerminal:
    """A table that rewrites itself, with rich."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)

    def say(self, text: str = "") -> None:
        self._console.print(text, markup=False)

    @contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        with self._console.status(f"{what} ..."):
            yield

    @contextmanager
    def live(self) -> Iterator[Callable[[Glance], None]]:
        from rich.live import Live

        with Live(console=self._console, auto_refresh=False) as live:
            yield lambda glance: live.update(_rich_table(glance), refresh=True)


def _rich_table(glance: Glance) -> Table:
    from rich.table import Table

    title = f"{glance.seconds:.0f} s: {glance.written:,} rides written, the group's lag is {glance.lag:,}"
    grid = Table(title=title, title_justify="left", show_edge=False)
    grid.add_column("")
    grid.add_column("partitions", min_width=14)
    for name in ("records/s", "records", "lag"):
        grid.add_column(name, justify="right", min_width=9)
    for m in glance.members:
        grid.add_row(m.name, numbers(m.assignment), f"{m.per_second:,.0f}", f"{m.received:,}", f"{m.lag:,}")
    return grid


def numbers(partitions: Sequence[int]) -> str:
    """Return partition numbers for a reader."""
    return " ".join(map(str, partitions)) or "-"


def line(glance: Glance) -> str:
    """Return a Glance as one line."""
    members = (f"{m.name}: {m.per_second:5,.0f} records/s, {m.received:6,} in all" for m in glance.members)
    return f"{glance.seconds:4.1f} s  written {glance.written:6,} | {' | '.join(members)} | lag {glance.lag:5,}"


def result_table(rides: Counter[tuple[datetime, str]]) -> str:
    """Return rides per minute (rows) and city (columns), with sums, as aligned text."""
    minutes, cities = sorted({minute for minute, _ in rides}), sorted({city for _, city in rides})
    lines = [f"  {'minute':8}" + "".join(f"{city:>9}" for city in (*cities, "all"))]
    for minute in minutes:
        counts = [rides[minute, city] for city in cities]
        lines.append(f"  {minute:%H:%M}   " + "".join(f"{count:9,}" for count in (*counts, sum(counts))))
    sums = [sum(rides[minute, city] for minute in minutes) for city in cities]
    lines.append(f"  {'all':8}" + "".join(f"{count:9,}" for count in (*sums, sum(sums))))
    return "\n".join(lines)
