"""How records are written: their values alone, a line for people, JSON Lines, kcat's envelope, or CSV."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from ..output.escapes import JSON_ESCAPES, escaped
from ..output.output import csv_row
from ..output.units import time_shown
from ..output.widths import fitted
from .contents import Contents

if TYPE_CHECKING:
    from aiokc import Headers, RawRecord

    from ..output.terminal import Terminal

_TYPES = {-1: "unknown", 0: "create", 1: "logappend"}
_NAMES = {-1: None, 0: "CREATE_TIME", 1: "LOG_APPEND_TIME"}


class Format(Protocol):
    """Makes the bytes of a record. ``heading`` comes first."""

    @property
    def heading(self) -> bytes: ...
    def written(self, record: RawRecord) -> bytes: ...


class Values:
    """A value and a line end: what a pipe gets."""

    heading = b""

    def __init__(self, contents: Contents, null: bytes) -> None:
        self._contents, self._null = contents, null

    def written(self, record: RawRecord) -> bytes:
        """Return the value and a line end."""
        value = self._contents.value_bytes(record)
        return (self._null if value is None else value) + b"\n"


class Lines:
    """A line for people: partition and offset, time, key, value, and headers, if asked for."""

    heading = b""

    def __init__(
        self, contents: Contents, terminal: Terminal, *, null: str, headers: bool, keys: bool, width: int | None
    ) -> None:
        self._contents, self._terminal, self._null = contents, terminal, null
        self._headers, self._keys, self._width = headers, keys and contents.shows_keys, width

    def written(self, record: RawRecord) -> bytes:
        """Return the line."""
        paint = self._terminal.painted
        when = time_shown(record.timestamp) if record.timestamp >= 0 else "-"
        parts = [paint(f"{record.partition}:{record.offset}", "dim"), paint(when, "dim")]
        if self._keys:
            key = self._contents.key(record)
            parts.append(paint(self._shown(record.key, key.text), "red" if key.problem else "cyan"))
        value = self._contents.value(record)
        parts.append(paint(self._shown(record.value, value.text), *(["red"] if value.problem else [])))
        if self._headers:
            parts += [
                paint(f"{escaped(name)}={self._shown(part, header_text(part))}", "dim") for name, part in record.headers
            ]
        return ("  ".join(parts) + "\n").encode(errors="backslashreplace")

    def _shown(self, content: bytes | None, text: str) -> str:
        line = self._null if content is None else escaped(text)
        return line if self._width is None else fitted(line, self._width)


class KcatJson:
    """kcat's envelope (``-J``), so that scripts for kcat run. ``leaders`` names the broker of each partition.

    kcat writes what is no UTF-8 as it is, which is no JSON. Here it is hex, and ``key_encoding`` or
    ``payload_encoding`` says so.
    """

    heading = b""

    def __init__(self, contents: Contents, leaders: Mapping[int, int | None]) -> None:
        self._contents, self._leaders = contents, leaders

    def written(self, record: RawRecord) -> bytes:
        """Return the envelope in a line."""
        leader = self._leaders.get(record.partition)
        fields = [
            ("topic", json.dumps(record.topic)),
            ("partition", str(record.partition)),
            ("offset", str(record.offset)),
            ("tstype", f'"{_TYPES.get(record.timestamp_type, "unknown")}"'),
            ("ts", str(record.timestamp)),
            ("broker", str(-1 if leader is None else leader)),
        ]
        if record.headers:
            flat: list[str | None] = []
            for name, value in record.headers:
                flat += [name, None if value is None else header_text(value)]
            fields.append(("headers", json.dumps(flat, ensure_ascii=False, separators=(",", ":"))))
        key, value_ = self._contents.key(record), self._contents.value(record)
        fields += [("key", key.fragment), ("payload", value_.fragment)]
        fields += [("key_encoding", '"hex"')] if key.problem else []
        fields += [("payload_encoding", '"hex"')] if value_.problem else []
        return _object(fields)


class JsonLines:
    """aiokc's own JSON Lines: the fields of a ConsumerRecord. Keys are only ever added."""

    heading = b""

    def __init__(self, contents: Contents) -> None:
        self._contents = contents

    def written(self, record: RawRecord) -> bytes:
        """Return the object in a line."""
        key, value = self._contents.key(record), self._contents.value(record)
        headers = [[name, None if part is None else header_text(part)] for name, part in record.headers]
        fields = [
            ("topic", json.dumps(record.topic)),
            ("partition", str(record.partition)),
            ("offset", str(record.offset)),
            ("timestamp", str(record.timestamp)),
            ("timestamp_type", json.dumps(_NAMES.get(record.timestamp_type))),
            ("key", key.fragment),
            ("value", value.fragment),
            ("headers", json.dumps(headers, ensure_ascii=False, separators=(",", ":"))),
            ("leader_epoch", json.dumps(record.leader_epoch)),
        ]
        fields += [("key_encoding", '"hex"')] if key.problem else []
        fields += [("value_encoding", '"hex"')] if value.problem else []
        if encodings := {number: "hex" for number, (_, part) in enumerate(record.headers) if _is_binary(part)}:
            fields.append(("header_encodings", json.dumps(encodings, separators=(",", ":"))))
        return _object(fields)


class Csv:
    """CSV with a heading; headers as one JSON text."""

    heading = b"topic,partition,offset,timestamp,key,value,headers\n"

    def __init__(self, contents: Contents, terminal: Terminal) -> None:
        self._contents, self._terminal = contents, terminal

    def written(self, record: RawRecord) -> bytes:
        """Return the row."""
        headers = [[name, None if part is None else header_text(part)] for name, part in record.headers]
        cells = [
            *(record.topic, record.partition, record.offset, record.timestamp),
            self._contents.key(record).text,
            self._contents.value(record).text,
            json.dumps(headers, ensure_ascii=False, separators=(",", ":")) if headers else "",
        ]
        if self._terminal.is_terminal:
            cells = [escaped(str(cell)) for cell in cells]
        return csv_row(cells).encode(errors="backslashreplace")


def _is_binary(value: bytes | None) -> bool:
    return value is not None and header_text(value).encode() != value


def header_text(value: bytes | None) -> str:
    """Return a header's value as text; hex with a mark, where it is none."""
    if value is None:
        return ""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return f"<hex:{value.hex()}>"


def headers_shown(headers: Headers, null: str) -> str:
    """Return headers as kcat's %h: ``name=value,name=value``."""
    return ",".join(f"{name}={null if value is None else header_text(value)}" for name, value in headers)


def _object(fields: list[tuple[str, str]]) -> bytes:
    line = "{" + ",".join(f'"{name}":{fragment}' for name, fragment in fields) + "}\n"
    return line.translate(JSON_ESCAPES).encode(errors="surrogatepass")
