"""``--key`` and ``--value`` of ``aiokc produce``: text as the bytes that it stands for, the inverse of decoding."""

from __future__ import annotations

import json
import math
import struct
from base64 import b64decode
from collections.abc import Callable
from typing import Any, Final, NoReturn

from ..problems import quoted


class Unencodable(Exception):
    """A record's text is not what the person said that it is; the message says why."""


class Number:
    """A number of JSON as it is written. A float, or an int of Python's, could lose digits or refuse them."""

    def __init__(self, text: str) -> None:
        self.text = text

    def __repr__(self) -> str:
        return self.text


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
        if self._how in _NUMBERS and isinstance(value, Number):
            return ENCODERS[self._how](value.text)
        raise Unencodable(f"is {json_kind(value)}, and not a string: say what it is, as with --value json")


def parsed_json(text: str) -> Any:
    """Return what JSON ``text`` holds, each number as a Number. Raises Unencodable for what is none."""
    try:
        return _DECODER.decode(text)
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


_DECODER: Final = json.JSONDecoder(parse_constant=_no_number, parse_float=Number, parse_int=Number)


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


def _double(text: str) -> float:
    number = float(text)
    if math.isinf(number) and "inf" not in text.lower():  # cat writes infinity as "inf"
        raise OverflowError
    return number


def _number(form: str, read: Callable[[str], float]) -> Callable[[str], bytes]:
    def encode(text: str) -> bytes:
        try:
            return struct.pack(form, read(text))
        except (ValueError, OverflowError, struct.error) as error:
            kind = "number" if read is _double else f"whole number of {struct.calcsize(form) * 8} bits"
            raise Unencodable(f"is no {kind}: {quoted(text)}") from error

    return encode


#: By the name that --key and --value take. Numbers are as Java's serializers write them: big-endian.
ENCODERS: dict[str, Callable[[str], bytes]] = {
    "utf8": _utf8,
    "hex": _hex,
    "base64": _base64,
    "int32": _number(">i", int),
    "int64": _number(">q", int),
    "double": _number(">d", _double),
}
_NUMBERS = ("int32", "int64", "double")
