"""A text that a broker sent, made fit to be shown: short, on one line, without the client's secrets."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote, quote_plus

from ...secret import Secret
from ..one_line import one_line

#: The most characters of a broker's text that a message shows.
MOST_CHARACTERS: Final = 200
#: A shorter part of a token is a name, or can't be told from other words.
SHORTEST_PART: Final = 16
_MASK: Final = "***"
# Fewer characters of base64, of a password of two or three, are in many words.
_SHORTEST_PIECE: Final = 4


def broker_text(text: str, secrets: Iterable[Secret] = ()) -> str:
    """Return ``text`` with ``secrets`` masked, control characters escaped, and cut at 200 characters.

    A hostile broker knows the password of PLAIN, and could write it into the client's log. A gateway may repeat what
    it was sent in good faith.
    """
    # Masked first: a secret that is cut, or whose control characters are escaped, would not be found.
    spellings = [spelling for spelling in _spellings(secrets) if len(spelling) <= len(text)]
    # A long text is cut before, too. So the secret at its end may be half of one, which is not found: the end is left
    # out. It is as long as the longest secret; masks of secrets of one character make it longer.
    end = len(_MASK) * max(map(len, spellings), default=0)
    seen = text[: MOST_CHARACTERS + 2 * end]
    masked = seen
    for spelling in spellings:
        masked = masked.replace(spelling, _MASK)
    if len(seen) == len(text):
        return one_line(masked, MOST_CHARACTERS)
    shown = one_line(masked[: len(masked) - end], MOST_CHARACTERS)
    return shown if shown.endswith("...") else f"{shown}..."


def quoted(text: str, secrets: Iterable[Secret] = ()) -> str:
    """Return ``broker_text`` in quotation marks."""
    return f"'{broker_text(text, secrets)}'"


def in_parts(token: Secret) -> list[Secret]:
    """Return a token and its parts, for ``broker_text``.

    Somebody may repeat its payload alone, or the signature, with which anyone can complete it. An encrypted token has
    five parts; what has more is none.
    """
    parts = token.reveal().split(".", 5)
    return [token, *(Secret(part) for part in parts if len(part) >= SHORTEST_PART)]


def _spellings(secrets: Iterable[Secret]) -> Iterator[str]:
    """Yield the secrets as they may be repeated, longest first: one may be a part of another."""
    found = set()
    for secret in secrets:
        plain = secret.reveal()
        raw = plain.encode("utf-8", "surrogatepass")
        of_form = quote_plus(raw)  # as sasl_oauthbearer_header_urlencode has it
        base64 = b64encode(raw).decode()
        found |= {plain, base64, base64.rstrip("="), quote(raw, safe=""), of_form, raw.hex()}
        found |= _within_base64(raw) | _within_base64(of_form.encode())
    return iter(sorted(found - {""}, key=len, reverse=True))


def _within_base64(raw: bytes) -> set[str]:
    """Return what stands for ``raw`` in the base64 of a longer text.

    A secret goes out as a part of one: an OpenID client sends "id:secret", PLAIN sends the user before the password. In
    base64 three bytes are four characters, so there are three ways to write what follows, by the number of bytes before
    it. A character that stands for bits of a neighbour, too, is left out: it has four bits of the secret at most.
    """
    found = set()
    for before in range(3):
        base64 = b64encode(bytes(before) + raw).decode()
        begin, end = -(-before * 4 // 3), (before + len(raw)) * 4 // 3
        found |= {base64[begin:end], base64[begin:], base64[begin:].rstrip("=")}  # the latter at the end of the text
    return {piece for piece in found if len(piece) >= _SHORTEST_PIECE}
