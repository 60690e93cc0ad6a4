"""A text that a broker sent, made fit for a log line or an exception: on one line, printable, and cut."""

from __future__ import annotations

from typing import Final

#: The most characters of a broker's error message that are shown. A policy's own message may be of a few sentences.
MOST_CHARACTERS: Final = 1_000


def one_line(text: str | None, most: int = MOST_CHARACTERS) -> str:
    """Return ``text`` with control characters escaped, and cut at ``most`` characters; "" for None.

    A hostile broker could write lines of its own into the client's log, or commands for the terminal that shows it; and
    a text may be as long as a response.
    """
    if not text:
        return ""
    if len(text) <= most and text.isprintable():
        return text
    shown: list[str] = []
    length = 0
    for character in text:
        piece = character if character.isprintable() else character.encode("unicode_escape").decode()
        length += len(piece)
        if length > most:
            return f"{''.join(shown)}..."
        shown.append(piece)
    return "".join(shown)
