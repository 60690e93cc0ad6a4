"""A terminal of text: what a person sees on it, on its first screen and on the second one that live views draw on."""

from __future__ import annotations

import re
from collections.abc import Callable

import pyte

from tests.cli.running import Stream

_SWITCH = re.compile("(\x1b\\[\\?1049[hl])")


class Screens:
    """Understands what is written to a terminal. pyte has no second screen, so there are two of its screens."""

    def __init__(self, columns: int, lines: int) -> None:
        self.first, self.second = _Screen(columns, lines), _Screen(columns, lines)
        self.is_second = False

    def feed(self, text: str) -> None:
        """Take what was written."""
        for part in _SWITCH.split(text):
            if _SWITCH.fullmatch(part):
                self.is_second = part.endswith("h")
                if self.is_second:
                    self.second.reset()
            else:
                self.now.feed(part)

    @property
    def now(self) -> _Screen:
        """The screen that is shown."""
        return self.second if self.is_second else self.first

    def resize(self, columns: int, lines: int) -> None:
        """The person changes the window's size."""
        for screen in (self.first, self.second):
            screen.screen.resize(lines, columns)

    @property
    def hides_cursor(self) -> bool:
        """Whether the cursor is not seen."""
        return self.first.screen.cursor.hidden or self.second.screen.cursor.hidden


class _Screen:
    def __init__(self, columns: int, lines: int) -> None:
        self.screen = pyte.HistoryScreen(columns, lines, history=1000)
        self.reset()

    def reset(self) -> None:
        hidden = self.screen.cursor.hidden
        self.screen.reset()
        self.screen.cursor.hidden = hidden
        self.screen.set_mode(pyte.modes.LNM)  # a terminal's driver makes "\r\n" of "\n"
        self._stream = pyte.Stream(self.screen)

    def feed(self, text: str) -> None:
        self._stream.feed(text)

    @property
    def rows(self) -> list[str]:
        """The lines that are seen, without those at the end that are empty."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip().split("\n")

    def colors(self, line: int) -> set[str]:
        """The colours of the characters of a line."""
        cells = self.screen.buffer[line]
        return {cells[column].fg for column in range(self.screen.columns) if cells[column].data.strip()}

    def styles(self, line: int) -> set[str]:
        """Which of bold and reverse a line has."""
        cells = [self.screen.buffer[line][column] for column in range(self.screen.columns)]
        return {"bold" for cell in cells if cell.bold} | {"reverse" for cell in cells if cell.reverse}


class TerminalStream(Stream):
    """A stream that ends at such a terminal; ``seen`` is called after each piece that arrives there."""

    def __init__(self, columns: int, lines: int) -> None:
        super().__init__(is_terminal=True)
        self.screens = Screens(columns, lines)
        self.seen: Callable[[], None] = lambda: None
        self._fed = 0

    def flush(self) -> None:
        super().flush()
        text = self.written.getvalue()[self._fed :].decode()
        self._fed += len(text.encode())
        # A terminal shows what has come so far, and that may be any part of it.
        for start in range(0, len(text), 100):
            self.screens.feed(text[start : start + 100])
            self.seen()
