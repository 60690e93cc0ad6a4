"""The types of deserializers: code of the application that turns the bytes of keys and values into objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeAlias, TypeVar

from ..types import Headers

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Deserializer(Protocol[T_co]):
    """A deserializer that is given the topic and the headers with the bytes, as Kafka's own are (KIP-336)."""

    def deserialize(self, topic: str, headers: Headers, data: bytes, /) -> T_co:
        """Return the object for ``data``, which is never None. It may be ``async def``; see AsyncDeserializer.

        getmany() and the other calls raise DeserializationFailed for an exception of this method.
        """


class AsyncDeserializer(Generic[T_co]):
    """Tells a type checker that the deserializer is async. At run time a consumer finds that out without it as well.

    Without it the checker takes the coroutine for the value: it can't tell an async function that returns T from a
    function that returns an awaitable. ``wrapped`` is an async function of the bytes, or has an async ``deserialize``.
    """

    def __init__(self, wrapped: Callable[[bytes], Awaitable[T_co]] | Deserializer[Awaitable[T_co]]) -> None:
        self.wrapped = wrapped


#: What key_deserializer and value_deserializer may be. The simplest one is a function of the bytes.
AnyDeserializer: TypeAlias = Callable[[bytes], T] | Deserializer[T] | AsyncDeserializer[T]
