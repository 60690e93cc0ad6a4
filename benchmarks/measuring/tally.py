"""Touching records: the same three accesses per record for every client, summed up so that a read can be verified."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import Any, Protocol


class Record(Protocol):
    """A record as aiokc, aiokafka and kafka-python hand it out."""

    @property
    def key(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def offset(self) -> int: ...


class Message(Protocol):
    """A record as confluent-kafka hands it out: with methods."""

    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def offset(self) -> Any: ...
    def error(self) -> Any: ...


class Tally:
    """How many records were touched, the bytes of their keys and values, and the sum of their offsets.

    ``offset_sum`` is None for a client that shows no offsets, and ``data_bytes`` may be off by ``data_bytes_error``.
    """

    __slots__ = ("data_bytes", "data_bytes_error", "offset_sum", "records")

    def __init__(
        self, records: int = 0, data_bytes: int = 0, offset_sum: int | None = 0, data_bytes_error: int = 0
    ) -> None:
        self.records = records
        self.data_bytes = data_bytes
        self.offset_sum = offset_sum
        self.data_bytes_error = data_bytes_error

    def add_records(self, records: Iterable[Record]) -> None:
        """Touch key, value and offset of each."""
        count = data_bytes = offset_sum = 0
        for record in records:
            count += 1
            data_bytes += len(record.key) + len(record.value)
            offset_sum += record.offset
        self._add(count, data_bytes, offset_sum)

    async def add_each(self, records: AsyncIterable[Record], until: int) -> None:
        """Touch key, value and offset of each, until there are so many."""
        count = data_bytes = offset_sum = 0
        async for record in records:
            count += 1
            data_bytes += len(record.key) + len(record.value)
            offset_sum += record.offset
            if count == until:
                break
        self._add(count, data_bytes, offset_sum)

    def add_messages(self, messages: Iterable[Message]) -> None:
        """Touch key, value and offset of each; raises RuntimeError for one that carries an error (it has no key)."""
        count = data_bytes = offset_sum = 0
        message = None
        try:
            for message in messages:
                count += 1
                data_bytes += len(message.key()) + len(message.value())
                offset_sum += message.offset()
        except TypeError as error:
            raise RuntimeError(f"the client reported {message and message.error()}") from error
        self._add(count, data_bytes, offset_sum)

    def _add(self, count: int, data_bytes: int, offset_sum: int) -> None:
        self.records += count
        self.data_bytes += data_bytes
        self.offset_sum = (self.offset_sum or 0) + offset_sum
