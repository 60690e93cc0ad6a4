"""``-f``: kcat's format strings, such as ``%t-%p %o: %k = %s\\n``."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from ..output.escapes import escaped
from ..problems import UsageProblem, quoted
from .contents import Contents
from .formats import headers_shown

if TYPE_CHECKING:
    from aiokc import RawRecord

_PART = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{1,2}|.?)|([^%\\]+)", re.DOTALL)
_ESCAPES = {"n": b"\n", "r": b"\r", "t": b"\t", "\\": b"\\", "0": b"\0"}

Part = Callable[["RawRecord"], bytes]


class Template:
    """Writes each record as a format string says. Raises UsageProblem for an unknown token."""

    heading = b""

    def __init__(self, text: str, contents: Contents, *, null: bytes, for_terminal: bool) -> None:
        self._contents, self._null, self._for_terminal = contents, null, for_terminal
        self._parts = [self._part(text, found) for found in _PART.finditer(text)]

    def written(self, record: RawRecord) -> bytes:
        """Return the record in this format."""
        return b"".join([part(record) for part in self._parts])

    def _part(self, text: str, found: re.Match[str]) -> Part:
        token, escape, literal = found.groups()
        if literal is not None:
            fixed = literal.encode(errors="surrogateescape")
        elif escape is not None:
            fixed = _escape(text, escape)
        elif token == "%":
            fixed = b"%"
        elif token in (tokens := self._tokens()):
            return tokens[token]
        else:
            raise UsageProblem(f"-f {quoted(text)}: unknown token %{token}; there are %{' %'.join(tokens)} and %%")
        return lambda record: fixed

    def _tokens(self) -> dict[str, Part]:
        contents = self._contents
        return {
            "t": lambda record: record.topic.encode(),
            "p": lambda record: b"%d" % record.partition,
            "o": lambda record: b"%d" % record.offset,
            "k": lambda record: self._shown(contents.key_bytes(record)),
            "K": lambda record: b"%d" % (-1 if record.key is None else len(record.key)),
            "s": lambda record: self._shown(contents.value_bytes(record)),
            "S": lambda record: b"%d" % (-1 if record.value is None else len(record.value)),
            "h": lambda record: self._shown(headers_shown(record.headers, self._null.decode()).encode()),
            "T": lambda record: b"%d" % record.timestamp,
            "R": lambda record: (0xFFFFFFFF if record.value is None else len(record.value)).to_bytes(4, "big"),
        }

    def _shown(self, content: bytes | None) -> bytes:
        if content is None:
            return self._null
        return escaped(content.decode(errors="backslashreplace")).encode() if self._for_terminal else content


def _escape(text: str, escape: str) -> bytes:
    if escape.startswith("x") and len(escape) > 1:
        return bytes([int(escape[1:], 16)])
    if escape not in _ESCAPES:
        raise UsageProblem(f"-f {quoted(text)}: unknown escape \\{escape}; there are \\n \\r \\t \\0 \\\\ and \\xHH")
    return _ESCAPES[escape]
