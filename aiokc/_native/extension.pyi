from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any, Self, final

from ..records.batch import BatchHeader
from ..types import Headers, HeadersToSend, RawRecord

@final
class RecordReader:
    def __new__(cls, header: BatchHeader, payload: bytes, *, topic: str, partition: int) -> RecordReader: ...
    @property
    def remaining(self) -> int: ...
    def take(self, count: int, from_offset: int = 0) -> list[RawRecord]: ...
    @property
    def next_offset(self) -> int: ...
    def rewind(self) -> None: ...

@final
class ArrowBatch:
    @property
    def nbytes(self) -> int: ...
    def __len__(self) -> int: ...
    def __arrow_c_schema__(self) -> object: ...
    def __arrow_c_array__(self, requested_schema: object | None = None) -> tuple[object, object]: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...

@final
class ColumnBuilder:
    def __new__(cls, columns: Sequence[str], timestamp_unit: str = "ms", most: int = 0x7FFFFFFF) -> ColumnBuilder: ...
    @property
    def rows(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    def append(self, reader: RecordReader, from_offset: int, until: int, rows: int, size: int) -> int: ...
    def append_run(
        self,
        run: memoryview,
        at: int,
        topic: str,
        partition: int,
        from_offset: int,
        until: int,
        rows: int,
        size: int,
        check_crcs: bool,
    ) -> tuple[int, int, int, int]: ...
    def append_records(self, records: list[RawRecord], until: int, size: int) -> int: ...
    def finish(self) -> ArrowBatch: ...

def take_run(
    run: memoryview,
    at: int,
    inside: tuple[int, int, int],
    topic: str,
    partition: int,
    from_offset: int,
    count: int,
    check_crcs: bool,
    /,
) -> tuple[list[RawRecord], int, tuple[int, int, int], int, int]: ...
def measure_packed(records: memoryview, after: int, transactional: bool, most: int, /) -> tuple[int, int, int, int]: ...
def room_to_unpack(records: memoryview, limit: int, at_once: int, /) -> tuple[int, int, bool]: ...
def unpack_run(
    records: memoryview,
    buffer: bytearray,
    limit: int,
    at_once: int,
    check_crcs: bool,
    unpack: Callable[[int, memoryview, memoryview], int],
    /,
) -> int: ...
def use_codec_library(codec: int, path: str | None, /) -> str: ...
def measure_run(records: memoryview, after: int, transactional: bool, most: int) -> tuple[int, int, int, int]: ...

@final
class BufferMemory:
    used: int
    def __new__(cls, limit: int) -> BufferMemory: ...
    @property
    def limit(self) -> int: ...

class RecordAppender:
    def __new__(cls, capacity: int, memory: BufferMemory | None = None) -> Self: ...
    @property
    def count(self) -> int: ...
    @property
    def size(self) -> int: ...
    @property
    def largest(self) -> int: ...
    @property
    def base_timestamp(self) -> int: ...
    @property
    def max_timestamp(self) -> int: ...
    @property
    def is_full(self) -> bool: ...
    def append(
        self, timestamp: int, key: bytes | None, value: bytes | None, headers: HeadersToSend = (), /
    ) -> bool: ...
    def fits(self, size: int, /) -> bool: ...
    def seal(self) -> None: ...
    def take(self) -> bytearray: ...

def append_records(
    appenders: list[Any],
    topic: str,
    records: tuple[Any, ...],
    start: int,
    stop: int,
    timestamp: int,
    sticky: int,
    keys: int,
    largest: int,
    room: int,
    touched: list[int],
    /,
) -> tuple[int, int]: ...

@final
class ColumnRecords:
    def __new__(cls, schema: object, array: object, /) -> ColumnRecords: ...
    def __len__(self) -> int: ...
    def append(
        self,
        appenders: list[Any],
        start: int,
        stop: int,
        timestamp: int,
        sticky: int,
        keys: int,
        largest: int,
        room: int,
        touched: list[int],
        /,
    ) -> tuple[int, int]: ...
    def record(self, row: int, /) -> tuple[bytes | None, bytes | None, int | None, int | None, Headers]: ...

class RecordPlace:
    def __new__(cls, batch: Any, index: int, timestamp: int) -> Self: ...
    @property
    def _batch(self) -> Any: ...
    @property
    def _index(self) -> int: ...
    @property
    def _timestamp(self) -> int: ...

@final
class TopicAppender:
    sticky: int
    appended: int
    def __new__(
        cls,
        delivery_type: type[Any],
        clock: Callable[[], float],
        memory: BufferMemory,
        count: int,
        keys: int,
        largest: int,
    ) -> TopicAppender: ...
    def append(
        self,
        value: object,
        key: object,
        partition: object,
        timestamp_ms: object,
        headers: object,
        /,
    ) -> Any: ...
    def put(self, partition: int, batch: object, appender: object, /) -> None: ...

def murmur2(data: bytes | bytearray | memoryview, /) -> int: ...

@final
class Steps:
    items: Iterator[Any]
    def __new__(cls, wait: Callable[[], Coroutine[Any, Any, Any]]) -> Steps: ...
    def __aiter__(self) -> Steps: ...
    def __anext__(self) -> Coroutine[Any, Any, Any]: ...

def copied(data: bytes | bytearray | memoryview) -> bytes: ...
