"""Control characters, so that no record and no name moves the cursor of a terminal."""

from __future__ import annotations

import re

# DEL and C1, what changes the direction of text, line and paragraph separators; lone surrogates can't be encoded.
_RANGES = ((0x7F, 0x9F), (0x61C, 0x61C), (0x200E, 0x200F), (0x2028, 0x202E), (0x2066, 0x2069), (0xD800, 0xDFFF))
_CONTROLS = re.compile(f"[\x00-\x1f{''.join(f'{chr(first)}-{chr(last)}' for first, last in _RANGES)}]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}

#: What JSON leaves as it is and a terminal obeys, for str.translate(): C0 is escaped by JSON itself.
JSON_ESCAPES = {code: f"\\u{code:04x}" for first, last in _RANGES for code in range(first, last + 1)}


def escaped(text: str) -> str:
    r"""Return ``text`` in one line, with control characters written as \n, \x1b and the like."""
    return _CONTROLS.sub(_escape, text)


def lines_escaped(text: str) -> str:
    """Return ``text`` with the lines that it has, each of them escaped."""
    return "\n".join(map(escaped, text.split("\n")))


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
