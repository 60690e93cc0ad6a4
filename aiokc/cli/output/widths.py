"""How many columns of a terminal a text takes, and how to fit it into fewer."""

from __future__ import annotations

import re
from unicodedata import combining, east_asian_width

_STYLE = re.compile("\x1b\\[[0-9;]*m")
_PARTS = re.compile("\x1b\\[[0-9;]*m|.", re.DOTALL)
ELLIPSIS = "…"


def width_of(text: str) -> int:
    """Return the columns that ``text`` takes: two for a wide character, none for a combining one or a style."""
    if text.isascii() and "\x1b" not in text:
        return len(text)
    return sum(map(_columns, _STYLE.sub("", text)))


def _columns(character: str) -> int:
    if combining(character) or character in "\u200b\u200c\u200d\ufe0e\ufe0f":
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


def fitted(text: str, width: int) -> str:
    """Return ``text``, without styles, cut to ``width`` columns; an ellipsis stands for what is missing."""
    if width_of(text) <= width:
        return text
    kept, room = [], width - 1
    for character in text:
        room -= _columns(character)
        if room < 0:
            break
        kept.append(character)
    return "".join(kept) + (ELLIPSIS if width > 0 else "")


def padded(text: str, width: int, *, to_the_right: bool = False) -> str:
    """Return ``text`` with spaces, so that it takes ``width`` columns."""
    spaces = " " * (width - width_of(text))
    return spaces + text if to_the_right else text + spaces


def cut(line: str, width: int) -> str:
    """Return ``line``, which may have styles, cut to ``width`` columns; all its styles stay."""
    if width_of(line) <= width:
        return line
    kept, room = [], width
    for part in _PARTS.findall(line):
        if part.startswith("\x1b["):
            kept.append(part)
        elif room >= 0:
            room -= _columns(part)
            kept.append(part if room >= 0 else "")
    return "".join(kept)
