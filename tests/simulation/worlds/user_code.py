"""The code that applications pass to their consumers in some worlds: slow and failing deserializers, interceptors."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, Final, Literal, TypeAlias

from aiokc import ConsumerInterceptor, ConsumerRecords, Headers, OffsetAndMetadata, TopicPartition

#: How values are deserialized: not at all, or to the same bytes, at once or after a while.
Deserializes: TypeAlias = Literal["not at all", "sync", "async"]
DESERIALIZES: Final[tuple[Deserializes, ...]] = ("not at all", "not at all", "sync", "async", "async")

# The share of calls in which a deserializer fails, until ``calm`` is set: the same record is deserialized again.
_FAILS: Final = 0.05


class RegistryAway(Exception):
    """A deserializer or an interceptor fails."""


class Values:
    """A deserializer of values that returns the bytes that it gets."""

    def __init__(self, how: Deserializes, random: Random) -> None:
        self.calm = False
        self._random = random
        self.deserialize: Callable[[str, Headers, bytes], Any] = self._at_once if how == "sync" else self._after_a_while

    def _at_once(self, topic: str, headers: Headers, data: bytes) -> bytes:
        if not self.calm and self._random.random() < _FAILS:
            raise RegistryAway
        return data

    async def _after_a_while(self, topic: str, headers: Headers, data: bytes) -> bytes:
        if not self.calm and self._random.random() < 0.3:
            await asyncio.sleep(self._random.expovariate(100))
        return self._at_once(topic, headers, data)


class Meddler(ConsumerInterceptor):
    """An interceptor that removes all records that it gets, and then fails: this must have no effect."""

    def on_consume(self, records: ConsumerRecords[Any, Any]) -> ConsumerRecords[Any, Any]:
        records.clear()
        raise RegistryAway

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        raise RegistryAway
