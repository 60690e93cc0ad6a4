"""Calls the application's deserializers on decoded records, in order, in time slices, and places their errors."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Collection
from contextlib import ExitStack
from itertools import islice
from operator import attrgetter
from typing import Any, Literal, TypeAlias

from ...core.fetch.partition.partition_buffer import PartitionBuffer
from ...errors import ConfigError, DeserializationFailed, fresh
from ...net.user_errors import USER_ERRORS, ends_us
from ...serialization.deserializer import AsyncDeserializer
from ...types import RawRecord, TopicPartition, typed_record
from ..aio.time_slice import TimeSlice
from ..aio.user_code import UserCodeTimeout
from .collector import FetchCollector

Origin: TypeAlias = Literal["key", "value"]


class Deserializing:
    """The stage between decoding and handing out, where the application has given deserializers.

    Results stay in the partitions' buffers until they are handed out. So a call that is cancelled here has handed out
    nothing, and the next call goes on at the same record. Results under an older token (the partition was revoked, or
    the application sought) are dropped with their buffer.
    """

    def __init__(self, key: object, value: object, collector: FetchCollector, *, patience: float) -> None:
        """``patience``: how many seconds one key or value may take. Raises ConfigError for what is no deserializer."""
        self._key = _reader("key", key)
        self._value = _reader("value", value)
        collector.hand_out_typed()
        self._counters = collector.counters
        self._buffers = collector.buffer
        self._subscription = collector.subscription
        self._user_code_timeout = patience
        self._waiting: UserCodeTimeout | None = None
        self._stopped = False

    def stop(self) -> None:
        """End the wait for a deserializer, now and from now on: the consumer stops."""
        self._stopped = True
        if self._waiting is not None:
            self._waiting.end()

    async def run(
        self, count: int, only: Collection[TopicPartition] | None, deadline: float | None, time_slice: TimeSlice
    ) -> None:
        """Deserialize up to ``count`` records, in the order in which ``take`` hands them out.

        After ``deadline`` it begins no further record once there is one to hand out. Other tasks run after each
        ``time_slice``; all partitions share it, for each may have a single record. If a record can't be deserialized,
        the records behind it in its partition wait. When it is the first in line, it is tried again, since a look-up
        may have failed that works now. If it fails again, its error is raised. So one call hands out the records before
        it, and the call after that raises the error; then all other partitions are served before it is raised again.
        """
        done = 0
        for buffer, _ in self._buffers.servable(self._subscription, only):
            if buffer.refused is not None and not buffer.typed:
                if done:
                    continue
                buffer.refused = None
            until = None if deadline is None else (deadline, done)
            has_time = await self._fill(buffer, count - done, until, time_slice)
            if self._serves(buffer):
                done += len(buffer.typed)
                if not done and buffer.refused is not None:
                    self._buffers.pass_by(buffer)
                    raise fresh(buffer.refused)
            if not has_time or done >= count:
                return

    async def _fill(
        self, buffer: PartitionBuffer, count: int, deadline: tuple[float, int] | None, time_slice: TimeSlice
    ) -> bool:
        """Deserialize the first ``count`` records of a partition; return whether there is time for more."""
        time, task = asyncio.get_running_loop().time, asyncio.current_task()
        others_ran = False
        origin: Origin = "key"
        raw: RawRecord | None = None
        typed = buffer.typed = list(buffer.typed)
        waits: ExitStack[bool] = ExitStack()
        with waits:
            # One by one: it would hold the loop to make the objects of all (there may be 100,000) in one step.
            for raw in islice(buffer.ready, len(typed), None):
                if buffer.refused is not None or len(typed) >= count:
                    break
                try:
                    origin = "key"
                    key = self._key(raw)
                    if hasattr(type(key), "__await__"):
                        others_ran = True
                        key = await self._wait(key, waits)
                    origin = "value"
                    value = self._value(raw)
                    if hasattr(type(value), "__await__"):
                        others_ran = True
                        value = await self._wait(value, waits)
                    typed.append(typed_record(raw, key, value))
                except USER_ERRORS as error:
                    if ends_us(error, task):
                        raise
                    self._refuse(buffer, raw, origin, f"raised {type(error).__name__}", error)
                if time() > time_slice.ends:
                    if deadline is not None and time() >= deadline[0] and (deadline[1] or typed):
                        return False
                    await time_slice.give_way()
                    others_ran = True
                if others_ran and (self._stopped or not self._serves(buffer)):
                    break
                others_ran = False
            return True
        # Reached where the scope of UserCodeTimeout was cancelled: by its timer or by `stop`.
        if not self._stopped and raw is not None:
            late = f"was not done after {self._user_code_timeout:.3g} s (default_api_timeout_ms), and cancelled"
            self._refuse(buffer, raw, origin, late, None)
        return not self._stopped

    def _serves(self, buffer: PartitionBuffer) -> bool:
        """Whether the buffer may still be handed out: during an await it may be revoked, paused or sought."""
        position = self._subscription.get(buffer.tp, buffer.token)
        return position is not None and position.fetchable and self._buffers.is_current(buffer)

    async def _wait(self, result: Awaitable[Any], waits: ExitStack[bool]) -> Any:
        if self._waiting is None:
            self._waiting = waits.enter_context(UserCodeTimeout(self._user_code_timeout))
            waits.callback(self._no_longer)
        return await self._waiting.wait(result)

    def _no_longer(self) -> None:
        self._waiting = None

    def _refuse(
        self, buffer: PartitionBuffer, raw: RawRecord, origin: Origin, problem: str, error: BaseException | None
    ) -> None:
        """Hold back ``raw``, the first record not deserialized; leave out ``error``'s text, which may hold a secret."""
        self._counters.undecodable += 1
        buffer.refused = DeserializationFailed(raw, origin, problem)
        buffer.refused.__cause__ = error


def _reader(origin: Origin, deserializer: Any) -> Callable[[RawRecord], Any]:
    """Return a function that gives a record's key or value, or an awaitable of it.

    Null stays None, as in Java: a tombstone says that there is no value, so there is nothing to deserialize.
    """
    content: Callable[[RawRecord], bytes | None] = attrgetter(origin)
    if deserializer is None:
        return content
    if isinstance(deserializer, AsyncDeserializer):
        deserializer = deserializer.wrapped
    method = getattr(deserializer, "deserialize", None)
    if inspect.isclass(deserializer) and method is not None:
        raise ConfigError(f"{origin}_deserializer is the class {deserializer.__name__}: give an instance of it")
    if method is not None:

        def by_object(raw: RawRecord) -> Any:
            data = content(raw)
            return None if data is None else method(raw.topic, raw.headers, data)

        return by_object
    if not callable(deserializer):
        raise ConfigError(
            f"{origin}_deserializer must be a function of the bytes, or an object with deserialize(topic, headers, "
            f"data), not {type(deserializer).__name__}"
        )

    def by_function(raw: RawRecord) -> Any:
        data = content(raw)
        return None if data is None else deserializer(data)

    return by_function
