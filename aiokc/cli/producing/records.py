"""Records out of what the person gives: a line with a key before its delimiter, or a line of JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

from ..problems import cut, nearest, quoted
from .encoding import Encoder, Number, Unencodable, json_kind, parsed_json, texts_of

_MOST_PARTITION = (1 << 31) - 1
_MOST_MS = (1 << 63) - 1
_WHOLE = re.compile("[0-9]{1,19}")  # none that int() refuses for its length
#: The fields of ``aiokc cat --json``: those that are used, and those that say where the record was.
_USED = ("key", "value", "headers", "partition", "timestamp", "key_encoding", "value_encoding", "header_encodings")
_ELSEWHERE = ("topic", "offset", "timestamp_type", "leader_epoch")

HeaderPairs = tuple[tuple[str, bytes | None], ...]


class Outgoing(NamedTuple):
    """A record to send. ``partition`` and ``timestamp_ms`` None: the producer decides."""

    value: bytes | None
    key: bytes | None = None
    headers: HeaderPairs = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class Shape(Protocol):
    """Makes a record of what is between two delimiters; None where there is none. Raises Unencodable."""

    def record(self, data: bytes) -> Outgoing | None: ...


class Fixed(NamedTuple):
    """What the arguments say of every record: key, headers and partition, where the record has none of its own.

    ``by_key``: records go where their keys lead, whatever partition they name.
    """

    key: bytes | None = None
    headers: HeaderPairs = ()
    partition: int | None = None
    by_key: bool = False


class Lines:
    """A line is a value, or a key, a delimiter and a value. ``null``: an empty one of them is null."""

    def __init__(
        self, fixed: Fixed, key: Encoder, value: Encoder, *, key_delimiter: bytes | None, null: bool = False
    ) -> None:
        self._fixed, self._key, self._value = fixed, key, value
        self._key_delimiter, self._null = key_delimiter, null

    def record(self, data: bytes) -> Outgoing:
        """Return the record of a line. A line without the key's delimiter is a value."""
        fixed = self._fixed
        key = fixed.key
        if self._key_delimiter is not None:
            before, delimiter, after = data.partition(self._key_delimiter)
            if delimiter:
                key, data = self._part("key", self._key, before), after
        return Outgoing(self._part("value", self._value, data), key, fixed.headers, fixed.partition)

    def _part(self, name: str, encoder: Encoder, data: bytes) -> bytes | None:
        if self._null and not data:
            return None
        try:
            return encoder.of_bytes(data)
        except Unencodable as error:
            raise Unencodable(f"the {name} {error}") from error


class JsonLines:
    """A line is an object as ``aiokc cat --json`` writes it; fields that are missing are null, or the producer's."""

    def __init__(self, fixed: Fixed, key: Encoder, value: Encoder) -> None:
        self._fixed, self._key, self._value = fixed, key, value

    def record(self, data: bytes) -> Outgoing | None:
        """Return the record of a line; None for an empty line."""
        if not data.strip():
            return None
        try:
            text = data.decode()
        except UnicodeDecodeError as error:
            raise Unencodable(f"is no UTF-8: {error.reason} at byte {error.start}") from error
        fields = parsed_json(text)
        if not isinstance(fields, dict):
            raise Unencodable(f"is {json_kind(fields)}, and not an object as 'aiokc cat --json' writes it")
        for name in fields:
            if name not in _USED and name not in _ELSEWHERE:
                raise Unencodable(f"has an unknown field {quoted(name)}{nearest(name, _USED)}")
        texts = texts_of(text) if self._key.keeps_text or self._value.keeps_text else {}
        fixed = self._fixed
        partition = _whole(fields, "partition", _MOST_PARTITION)
        timestamp = fields.get("timestamp")
        is_none = isinstance(timestamp, Number) and timestamp.text == "-1"  # as of a record without one
        return Outgoing(
            _content(fields, texts, "value", self._value),
            _content(fields, texts, "key", self._key) if "key" in fields else fixed.key,
            (*_headers(fields), *fixed.headers),
            None if fixed.by_key else partition if fixed.partition is None else fixed.partition,
            None if is_none else _whole(fields, "timestamp", _MOST_MS),
        )


def _content(fields: dict[str, Any], texts: Mapping[str, str], name: str, encoder: Encoder) -> bytes | None:
    encoding = fields.get(f"{name}_encoding")
    try:
        return _encoder(encoding, encoder).of_json(fields.get(name), texts.get(name, ""))
    except Unencodable as error:
        raise Unencodable(f"the {name} {error}") from error


def _encoder(encoding: object, otherwise: Encoder) -> Encoder:
    if encoding is None:
        return otherwise
    if encoding != "hex":
        raise Unencodable(f"has the encoding {cut(repr(encoding))}: there is 'hex'")
    return _HEX


def _headers(fields: dict[str, Any]) -> HeaderPairs:
    given, encodings = fields.get("headers") or [], fields.get("header_encodings") or {}
    if not isinstance(given, list) or not isinstance(encodings, dict):
        raise Unencodable("the headers must be an array of [name, value], their encodings an object")
    return tuple(_header(pair, encodings.get(str(number))) for number, pair in enumerate(given))


def _header(pair: object, encoding: object) -> tuple[str, bytes | None]:
    if not (isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], str)):
        raise Unencodable(f"the header {cut(repr(pair))} must be an array of a name and a value")
    name, value = pair
    _UTF8.of_json(name)  # raises for half of a surrogate pair
    try:
        if encoding is not None and isinstance(value, str):  # cat marks it in the text, too
            value = value.removeprefix("<hex:").removesuffix(">")
        return name, _encoder(encoding, _UTF8).of_json(value)
    except Unencodable as error:
        raise Unencodable(f"the header {quoted(name)} {error}") from error


def _whole(fields: dict[str, Any], name: str, most: int) -> int | None:
    number = fields.get(name)
    if number is None:
        return None
    if isinstance(number, Number) and _WHOLE.fullmatch(number.text) and int(number.text) <= most:
        return int(number.text)
    raise Unencodable(f"the {name} {cut(repr(number))} is no whole number from 0 to {most}")


_UTF8 = Encoder(None)
_HEX = Encoder("hex")
