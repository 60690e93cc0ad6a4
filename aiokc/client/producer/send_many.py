"""send_many(): appends many records, or the rows of Arrow columns, most of them by one call into C for some hundred."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from ...config import ProducerConfig
from ...errors import ConfigError, KafkaError, shown
from ...net.user_errors import USER_ERRORS, as_error
from ...records.encoding.batch_builder import OpenBatch, append_records
from ...records.encoding.columns import ColumnRecords, column_records
from ...types import ProducerRecord
from ..aio.time_slice import TimeSlice
from ..produce.batch_delivery import BatchDelivery
from .appending import Appending
from .records import check_topic, checked_record
from .simple_appends import AT_ONCE, SimpleAppends

#: After so many records it looks at the time: a serializer takes some microseconds at least, an iterable less. Both may
#: take much longer, and nobody else runs meanwhile.
_SERIALIZED_PER_LOOK: Final = 4
_TAKEN_PER_LOOK: Final = 16
_ITERABLE: Final = "the iterable of records"


class _Listed:
    """Records that the application gave one by one. ``serialized``: their keys and values are bytes by now."""

    def __init__(self, topic: str, records: Sequence[Any], *, serialized: bool) -> None:
        self.topic, self._records, self.serialized = topic, tuple(records), serialized

    def __len__(self) -> int:
        return len(self._records)

    def record(self, at: int) -> Any:
        return self._records[at]

    def append(self, appenders: list[OpenBatch | None], start: int, stop: int, *call: Any) -> tuple[int, int]:
        return append_records(appenders, self.topic, self._records, start, stop, *call)


class _Columns:
    """The rows of an Arrow record batch, for a producer without serializers."""

    serialized = False

    def __init__(self, topic: str, rows: ColumnRecords) -> None:
        self.topic, self._rows = topic, rows
        self.append = rows.append

    def __len__(self) -> int:
        return len(self._rows)

    def record(self, at: int) -> Any:
        return ProducerRecord(self.topic, *self._rows.record(at))


class ManyRecords:
    """Appends the records of one call after the other, in time slices. Other tasks may append in between."""

    def __init__(self, config: ProducerConfig, appending: Appending) -> None:
        self._appending = appending
        self._simple = SimpleAppends(config, appending)

    async def send(self, topic: str, records: Any, *, timeout: float) -> BatchDelivery:
        """Append all records; wait for metadata and memory, at most ``timeout`` seconds without an append.

        All belong to the transaction that is open at the call: the rest of them joins no other one. What is raised for
        a record says in a note how many were appended before it.
        """
        appending, delivery = self._appending, BatchDelivery()
        appending.check()
        begun = appending.accumulator.session.begun
        try:
            check_topic(topic)
            _check_many(records)
            if appending.routes.known(topic) is None:
                await appending.routes.find(topic, None, timeout)
                appending.check_same(begun, topic)
            await self._send(topic, records, delivery, timeout, begun)
        except Exception as error:
            # Whatever it is, of an argument too: the transaction lacks the record that it is about, and the rest.
            appending.accumulator.session.refused(error, begun)
            _tell(error, delivery)
            raise
        return delivery

    async def _send(self, topic: str, records: Any, delivery: BatchDelivery, timeout: float, begun: int) -> None:
        appending, time_slice = self._appending, TimeSlice()
        time_slice.begins()
        if hasattr(type(records), "__arrow_c_array__"):
            rows = _Columns(topic, self._rows(records))
            return await self._append_all(rows, delivery, time_slice, timeout, begun)
        serializes = not (appending.takes_bytes or appending.serializing.is_async or appending.interceptors)
        left = self._serialized(topic, records) if serializes else _iterator_of(records)
        is_quick = not serializes and type(records) in (list, tuple)
        look = AT_ONCE if is_quick else _SERIALIZED_PER_LOOK if serializes else _TAKEN_PER_LOOK
        while True:
            some, ended = _next_of(left, look, time_slice.ends)
            if not some and ended is None:
                return None
            if not is_quick and asyncio.get_running_loop().time() >= time_slice.ends:
                await time_slice.give_way()
            appending.check_same(begun, topic)  # the iterator or a serializer may have sent what failed it
            await self._append_all(_Listed(topic, some, serialized=serializes), delivery, time_slice, timeout, begun)
            if ended is not None:
                raise ended

    def _serialized(self, topic: str, records: Iterable[Any]) -> Iterator[Any]:
        """The records with bytes in the place of keys and values."""
        for given in _iterator_of(records):
            record = _record(topic, given)
            if record is given:
                record = checked_record(*record)
            key, value, headers = self._appending.serializing.serialize(record)
            if headers or isinstance(given, ProducerRecord):
                yield record._replace(key=key, value=value, headers=headers)
            else:  # a value alone stays one: that is the cheapest to append
                yield value

    def _rows(self, columns: Any) -> ColumnRecords:
        if not self._appending.serializing.is_nothing:
            raise ConfigError("columns hold bytes already: give them to a Producer without serializers")
        try:
            return column_records(columns)
        except TypeError as error:
            raise ConfigError(f"records: {error}") from error

    async def _append_all(
        self, rows: _Listed | _Columns, delivery: BatchDelivery, time_slice: TimeSlice, timeout: float, begun: int
    ) -> None:
        appending, topic = self._appending, rows.topic
        route, at = appending.routes.known(topic), 0
        while at < len(rows):
            before = at
            if route is not None:
                at = self._simple.append(route, rows, at, delivery, time_slice.ends)
            if at == before:
                await self._append_one(rows, at, delivery, timeout, begun)
                route = appending.routes.known(topic)
                at += 1
            if asyncio.get_running_loop().time() > time_slice.ends:
                await time_slice.give_way()
                appending.check_same(begun, topic)  # an abort of little, and the next begin, need no more than that
                route = None  # it may have changed: an ordinary append finds the newest one

    async def _append_one(
        self, rows: _Listed | _Columns, at: int, delivery: BatchDelivery, timeout: float, begun: int
    ) -> None:
        record = _record(rows.topic, rows.record(at))
        one = await self._appending.send(record, timeout=timeout, serialized=rows.serialized, begun=begun)
        delivery._add(*one._place())


def _check_many(records: Any) -> None:
    is_one_value = isinstance(records, str | bytes | bytearray | memoryview)
    is_batch = hasattr(type(records), "__arrow_c_array__")
    if not is_batch and hasattr(type(records), "__arrow_c_stream__") and hasattr(records, "columns"):
        # To iterate over a table gives its columns, or their names, and a serializer may take these for values.
        way = "table.to_batches() of pyarrow, frame.to_arrow().to_batches() of polars"
        raise ConfigError(f"records is {type(records).__name__}, a table: send its record batches one by one ({way})")
    if isinstance(records, Mapping):  # to iterate over one gives its keys, which are no values
        raise ConfigError(
            f"records is {type(records).__name__}, a mapping: give a list of values, or of ProducerRecords"
        )
    if is_one_value or not (is_batch or hasattr(records, "__iter__")):
        raise ConfigError(f"records is {type(records).__name__}: give a list of values, or of ProducerRecords")


def _iterator_of(records: Iterable[Any]) -> Iterator[Any]:
    try:
        return iter(records)
    except USER_ERRORS as error:
        if (told := as_error(error, _ITERABLE)) is error:
            raise
        raise told from error


def _next_of(records: Iterator[Any], look: int, until: float) -> tuple[list[Any], Exception | None]:
    """Return the next records until then, and what was raised behind them. It looks at the time after ``look`` each.

    Nothing is awaited in here. So a CancelledError is not the calling task's, but of a job that the iterable looks at.
    """
    some: list[Any] = []
    time = asyncio.get_running_loop().time
    try:
        while len(some) < AT_ONCE:
            before = len(some)
            some.extend(islice(records, look))  # where it raises, the list has what came before
            if len(some) < before + look or time() >= until:
                break
    except USER_ERRORS as error:
        return some, as_error(error, _ITERABLE)
    return some, None


def _tell(error: Exception, delivery: BatchDelivery) -> None:
    """Say in an error how many records were appended before the one that it is about."""
    if delivery.count:
        error.add_note(f"aiokc: {delivery.count} records of this send_many() were appended before this one")
    if isinstance(error, KafkaError):
        error.appended = delivery.count


def _record(topic: str, given: Any) -> ProducerRecord[Any, Any]:
    """Return what was given as a record, which is not checked yet."""
    if not isinstance(given, ProducerRecord):
        return ProducerRecord(topic, given)
    if given.topic != topic:
        raise ConfigError(f"send_many({topic!r}, ...): a record is for topic {shown(given.topic)}: one call, one topic")
    return given
