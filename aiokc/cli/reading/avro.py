"""Avro with the ids of a schema registry (``--value avro -r URL``); the package fastavro decodes it."""

from __future__ import annotations

import asyncio
import base64
import graphlib
import io
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, Final, TypeAlias
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler

from ..problems import Problem, UsageProblem
from .decoding import Undecodable

_MAGIC = 0
_FRAME = 5  # a zero, and the schema's id in 4 bytes, big-endian
_LONGEST_SCHEMA = 16 << 20
_MOST_REFERENCES = 1_000  # of one schema, with those that they refer to themselves
_MOST_WITHOUT_BYTES = 1_000  # values that come of no byte, in the part of a schema that is always there
_MOST_IN_ITEM = 10  # of these in each item of an array, and in each value of a map
_DEEP = 4_000  # bytes of a value that may be nested as deep as C code can follow: a level takes one
_MOST_UNKNOWN = 500  # schemas in a row that the registry does not have: what has their ids is no Avro
_MOST_REFUSED = 10_000  # reasons that are kept
_LONGEST_REASON = 500
_GONE = (404, 410)
_WRAPPER, _CONTENT = "aiokc_wrapper", "content"
#: The variable with a registry's user and password, by the name that it has for Confluent's tools.
USER_INFO: Final = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"

#: Reads one value of a schema.
_Reader: TypeAlias = Callable[[IO[bytes]], Any]


class AvroDecoder:
    """Decodes values framed as Confluent's serializers do. ``prepare()`` must have seen what is decoded."""

    def __init__(self, registry: str | None, timeout_s: float, user_info: str = "") -> None:
        """``user_info``: "USER:PASSWORD" for the registry, if it wants one."""
        if registry is None:
            raise UsageProblem("avro needs the address of the schema registry: -r http://HOST:8081")
        if "@" in registry:  # not shown: it may be user:password@host
            raise UsageProblem(
                "-r: the address of a schema registry has no '@': everybody on this machine sees the command line; "
                f"give USER:PASSWORD in ${USER_INFO}"
            )
        if urlsplit(registry).scheme not in ("http", "https"):
            raise UsageProblem(f"-r {registry}: the address of a schema registry begins with http:// or https://")
        try:
            import fastavro
        except ImportError:
            raise UsageProblem(
                "avro needs the package fastavro, which is not installed", "python -m pip install 'aiokc[avro]'"
            ) from None
        self._fastavro: Any = fastavro
        self._registry, self._timeout_s = registry.rstrip("/"), timeout_s
        self._login = f"Basic {base64.b64encode(user_info.encode()).decode()}" if user_info else ""
        self._readers: dict[int, _Reader] = {}
        self._refused: dict[int, str] = {}  # reasons as text: an exception keeps its frames, and all that they hold
        self._unknown_in_a_row = 0

    async def prepare(self, *contents: bytes | None) -> None:
        """Ask the registry for the schemas of ``contents`` that are not known yet, and for those they refer to.

        A schema that the registry does not have is kept as the reason. Where it has none of many in a row, it is not
        asked again until a known one comes: whoever writes records chooses the ids. Raises Problem, and keeps nothing,
        where the registry does not answer, or refuses to: that says nothing of the schema.
        """
        for schema_id in map(_schema_id, contents):
            if schema_id in self._readers:
                self._unknown_in_a_row = 0
            elif schema_id is not None and schema_id not in self._refused and self._asks:
                await self._learn(schema_id)

    @property
    def _asks(self) -> bool:
        return self._unknown_in_a_row < _MOST_UNKNOWN and len(self._refused) < _MOST_REFUSED

    async def _learn(self, schema_id: int) -> None:
        """Ask for one schema. An answer that takes too long as a whole is none, and its thread is left to itself."""
        from ..threads import in_daemon_thread

        url = f"{self._registry}/schemas/ids/{schema_id}"
        try:
            async with asyncio.timeout(self._timeout_s):
                self._readers[schema_id] = await in_daemon_thread(partial(self._ask, schema_id, url))
            self._unknown_in_a_row = 0
        except TimeoutError as error:
            raise Problem(f"the schema registry does not answer: {url}: timed out") from error
        except Undecodable as reason:
            self._refused[schema_id] = str(reason)[:_LONGEST_REASON]
            self._unknown_in_a_row += 1

    def __call__(self, data: bytes) -> tuple[str, str]:
        """Decode one key or value."""
        schema_id = _schema_id(data)
        if schema_id is None:
            raise Undecodable("does not begin with the id of a schema")
        reader = self._readers.get(schema_id)
        if reader is None:
            not_asked = f"has the id of schema {schema_id}, which was not asked for: there were none of many before it"
            raise Undecodable(self._refused.get(schema_id, not_asked))
        stream = io.BytesIO(data[_FRAME:])
        try:
            text = json.dumps(_plain(reader(stream)), ensure_ascii=False, separators=(",", ":"))
        except RecursionError as error:  # a schema may contain itself: a list of records, say
            raise Undecodable("is nested too deep") from error
        except Exception as error:  # fastavro raises whatever the bytes lead it to
            raise Undecodable(f"is no Avro of schema {schema_id}: {type(error).__name__}: {error}") from error
        if rest := stream.read():
            raise Undecodable(f"has {len(rest)} bytes more than schema {schema_id} says")
        return text, text

    def _ask(self, schema_id: int, url: str) -> _Reader:
        """Return what reads values of a schema. Raises Undecodable where there is none, else Problem."""
        try:
            described = self._answer(url)
            if (kind := described.get("schemaType", "AVRO")) != "AVRO":
                raise Undecodable(f"schema {schema_id} is of type {kind}, not AVRO")
            named: dict[str, Any] = {}
            self._add_references(described, named, set())
            # fastavro keeps the named types with a record only, and the schema may be a union of them, or a name. A
            # record has the bytes of its field, and no more.
            field = {"name": _CONTENT, "type": json.loads(described["schema"])}
            schema = self._fastavro.parse_schema({"type": "record", "name": _WRAPPER, "fields": [field]}, named)
            _check_size(named)
            return self._reader(schema, named)
        except (Undecodable, Problem):
            raise
        except Exception as error:  # no JSON, no schema, or one that fastavro refuses in its own words
            raise Undecodable(f"{url} answered no Avro schema: {error}") from error

    def _reader(self, schema: Any, named: dict[str, Any]) -> _Reader:
        def read(stream: IO[bytes]) -> Any:
            return self._fastavro.schemaless_reader(stream, schema, None)[_CONTENT]

        return _that_stops(read, schema, named) if _contain_themselves(named) else read

    def _add_references(self, described: dict[str, Any], named: dict[str, Any], seen: set[str]) -> None:
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
            referred = self._answer(f"{self._registry}/{path}")
            self._add_references(referred, named, seen)
            self._fastavro.parse_schema(json.loads(referred["schema"]), named)

    def _answer(self, url: str) -> Any:
        """Return what the registry answers. Raises Undecodable where it has no such thing, else Problem."""
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request, build_opener

        request = Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
        if self._login:
            request.add_unredirected_header("Authorization", self._login)  # another host gets no password
        try:
            with build_opener(_Redirects).open(request, timeout=self._timeout_s) as answer:
                body = answer.read(_LONGEST_SCHEMA)
        except HTTPError as error:
            error.close()
            said = f"{url} answered {error.code} {error.reason}"
            if error.code in _GONE:
                raise Undecodable(said) from None
            raise Problem(f"the schema registry refuses: {said}") from None
        except (OSError, HTTPException) as error:
            raise Problem(f"the schema registry does not answer: {url}: {getattr(error, 'reason', error)}") from error
        return json.loads(body)


class _Redirects(HTTPRedirectHandler):
    """Follows a registry to another place by the registry's own scheme or by https:, and not to ftp: or the like."""

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        if urlsplit(newurl).scheme not in (req.type, "https"):
            fp.close()
            raise Problem(f"the schema registry refuses: {req.full_url} answered {code}, and leads to {newurl}")
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _check_size(named: dict[str, Any]) -> None:
    """Raise Undecodable where a few bytes of these types can stand for any number of values.

    An array has its number of items first: of items that take no byte 10 bytes bring 2 ** 63.
    """
    counts: dict[str, tuple[int, bool] | None] = {}
    for definition in list(named.values()):
        _without_bytes(definition, named, counts)
        for schema in _types_in(definition):
            if not isinstance(schema, dict) or schema["type"] not in ("array", "map"):
                continue
            count, takes_bytes = _without_bytes(schema.get("items", schema.get("values")), named, counts)
            if not takes_bytes and schema["type"] == "array":
                raise Undecodable("is of a schema with an array whose items take no byte")
            if count > _MOST_IN_ITEM:
                raise Undecodable(
                    f"is of a schema with more than {_MOST_IN_ITEM} values that take no byte in each item of a type"
                )


def _without_bytes(schema: Any, named: dict[str, Any], counts: dict[str, tuple[int, bool] | None]) -> tuple[int, bool]:
    """Return how many values there always are that no byte is read for, and whether a byte is read for any.

    ``counts`` has what is known of records; None for one that is being looked at.
    """
    if isinstance(schema, str):
        schema = named.get(schema, {"type": schema})
    kind = "union" if isinstance(schema, list) else schema["type"]
    if kind == "null" or (kind == "fixed" and schema["size"] <= 0):
        return 1, False
    if kind not in ("record", "error"):
        return 0, True  # arrays and maps have a count, unions the number of a branch
    name = schema["name"]
    if name not in counts:
        counts[name] = None
        fields = [_without_bytes(field["type"], named, counts) for field in schema["fields"]]
        takes_bytes = any(each for _, each in fields)
        counts[name] = sum(count for count, _ in fields) + (not takes_bytes), takes_bytes
    if (found := counts[name]) is None:
        raise Undecodable(f"is of a schema whose type {name} contains itself without end")
    if found[0] > _MOST_WITHOUT_BYTES:
        raise Undecodable(f"is of a schema with more than {_MOST_WITHOUT_BYTES} values that take no byte")
    return found


def _that_stops(read: _Reader, schema: Any, named: dict[str, Any]) -> _Reader:
    """Return ``read`` for short values, and for long ones a slow reader that raises RecursionError.

    fastavro's C code knows no such error: a long value of a type that contains itself ends the process. Its Python
    code, for interpreters without the C code, knows no end of a number: one of a megabyte takes it minutes.
    """
    from fastavro import _read_py
    from fastavro.io.binary_decoder import BinaryDecoder

    class Decoder(BinaryDecoder):  # type: ignore[misc]  # the module has no types
        def read_long(self) -> int:
            number: int = 0
            shift = 0
            for byte in iter(partial(self.fo.read, 1), b""):
                number |= (byte[0] & 0x7F) << shift
                shift += 7
                if byte[0] < 0x80:
                    return (number >> 1) ^ -(number & 1)
                if shift == 70:
                    raise ValueError("a number of more than 10 bytes")
            raise EOFError

        read_int = read_long

    def read_slowly(stream: IO[bytes]) -> Any:
        types = {"writer": named, "reader": {}}
        return _read_py.read_data(Decoder(stream), schema, types, None, {})[_CONTENT]

    def read_either(stream: IO[bytes]) -> Any:
        size = stream.seek(0, io.SEEK_END)
        stream.seek(0)
        return read(stream) if size <= _DEEP else read_slowly(stream)

    return read_either


def _contain_themselves(named: dict[str, Any]) -> bool:
    parts = {
        name: {each for each in _types_in(definition) if isinstance(each, str) and each in named}
        for name, definition in named.items()
    }
    try:
        graphlib.TopologicalSorter(parts).prepare()
    except graphlib.CycleError:
        return True
    return False


def _types_in(schema: Any) -> Iterator[Any]:
    """Yield a parsed schema and all that it is made of; a type that is only named as its name."""
    yield schema
    if isinstance(schema, list):
        parts = schema
    elif isinstance(schema, dict):
        parts = [schema[key] for key in ("items", "values") if key in schema]
        parts += [field["type"] for field in schema.get("fields", ())]
    else:
        return
    for part in parts:
        yield from _types_in(part)


def _schema_id(content: bytes | None) -> int | None:
    if content is None or len(content) < _FRAME or content[0] != _MAGIC:
        return None
    return int.from_bytes(content[1:_FRAME], "big")


def _plain(value: Any) -> Any:
    """Return a decoded value as JSON can hold it: bytes in hex, times and decimals as text."""
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)
