"""Control characters, so that no record and no name moves the cursor of a terminal."""

from __future__ import annotations

import re

# C0, DEL, C1, line and paragraph separators, and what changes the direction of text; lone surrogates can't be encoded.
_CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_SHORT = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}


def escaped(text: str) -> str:
    r"""Return ``text`` in one line, with control characters written as \n, \x1b and the like."""
    return _CONTROLS.sub(_escape, text)


def _escape(found: re.Match[str]) -> str:
    character = found[0]
    code = ord(character)
    return _SHORT.get(character) or (f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
