"""``--key`` and ``--value``: bytes as text, JSON, numbers, hex; what is no such thing is shown as hex, with a mark."""

from __future__ import annotations

import json
import struct
from base64 import b64encode
from collections.abc import Callable
from typing import NamedTuple, NoReturn


class Decoded(NamedTuple):
    """A key or value: as ``text``, and as ``fragment`` of JSON. ``problem`` says why it could not be decoded."""

    text: str
    fragment: str
    problem: str = ""


class Undecodable(Exception):
    """Bytes are not what the person said that they are; the message says why."""


#: Makes text and JSON of bytes. Raises Undecodable.
Decoder = Callable[[bytes], tuple[str, str]]

NULL = Decoded("", "null")


def decoded(data: bytes | None, decoder: Decoder) -> Decoded:
    """Return what ``decoder`` makes of a key or value; hex and the problem, where it makes nothing of it."""
    if data is None:
        return NULL
    try:
        return Decoded(*decoder(data))
    except Undecodable as error:
        return Decoded(f"<hex:{data.hex()}>", json.dumps(data.hex()), str(error))


def _utf8(data: bytes) -> tuple[str, str]:
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        raise Undecodable(f"is no UTF-8: {error.reason} at byte {error.start}") from error
    return text, json.dumps(text, ensure_ascii=False)


def _json(data: bytes) -> tuple[str, str]:
    text, _ = _utf8(data)
    try:
        json.loads(text, parse_constant=_no_json, parse_int=str, parse_float=str)
    except (ValueError, RecursionError) as error:
        raise Undecodable(f"is no JSON: {error}") from error
    # The text itself: a float would lose digits. Line ends are legal between tokens only, where a space will do.
    line = text.strip().replace("\r", " ").replace("\n", " ")
    return line, line


def _no_json(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number in JSON")


def _hex(data: bytes) -> tuple[str, str]:
    return data.hex(), f'"{data.hex()}"'


def _base64(data: bytes) -> tuple[str, str]:
    text = b64encode(data).decode()
    return text, f'"{text}"'


def _number(form: str) -> Decoder:
    size = struct.calcsize(form)

    def decode(data: bytes) -> tuple[str, str]:
        if len(data) != size:
            raise Undecodable(f"has {len(data)} bytes, and not {size}")
        number = struct.unpack(form, data)[0]
        is_finite = number - number == 0
        return str(number), str(number) if is_finite else f'"{number}"'

    return decode


def _none(data: bytes) -> tuple[str, str]:
    return "", "null"


#: By the name that --key and --value take. Numbers are as Java's serializers write them: big-endian.
DECODERS: dict[str, Decoder] = {
    "utf8": _utf8,
    "json": _json,
    "hex": _hex,
    "base64": _base64,
    "int32": _number(">i"),
    "int64": _number(">q"),
    "double": _number(">d"),
    "none": _none,
}


def deserializer_of(name: str) -> Callable[[bytes], str] | None:
    """Return a deserializer for a Consumer of what DECODERS has under ``name``; None for "none"."""
    if name == "none":
        return None
    decoder = DECODERS[name]

    def deserialize(data: bytes) -> str:
        return decoder(data)[0]

    return deserialize


#: The names that --key and --value take. A test compares those with them that the parser offers, which does not import
#: this module: that would be slow for a command that reads nothing.
ENCODINGS = (*DECODERS, "avro")
