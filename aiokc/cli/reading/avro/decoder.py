"""Decodes what Confluent's serializers write: a value, and the id of its schema before it or in a header."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Sequence
from functools import partial
from time import monotonic
from typing import IO, Any, Final, TypeAlias
from urllib.parse import quote
from uuid import UUID

from ...problems import Problem, UsageProblem
from ..decoding import Undecodable
from .limits import Reader, check_size, contain_themselves, that_stops
from .registry import NoSuchPath, Registry, RegistryAway
from .values import plain, without_traps

_BY_ID, _BY_GUID = 0, 1  # what a framing begins with
_FRAME = 5  # a zero, and the schema's id in 4 bytes, big-endian
_GUID_FRAME = 17  # a one, and the schema's GUID
_MOST_REFERENCES = 1_000  # of one schema, with those that they refer to themselves
_MOST_UNKNOWN = 500  # schemas in a row that the registry does not have: what has their ids is no Avro
_MOST_REFUSED = 10_000  # reasons that are kept
_LONGEST_REASON = 500
_WRAPPER, _CONTENT = "aiokc_wrapper", "content"
#: The headers that have the id of a key's schema, and of a value's; the key or value then begins with itself.
KEY_HEADER: Final = "__key_schema_id"
VALUE_HEADER: Final = "__value_schema_id"

#: The id of a schema in the registry, or its GUID, which it has in all registries.
SchemaId: TypeAlias = int | UUID


def id_in(headers: Sequence[tuple[str, bytes | None]], name: str) -> bytes | None:
    """Return the last header ``name``, or None: a serializer puts its own behind one that was forwarded."""
    return next((value for each, value in reversed(headers) if each == name), None) if headers else None


class AvroDecoder:
    """Decodes keys and values as Confluent's serializers write them. ``prepare()`` must have seen what is decoded."""

    def __init__(self, registry: str | None, timeout_s: float, user_info: str = "") -> None:
        """``user_info``: "USER:PASSWORD" for the registry, if it wants one."""
        self._registry, self._timeout_s = Registry(registry, timeout_s, user_info), timeout_s
        try:
            import fastavro
        except ImportError:
            raise UsageProblem(
                "avro needs the package fastavro, which is not installed", "python -m pip install 'aiokc[avro]'"
            ) from None
        self._fastavro: Any = fastavro
        self._readers: dict[SchemaId, Reader] = {}
        self._refused: dict[SchemaId, str] = {}  # as text: an exception keeps its frames, and all that they hold
        self._unknown_in_a_row = 0

    async def prepare(self, content: bytes | None, header: bytes | None = None) -> None:
        """Ask the registry for the schema of ``content`` if it is not known yet, and for those it refers to.

        ``header``: the record's KEY_HEADER or VALUE_HEADER, where it has one. Raises as ``learn()`` does.
        """
        if (schema_id := self.unknown(content, header)) is not None:
            await self.learn(schema_id)

    def unknown(self, content: bytes | None, header: bytes | None = None) -> SchemaId | None:
        """Return the id of the schema if the registry is to be asked for it. Of most records it is known."""
        if content is None:
            return None
        try:
            schema_id, _ = _split(content, header)
        except Undecodable:
            return None
        if schema_id in self._readers:
            self._unknown_in_a_row = 0
            return None
        return schema_id if schema_id not in self._refused and self._asks else None

    @property
    def _asks(self) -> bool:
        return self._unknown_in_a_row < _MOST_UNKNOWN and len(self._refused) < _MOST_REFUSED

    async def learn(self, schema_id: SchemaId) -> None:
        """Ask for one schema. An answer that takes too long as a whole is none, and its thread ends soon after.

        A schema that the registry does not have is kept as the reason. Where it has none of many in a row, it is not
        asked again until a known one comes: whoever writes records chooses the ids. Raises Problem, and keeps nothing,
        where the registry does not answer, or refuses to: that says nothing of the schema.
        """
        from ...threads import in_daemon_thread

        url = f"{self._registry.address}/schemas/{'guids' if isinstance(schema_id, UUID) else 'ids'}/{schema_id}"
        try:
            async with asyncio.timeout(self._timeout_s):
                self._readers[schema_id] = await in_daemon_thread(partial(self._ask, schema_id, url))
            self._unknown_in_a_row = 0
        except TimeoutError as error:
            raise RegistryAway(f"the schema registry does not answer: {url}: timed out") from error
        except Undecodable as reason:
            self._refused[schema_id] = str(reason)[:_LONGEST_REASON]
            self._unknown_in_a_row += 1

    def __call__(self, data: bytes, header: bytes | None = None) -> tuple[str, str]:
        """Decode one key or value; ``header`` is that of ``prepare()``."""
        schema_id, size = _split(data, header)
        stream = io.BytesIO(data[size:])
        reader = self._readers.get(schema_id)
        if reader is None:
            not_asked = f"has the id of schema {schema_id}, which was not asked for: there were none of many before it"
            raise Undecodable(self._refused.get(schema_id, not_asked))
        try:
            text = json.dumps(plain(reader(stream)), ensure_ascii=False, separators=(",", ":"))
        except RecursionError as error:  # a schema may contain itself: a list of records, say
            raise Undecodable("is nested too deep") from error
        except Exception as error:  # fastavro raises whatever the bytes lead it to
            raise Undecodable(f"is no Avro of schema {schema_id}: {type(error).__name__}: {error}") from error
        if rest := stream.read():
            raise Undecodable(f"has {len(rest)} bytes more than schema {schema_id} says")
        return text, text

    def _ask(self, schema_id: SchemaId, url: str) -> Reader:
        """Return what reads values of a schema. Raises Undecodable where there is none, else Problem."""
        ends = monotonic() + self._timeout_s
        try:
            described = self._described(schema_id, url, ends)
            if (kind := described.get("schemaType", "AVRO")) != "AVRO":
                raise Undecodable(f"schema {schema_id} is of type {kind}, not AVRO")
            schema = json.loads(described["schema"])
            if schema == "bytes" or (isinstance(schema, dict) and schema.get("type") == "bytes"):
                return _rest  # Confluent's serializers, those of Java too, write such a value without its length
            named: dict[str, Any] = {}
            self._add_references(described, named, set(), ends)
            # fastavro keeps the named types with a record only, and the schema may be a union of them, or a name. A
            # record has the bytes of its field, and no more.
            field = {"name": _CONTENT, "type": without_traps(schema)}
            parsed = self._fastavro.parse_schema({"type": "record", "name": _WRAPPER, "fields": [field]}, named)
            check_size(named)
            return self._reader(parsed, named)
        except (Undecodable, Problem):
            raise
        except Exception as error:  # no schema, or one that fastavro refuses in its own words
            raise Undecodable(f"{url} answered no Avro schema: {error}") from error

    def _described(self, schema_id: SchemaId, url: str, ends: float) -> dict[str, Any]:
        try:
            return self._registry.schema(url, ends)
        except NoSuchPath as error:
            if isinstance(schema_id, int):
                raise
            # What looks like a GUID may be the beginning of anything, and older registries have no such path. Where -r
            # is wrong, there are no types, either.
            self._registry.answer(f"{self._registry.address}/schemas/types", ends)
            raise Undecodable(f"{error}: this registry knows no GUIDs") from None

    def _reader(self, schema: Any, named: dict[str, Any]) -> Reader:
        def read(stream: IO[bytes]) -> Any:
            return self._fastavro.schemaless_reader(stream, schema, None)[_CONTENT]

        return that_stops(read, schema, named, _CONTENT) if contain_themselves(named) else read

    def _add_references(self, described: dict[str, Any], named: dict[str, Any], seen: set[str], ends: float) -> None:
        """Add the types that a schema refers to, each behind those that it needs itself.

        A name that was seen is not asked for again, as in Confluent's client: so a circle ends, and fastavro then says
        which type is missing.
        """
        for reference in described.get("references") or ():
            if (name := reference["name"]) in seen:
                continue
            if len(seen) == _MOST_REFERENCES:
                raise Undecodable(f"its schema refers to more than {_MOST_REFERENCES} others")
            seen.add(name)
            # A version that was deleted softly is still what the records were written with.
            path = f"subjects/{quote(reference['subject'], safe='')}/versions/{int(reference['version'])}?deleted=true"
            referred = self._registry.schema(f"{self._registry.address}/{path}", ends)
            self._add_references(referred, named, seen, ends)
            self._fastavro.parse_schema(without_traps(json.loads(referred["schema"])), named)


def _split(content: bytes, header: bytes | None) -> tuple[SchemaId, int]:
    """Return the id of the schema, and where the value begins. Raises Undecodable where there is no id."""
    frame = content if header is None else header
    if frame[:1] == bytes([_BY_ID]) and len(frame) >= _FRAME:
        schema_id: SchemaId = int.from_bytes(frame[1:_FRAME], "big")
        size = _FRAME
    elif frame[:1] == bytes([_BY_GUID]) and len(frame) >= _GUID_FRAME:
        schema_id, size = UUID(bytes=frame[1:_GUID_FRAME]), _GUID_FRAME
    else:
        where = "does not begin with" if header is None else "has a header that is not"
        raise Undecodable(f"{where} the id of a schema")
    return schema_id, size if header is None else 0


def _rest(stream: IO[bytes]) -> bytes:
    return stream.read()
