"""``Secret``: a password, key or token that no repr, log line, exception or pickle shows."""

from __future__ import annotations

from hmac import compare_digest
from typing import NoReturn

_HIDDEN = "***"


class Secret:
    """Holds a text that must not be shown: repr(), str() and format() give "***", and only ``reveal`` returns the text.

    Options that hold passwords and keys take a str or a Secret, and hold a Secret afterwards. A Secret can't be
    pickled: what is pickled ends up in files and on networks.
    """

    __slots__ = ("_text",)

    def __init__(self, text: str | Secret) -> None:
        if not isinstance(text, str | Secret):
            raise TypeError(f"a Secret holds a str, not {type(text).__name__}")
        self._text: str = text.reveal() if isinstance(text, Secret) else text

    def reveal(self) -> str:
        """Return the text itself."""
        return self._text

    def __bool__(self) -> bool:
        return bool(self._text)

    def __eq__(self, other: object) -> bool:
        """Compare in a time that does not depend on how much of both texts is equal."""
        if not isinstance(other, Secret):
            return NotImplemented
        return compare_digest(self._text.encode("utf-8", "surrogatepass"), other._text.encode("utf-8", "surrogatepass"))

    def __hash__(self) -> int:
        return hash((Secret, self._text))

    def __repr__(self) -> str:
        return _HIDDEN

    def __str__(self) -> str:
        return _HIDDEN

    def __format__(self, spec: str) -> str:
        return format(_HIDDEN, spec)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: dict[int, object]) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Secret can't be pickled: pass the place where the secret is kept, and read it there")
