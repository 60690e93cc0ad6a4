"""How to draw for whoever looks: width, colours, and whether it is a terminal at all."""

from __future__ import annotations

from typing import TextIO

from ..system import System

_STYLES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "blue": "34", "cyan": "36"}


class Terminal:
    """The terminal behind stdout, if there is one: ``is_terminal``, ``width`` and ``height`` of the moment, colours.

    ``color`` is that of --color: with "auto" a terminal has colours, unless NO_COLOR is set or TERM is "dumb".
    """

    def __init__(self, system: System, color: str) -> None:
        self.system, self.color = system, color

    @property
    def is_terminal(self) -> bool:
        """Whether a person looks at stdout."""
        return self.system.is_terminal(self.system.stdout)

    @property
    def width(self) -> int:
        """The columns of the terminal."""
        return self.system.width(self.system.stdout)

    @property
    def height(self) -> int:
        """The lines of the terminal."""
        return self.system.height(self.system.stdout)

    def has_colors(self, on: TextIO | None = None) -> bool:
        """Whether to write colours to ``on`` (stdout)."""
        if self.color != "auto":
            return self.color == "always"
        if self.system.environ.get("NO_COLOR") or self.system.environ.get("TERM") == "dumb":
            return False
        return self.system.is_terminal(on or self.system.stdout)

    def painted(self, text: str, *styles: str, on: TextIO | None = None) -> str:
        """Return ``text`` in these styles (bold, dim, red, green, yellow, blue, cyan), if there are colours."""
        if not styles or not self.has_colors(on):
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"
