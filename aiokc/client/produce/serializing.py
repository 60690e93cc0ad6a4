"""Calls the application's serializers, which turn keys and values into bytes, and names the one that fails."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any, Literal, TypeAlias

from ...errors import ConfigError, SerializationFailed
from ...net.user_errors import USER_ERRORS, ends_us
from ...serialization.serializer import AsyncSerializer, HeadersOut
from ...types import HeadersToSend, ProducerRecord
from ..arguments import checked_headers

Origin: TypeAlias = Literal["key", "value"]
#: A key, a value and headers, as they are sent.
Serialized: TypeAlias = tuple[bytes | None, bytes | None, HeadersToSend]
_Headers: TypeAlias = HeadersOut | None
_Writer: TypeAlias = Callable[[str, _Headers, Any], Any]


class Serializing:
    """The serializers of one producer. None reaches none of them: it stands for no key, and for a tombstone."""

    def __init__(self, key: object, value: object) -> None:
        """Raises ConfigError for what is no serializer."""
        self._key = _writer("key", key)
        self._value = _writer("value", value)
        self._sees_headers = any(hasattr(_unwrapped(serializer), "serialize") for serializer in (key, value))
        #: Whether there is none: keys and values are bytes.
        self.is_nothing = key is None and value is None
        #: Which of them has to be awaited: only send() and send_and_wait() can do that.
        self.is_async = isinstance(key, AsyncSerializer) or isinstance(value, AsyncSerializer)

    def serialize(self, record: ProducerRecord[Any, Any]) -> Serialized:
        """Return key and value in bytes, and the headers that the serializers have left. Raises SerializationFailed."""
        topic, value, key = record.topic, record.value, record.key
        headers = self._headers(record)
        key_bytes = None if key is None else self._made("key", self._key, topic, headers, key)
        value_bytes = None if value is None else self._made("value", self._value, topic, headers, value)
        return key_bytes, value_bytes, record.headers if headers is None else tuple(headers)

    def _made(self, origin: Origin, write: _Writer, topic: str, headers: _Headers, data: object) -> bytes:
        return _checked(origin, write, topic, headers, _called(origin, write, topic, headers, data))

    async def serialize_async(self, record: ProducerRecord[Any, Any]) -> Serialized:
        """Do as ``serialize``, and await what has to be awaited."""
        topic, value, key = record.topic, record.value, record.key
        headers = self._headers(record)
        key_bytes = None if key is None else await self._awaited("key", self._key, topic, headers, key)
        value_bytes = None if value is None else await self._awaited("value", self._value, topic, headers, value)
        return key_bytes, value_bytes, record.headers if headers is None else tuple(headers)

    async def _awaited(self, origin: Origin, write: _Writer, topic: str, headers: _Headers, data: object) -> bytes:
        result = _called(origin, write, topic, headers, data)
        if inspect.isawaitable(result):
            result = await _caught(origin, topic, result)
        return _checked(origin, write, topic, headers, result)

    def _headers(self, record: ProducerRecord[Any, Any]) -> _Headers:
        """Return a list of the record's headers for the serializers to change; None: none of them sees headers."""
        return list(record.headers) if self._sees_headers else None


async def _caught(origin: Origin, topic: str, result: Awaitable[Any]) -> Any:
    task = asyncio.current_task()
    try:
        return await result
    except USER_ERRORS as error:
        if ends_us(error, task):
            raise
        raise SerializationFailed(origin, f"raised {type(error).__name__}", topic=topic) from error


def _called(origin: Origin, write: _Writer, topic: str, headers: _Headers, data: object) -> Any:
    try:
        return write(topic, headers, data)
    except USER_ERRORS as error:
        raise SerializationFailed(origin, f"raised {type(error).__name__}", topic=topic) from error


def _checked(origin: Origin, write: _Writer, topic: str, headers: _Headers, data: Any) -> bytes:
    if headers is not None:
        try:
            headers[:] = checked_headers(headers)
        except ConfigError as error:
            raise SerializationFailed(origin, "has left a header that can't be sent", topic=topic) from error
    if type(data) is bytes:
        return data
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    if inspect.iscoroutine(data):
        data.close()
        problem = "is async: give it as AsyncSerializer(...)"
    elif write is _as_it_is:
        problem = f"is missing: without one the {origin} must be bytes, not {type(data).__name__}"
    else:
        problem = f"returned {type(data).__name__}, not bytes"
    raise SerializationFailed(origin, problem, topic=topic)


def _as_it_is(topic: str, headers: _Headers, data: Any) -> Any:
    return data


def _writer(origin: Origin, serializer: Any) -> _Writer:
    """Return a function that gives the bytes, or an awaitable of them."""
    if serializer is None:
        return _as_it_is
    serializer = _unwrapped(serializer)
    method = getattr(serializer, "serialize", None)
    if inspect.isclass(serializer) and method is not None:
        raise ConfigError(f"{origin}_serializer is the class {serializer.__name__}: give an instance of it")
    if method is not None:
        write: _Writer = method
        return write
    if not callable(serializer):
        raise ConfigError(
            f"{origin}_serializer must be a function that returns bytes, or an object with serialize(topic, headers, "
            f"data), not {type(serializer).__name__}"
        )
    return lambda topic, headers, data: serializer(data)


def _unwrapped(serializer: object) -> Any:
    return serializer.wrapped if isinstance(serializer, AsyncSerializer) else serializer
