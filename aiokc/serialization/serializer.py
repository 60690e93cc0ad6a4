"""The types of serializers: code of the application that turns objects into the bytes of keys and values."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

#: The headers of a record, for its serializers to change.
HeadersOut: TypeAlias = list[tuple[str, bytes | None]]


class Serializer(Protocol[T_contra]):
    """A serializer that is given the topic and the headers with the object, as Kafka's own are (KIP-336)."""

    def serialize(self, topic: str, headers: HeadersOut, data: T_contra, /) -> bytes:
        """Return the bytes of ``data``, which is never None.

        ``headers`` is a list of this record's own, and what it holds afterwards is sent: a serializer may add headers.
        That of the key is called first, and that of the value sees what it has added.

        send() and the other calls raise SerializationFailed for an exception of this method, and append nothing.
        """


class AwaitedSerializer(Protocol[T_contra]):
    """A serializer whose ``serialize`` is ``async def``: give it as AsyncSerializer(...)."""

    def serialize(self, topic: str, headers: HeadersOut, data: T_contra, /) -> Awaitable[bytes]: ...


class AsyncSerializer(Generic[T_contra]):
    """Says that a serializer is async: ``wrapped`` is an async function of the object, or has an async ``serialize``.

    The producer must know it before the first record: send(), send_and_wait() and send_many() can wait for a
    serializer, and send_soon() can't.
    """

    def __init__(self, wrapped: Callable[[T_contra], Awaitable[bytes]] | AwaitedSerializer[T_contra]) -> None:
        self.wrapped = wrapped


#: What key_serializer and value_serializer may be. The simplest one is a function that returns the bytes.
AnySerializer: TypeAlias = Callable[[T], bytes] | Serializer[T] | AsyncSerializer[T]
