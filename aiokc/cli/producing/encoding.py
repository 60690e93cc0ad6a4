"""``--key`` and ``--value`` of ``aiokc produce``: text as the bytes that it stands for, the inverse of decoding."""

from __future__ import annotations

import json
import struct
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final, NoReturn

from ..problems import quoted

_DECODER: Final = json.JSONDecoder()


class Unencodable(Exception):
    """A record's text is not what the person said that it is; the message says why."""


class Encoder:
    """Makes the bytes of keys or values. ``how`` is what --key or --value say; None: text, and bytes as they are."""

    def __init__(self, how: str | None) -> None:
        self._how = how

    def of_bytes(self, data: bytes) -> bytes:
        """Return the bytes that a part of a line stands for. Raises Unencodable."""
        if self._how is None:
            return data
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise Unencodable(f"is no UTF-8: {error.reason} at byte {error.start}") from error
        if self.keeps_text:
            parsed_json(text)
            return data
        return ENCODERS[self._how](text)

    @property
    def keeps_text(self) -> bool:
        """Whether a value is sent as the JSON text that it is: parsing and writing it again could lose digits."""
        return self._how == "json"

    def of_json(self, value: object, text: str = "") -> bytes | None:
        """Return the bytes that a value of a JSON object stands for; None for null. Raises Unencodable.

        ``text`` is how the value is written there: needed where ``keeps_text``.
        """
        if value is None:
            return None
        if self.keeps_text:
            return _utf8(text)
        if isinstance(value, str):
            return ENCODERS[self._how or "utf8"](value)
        if self._how in _NUMBERS and isinstance(value, int | float) and not isinstance(value, bool):
            return ENCODERS[self._how](str(value))
        raise Unencodable(f"is {json_kind(value)}, and not a string: say what it is, as with --value json")


def parsed_json(text: str) -> Any:
    """Return what JSON ``text`` holds. Raises Unencodable for what is none, and for numbers beyond JSON's."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError as error:
        raise Unencodable("is nested too deep") from error
    except ValueError as error:
        raise Unencodable(f"is no JSON: {error}") from error


def texts_of(text: str) -> dict[str, str]:
    """Return the values of a JSON object as they are written in ``text``, which ``parsed_json`` has found to be one."""
    texts: dict[str, str] = {}
    at = _after_blanks(text, text.index("{") + 1)
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        at = _after_blanks(text, _after_blanks(text, end) + 1)  # behind the colon
        _, end = _DECODER.raw_decode(text, at)
        texts[name] = text[at:end]
        at = _after_blanks(text, end)
        if text[at] == ",":
            at = _after_blanks(text, at + 1)
    return texts


def _after_blanks(text: str, at: int) -> int:
    while text[at] in " \t\n\r":
        at += 1
    return at


def json_kind(value: object) -> str:
    """Return what JSON calls a value, with its article."""
    names = {dict: "an object", list: "an array", bool: "a boolean", str: "a string", type(None): "null"}
    return names.get(type(value), "a number")


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number - number != 0:
        raise ValueError(f"{quoted(text)} is too large for a number")
    return number


def _utf8(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise Unencodable("has half of a surrogate pair, which is no text") from error


def _hex(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError as error:
        raise Unencodable(f"is no hex: {quoted(text)}") from error


def _base64(text: str) -> bytes:
    try:
        return b64decode(text.strip(), validate=True)
    except ValueError as error:
        raise Unencodable(f"is no base64: {quoted(text)}") from error


def _number(form: str, read: Callable[[str], float]) -> Callable[[str], bytes]:
    def encode(text: str) -> bytes:
        try:
            return struct.pack(form, read(text))
        except (ValueError, OverflowError, struct.error) as error:
            kind = "number" if read is float else f"whole number of {struct.calcsize(form) * 8} bits"
            raise Unencodable(f"is no {kind}: {quoted(text)}") from error

    return encode


#: By the name that --key and --value take. Numbers are as Java's serializers write them: big-endian.
ENCODERS: dict[str, Callable[[str], bytes]] = {
    "utf8": _utf8,
    "hex": _hex,
    "base64": _base64,
    "int32": _number(">i", int),
    "int64": _number(">q", int),
    "double": _number(">d", float),
}
_NUMBERS = ("int32", "int64", "double")
