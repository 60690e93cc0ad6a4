"""Avro with the ids of a schema registry (``--value avro -r URL``); the package fastavro decodes it."""

from __future__ import annotations

import base64
import io
import json
import math
from functools import partial
from typing import Any, Final
from urllib.parse import quote, urlsplit

from ..problems import Problem, UsageProblem
from .decoding import Undecodable

_MAGIC = 0
_FRAME = 5  # a zero, and the schema's id in 4 bytes, big-endian
_LONGEST_SCHEMA = 16 << 20
_MOST_REFERENCES = 1_000  # of one schema, with those that they refer to themselves
_GONE = (404, 410)
_WRAPPER, _CONTENT = "aiokc_wrapper", "content"
#: The variable with a registry's user and password, by the name that it has for Confluent's tools.
USER_INFO: Final = "SCHEMA_REGISTRY_BASIC_AUTH_USER_INFO"


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
        self._schemas: dict[int, Any] = {}

    async def prepare(self, *contents: bytes | None) -> None:
        """Ask the registry for the schemas of ``contents`` that are not known yet, and for those they refer to.

        A schema that the registry does not have is kept as the reason. Raises Problem, and keeps nothing, where the
        registry does not answer, or refuses to: that says nothing of the schema.
        """
        from ..threads import in_daemon_thread

        for schema_id in {_schema_id(content) for content in contents} - self._schemas.keys() - {None}:
            assert schema_id is not None
            self._schemas[schema_id] = await in_daemon_thread(partial(self._ask, schema_id))

    def __call__(self, data: bytes) -> tuple[str, str]:
        """Decode one key or value."""
        schema_id = _schema_id(data)
        if schema_id is None:
            raise Undecodable("does not begin with the id of a schema")
        schema = self._schemas[schema_id]
        if isinstance(schema, Undecodable):
            raise Undecodable(str(schema))  # one that is raised again keeps the frames, and the data, of each time
        stream = io.BytesIO(data[_FRAME:])
        try:
            content = self._fastavro.schemaless_reader(stream, schema, None)[_CONTENT]
            text = json.dumps(_plain(content), ensure_ascii=False, separators=(",", ":"))
        except RecursionError as error:  # a schema may contain itself: a list of records, say
            raise Undecodable("is nested too deep") from error
        except Exception as error:  # fastavro raises whatever the bytes lead it to
            raise Undecodable(f"is no Avro of schema {schema_id}: {type(error).__name__}: {error}") from error
        if rest := stream.read():
            raise Undecodable(f"has {len(rest)} bytes more than schema {schema_id} says")
        return text, text

    def _ask(self, schema_id: int) -> Any:
        url = f"{self._registry}/schemas/ids/{schema_id}"
        try:
            described = self._answer(url)
            if (kind := described.get("schemaType", "AVRO")) != "AVRO":
                return Undecodable(f"schema {schema_id} is of type {kind}, not AVRO")
            named: dict[str, Any] = {}
            self._add_references(described, named, set())
            # fastavro keeps the named types with a record only, and the schema may be a union of them, or a name. A
            # record has the bytes of its field, and no more.
            field = {"name": _CONTENT, "type": json.loads(described["schema"])}
            return self._fastavro.parse_schema({"type": "record", "name": _WRAPPER, "fields": [field]}, named)
        except Undecodable as reason:
            return reason
        except Problem:
            raise
        except Exception as error:  # no JSON, no schema, or one that fastavro refuses in its own words
            return Undecodable(f"{url} answered no Avro schema: {error}")

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
        from urllib.request import Request, urlopen

        request = Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
        if self._login:
            request.add_unredirected_header("Authorization", self._login)  # another host gets no password
        try:
            with urlopen(request, timeout=self._timeout_s) as answer:
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
