"""A text that a broker sent, made fit to be shown: short, on one line, without the client's secrets."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

from ...secret import Secret

#: The most characters of a broker's text that a message shows.
MOST_CHARACTERS: Final = 200
_MASK: Final = "***"


def broker_text(text: str, secrets: Iterable[Secret] = ()) -> str:
    """Return ``text`` with ``secrets`` masked, control characters escaped, and cut at 200 characters.

    A hostile broker knows the password of PLAIN, and could write it into the client's log. A gateway may repeat what
    it was sent in good faith.
    """
    # Masked first: a secret that is cut, or whose control characters are escaped, would not be found.
    for spelling in _spellings(secrets):
        text = text.replace(spelling, _MASK)
    shown = ""
    for character in text:
        piece = character if character.isprintable() else character.encode("unicode_escape").decode()
        if len(shown) + len(piece) > MOST_CHARACTERS:
            return f"{shown}..."
        shown += piece
    return shown


def quoted(text: str, secrets: Iterable[Secret] = ()) -> str:
    """Return ``broker_text`` in quotation marks."""
    return f"'{broker_text(text, secrets)}'"


def _spellings(secrets: Iterable[Secret]) -> Iterator[str]:
    """Yield the secrets as they may be repeated, longest first: one may be a part of another."""
    found = set()
    for secret in secrets:
        plain = secret.reveal()
        raw = plain.encode("utf-8", "surrogatepass")
        base64 = b64encode(raw).decode()
        found |= {plain, base64, base64.rstrip("="), quote(raw, safe=""), raw.hex()}
    return iter(sorted(found - {""}, key=len, reverse=True))
