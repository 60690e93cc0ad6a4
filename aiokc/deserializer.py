"""Deserializers: what turns the bytes of keys and values into the user's own objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeAlias, TypeVar

from .types import Headers

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Deserializer(Protocol[T_co]):
    """A deserializer that is told where the bytes come from, as Kafka's own are (KIP-336)."""

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> T_co:
        """Return what ``data`` means; it is never None. It may be ``async def``; see AsyncDeserializer."""


class AsyncDeserializer(Generic[T_co]):
    """Tells a checker of types that the deserializer is to be awaited; a consumer sees that without it as well.

    Else the checker takes the coroutine for the value, since it can't tell a function that gives T after an await from
    one that gives an awaitable. ``wrapped`` is an async function of the bytes, or has an async ``deserialize``.
    """

    def __init__(self, wrapped: Callable[[bytes], Awaitable[T_co]] | Deserializer[Awaitable[T_co]]) -> None:
        self.wrapped = wrapped


#: What key_deserializer and value_deserializer may be: a function of the bytes is the simplest one.
AnyDeserializer: TypeAlias = Callable[[bytes], T] | Deserializer[T] | AsyncDeserializer[T]
