"""Touching records: the same accesses to each for every client, summed up so that a read can be verified."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable, Sequence
from typing import Any, Protocol

from ..cases import Takes


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
    """How many records were touched, the bytes of what was taken of them, and the sum of their offsets.

    ``takes`` is what the program takes of each record. "value": it looks at no offset; ``ended_at`` gives their sum.
    ``offset_sum`` is None for a client that shows no offsets, and ``data_bytes`` may be off by ``data_bytes_error``.
    """

    __slots__ = ("data_bytes", "data_bytes_error", "offset_sum", "records", "takes")

    def __init__(
        self,
        records: int = 0,
        data_bytes: int = 0,
        offset_sum: int | None = 0,
        data_bytes_error: int = 0,
        *,
        takes: Takes = "all",
    ) -> None:
        self.records = records
        self.data_bytes = data_bytes
        self.offset_sum = offset_sum
        self.data_bytes_error = data_bytes_error
        self.takes = takes

    def add_records(self, records: Sequence[Record]) -> None:
        """Touch each."""
        data_bytes = offset_sum = 0
        if self.takes == "value":
            for record in records:
                data_bytes += len(record.value)
        else:
            for record in records:
                data_bytes += len(record.key) + len(record.value)
                offset_sum += record.offset
        self._add(len(records), data_bytes, offset_sum)

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

    def add_messages(self, messages: Sequence[Message]) -> None:
        """Touch each. Raises RuntimeError for one that carries an error (it has no key).

        The value of such a message is the error's text: where values alone are taken, the bytes are wrong by that.
        """
        data_bytes = offset_sum = 0
        if self.takes == "value":
            for one in messages:
                data_bytes += len(one.value())
            return self._add(len(messages), data_bytes, 0)
        message: Message | None = None
        try:
            for message in messages:
                data_bytes += len(message.key()) + len(message.value())
                offset_sum += message.offset()
        except TypeError as error:
            raise RuntimeError(f"the client reported {message and message.error()}") from error
        self._add(len(messages), data_bytes, offset_sum)

    def ended_at(self, positions: Iterable[int]) -> None:
        """The client's positions after the last record: of a program that looks at no offset, they give the sum."""
        if self.takes == "value":
            self.offset_sum = sum(end * (end - 1) // 2 for end in positions)

    def _add(self, count: int, data_bytes: int, offset_sum: int) -> None:
        self.records += count
        self.data_bytes += data_bytes
        self.offset_sum = (self.offset_sum or 0) + offset_sum
