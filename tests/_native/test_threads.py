"""The extension in several threads: with the GIL, and on a free-threaded Python without it."""

from __future__ import annotations

import gc
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, TypeVar

import pytest

from aiokc.records import COLUMNS, NOT_BEGUN, BatchHeader, Codec, NewRecord, encode_batch, split_batches
from aiokc.records.batch import HEADER
from aiokc.records.compression import decompress_into
from aiokc.types import RawRecord

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)
from .unpack_twin import use_libraries  # noqa: E402

T = TypeVar("T")

HEADER_SIZE: Final = 61

THREADS: Final = 4
ROUNDS: Final = 100
EVERYTHING: Final = {"from_offset": 0, "until": 1 << 62, "rows": 1 << 30, "size": 1 << 60}
FREE_THREADED: Final = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))


def at_once(work: Callable[[], T]) -> list[T]:
    """What ``work`` returns in each of some threads that begin together."""
    barrier = threading.Barrier(THREADS)

    def begin() -> T:
        barrier.wait(timeout=20)
        return work()

    with ThreadPoolExecutor(THREADS) as threads:
        return [future.result(timeout=40) for future in [threads.submit(begin) for _ in range(THREADS)]]


def reader_of(records: list[NewRecord]) -> Any:
    ((header, view),) = split_batches(memoryview(encode_batch(records)))
    return _native.RecordReader(header, bytes(view[HEADER_SIZE:]), topic="events", partition=3)


def some(count: int) -> list[NewRecord]:
    return [NewRecord(b"value %d" % i, b"key", [("number", b"%d" % i), ("ü", None)], 1_000 + i) for i in range(count)]


@pytest.fixture(autouse=True)
def threads_that_change_often() -> Any:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


@pytest.mark.skipif(not FREE_THREADED, reason="needs a free-threaded Python")
def test_the_gil_stays_off() -> None:
    assert not sys._is_gil_enabled()  # type: ignore[attr-defined, unused-ignore]


def test_only_with_the_gil_does_a_loop_write_records_anew() -> None:
    """Without it, a reference count does not tell who else refers to an object: all records are made, in a list."""
    taken, *_ = _native.take_run(memoryview(encode_batch(some(100))), 0, NOT_BEGUN, "events", 3, 0, 1 << 30, False)

    records = {id(record) for record in taken}

    assert (type(taken) is list) == FREE_THREADED
    assert len(records) == (100 if FREE_THREADED else 2)


def test_headers_are_built_once_for_all_threads() -> None:
    for _ in range(ROUNDS):
        (record,) = reader_of(some(1)).take(1)
        found = at_once(lambda record=record: record.headers)  # type: ignore[misc]
        assert found[0] == (("number", b"0"), ("ü", None))
        assert {id(headers) for headers in found} == {id(found[0])}


def test_each_record_of_a_reader_goes_to_one_thread() -> None:
    for _ in range(ROUNDS // 10):
        reader = reader_of(some(400))

        def drain(reader: Any = reader) -> list[RawRecord]:
            taken: list[RawRecord] = []
            while reader.remaining:
                taken += reader.take(3)
            return taken

        offsets = [record.offset for taken in at_once(drain) for record in taken]
        assert sorted(offsets) == list(range(400))
        assert reader.next_offset == 400


def test_no_other_thread_finds_records_before_all_of_them_are_there() -> None:
    """While a long value is copied, other threads run, and look at all that the garbage collector knows."""
    count = 61  # lists that have grown have room for a multiple of four
    reader = reader_of([NewRecord(bytes(1 << 20))] * count)
    found, size = list[int](), sys.getsizeof([None] * count)
    is_over = threading.Event()

    def search() -> None:
        while not is_over.is_set():
            found.extend(len(it) for it in gc.get_objects(0) if type(it) is list and sys.getsizeof(it) == size)

    searching = threading.Thread(target=search)
    searching.start()
    try:
        records = reader.take(count)
    finally:
        is_over.set()
        searching.join()
    assert len(records) == count
    assert gc.is_tracked(records)
    assert 0 not in found


def test_no_other_thread_finds_headers_before_all_of_them_are_there() -> None:
    """What it would find is a tuple with holes, which ends the process when they are read."""
    count = 61
    (record,) = reader_of([NewRecord(None, headers=[("long", bytes(1 << 20))] * count)]).take(1)
    found = list[int]()
    is_over = threading.Event()

    def search() -> None:
        while not is_over.is_set():
            tuples = [it for it in gc.get_objects(0) if type(it) is tuple and len(it) == count]
            found.extend(len(gc.get_referents(it)) for it in tuples)

    searching = threading.Thread(target=search)
    searching.start()
    try:
        headers = record.headers
    finally:
        is_over.set()
        searching.join()
    assert len(headers) == count
    assert set(found) <= {count}


def test_each_record_of_a_reader_becomes_one_row() -> None:
    for _ in range(ROUNDS // 10):
        reader, builder = reader_of(some(400)), _native.ColumnBuilder(COLUMNS)

        def drain(reader: Any = reader, builder: Any = builder) -> int:
            rows = 0
            while reader.remaining:
                rows += builder.append(reader, **{**EVERYTHING, "rows": 3})
                assert builder.rows <= 400
            return rows

        assert sum(at_once(drain)) == 400
    rows = pytest.importorskip("pyarrow").record_batch(builder.finish())
    assert rows.column("offset").to_pylist() == list(range(400))
    assert rows.column("value").to_pylist() == [b"value %d" % i for i in range(400)]
    assert rows.column("headers").to_pylist()[7] == [{"key": "number", "value": b"7"}, {"key": "ü", "value": None}]


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD], ids=lambda codec: codec.name.lower())
def test_each_thread_unpacks_its_own(codec: Codec) -> None:
    """A library's context is used again, by one thread at a time."""
    use_libraries(True)
    values = [[b"%d" % thread * 3_000] * 20 for thread in range(THREADS)]
    packed = [memoryview(encode_batch([NewRecord(value) for value in some], codec=codec)) for some in values]
    taken = iter(range(THREADS))

    def unpack_often() -> None:
        number = next(taken)
        for _ in range(ROUNDS):
            run = bytearray()
            size = _native.unpack_run(packed[number], run, 1 << 20, 1 << 20, True, decompress_into)
            assert size == len(packed[number])
            ((header, view),) = split_batches(memoryview(run))
            reader = _native.RecordReader(header, bytes(view[HEADER_SIZE:]), topic="events", partition=3)
            assert [record.value for record in reader.take(100)] == values[number]

    at_once(unpack_often)


def test_rows_of_several_threads_are_whole() -> None:
    records = reader_of(some(50)).take(50)
    builder = _native.ColumnBuilder(COLUMNS)
    finished: list[Any] = []

    def alone(call: Callable[..., T], *args: object) -> T:
        """Call again where a collection of garbage, within another's call, has let this thread run: it is refused."""
        while True:
            try:
                return call(*args)
            except RuntimeError as error:
                if "another thread uses" not in str(error):
                    raise

    def append() -> None:
        for _ in range(ROUNDS // 10):
            assert alone(builder.append_records, records, 1 << 62, 1 << 60) == 50
            finished.append(alone(builder.finish))  # the rows of any of the threads, or none

    at_once(append)
    assert sum(map(len, finished)) == 50 * THREADS * (ROUNDS // 10)
    pyarrow = pytest.importorskip("pyarrow")
    seen: Counter[int] = Counter()
    for columns in finished:
        for row in pyarrow.record_batch(columns).to_pylist():
            assert row["value"] == b"value %d" % row["offset"]
            assert row["headers"][0] == {"key": "number", "value": b"%d" % row["offset"]}
            seen[row["offset"]] += 1
    assert seen == dict.fromkeys(range(50), THREADS * (ROUNDS // 10))


def test_records_of_several_threads_are_whole() -> None:
    for _ in range(ROUNDS // 10):
        appender = _native.RecordAppender(1 << 20)

        def append(appender: Any = appender) -> int:
            return sum(appender.append(i, b"key", b"value %d" % i, [("ü", None)]) for i in range(200))

        assert sum(at_once(append)) == 200 * THREADS == appender.count
        records = _records_in(appender.take(), appender.count)
        assert Counter(record.value for record in records) == {b"value %d" % i: THREADS for i in range(200)}


def test_each_record_of_several_threads_has_its_place() -> None:
    for _ in range(ROUNDS // 10):
        memory = _native.BufferMemory(1 << 30)
        topic = _native.TopicAppender(_native.RecordPlace, lambda: 0.0, memory, 1, 0, 1 << 30)
        appender = _native.RecordAppender(1 << 30, memory)
        topic.put(0, "batch", appender)

        def append(topic: Any = topic) -> list[int]:
            return [topic.append(b"%d" % i, None, 0, 5, ())._index for i in range(200)]

        indexes = [index for found in at_once(append) for index in found]
        assert sorted(indexes) == list(range(200 * THREADS))
        assert topic.appended == appender.count == 200 * THREADS
        assert memory.used == appender.size - HEADER.size


def test_a_buffer_goes_to_one_thread() -> None:
    for _ in range(ROUNDS // 10):
        appender = _native.RecordAppender(1 << 20)

        def fill_and_take(appender: Any = appender) -> bytearray | None:
            while appender.append(0, b"key", bytes(100)) and appender.count < 300:
                pass
            try:
                taken: bytearray = appender.take()
            except ValueError:
                return None
            return taken

        (buffer,) = filter(None, at_once(fill_and_take))
        assert len(buffer) == appender.size
        assert len(_records_in(buffer, appender.count)) == appender.count


def _records_in(buffer: bytearray, count: int) -> list[RawRecord]:
    """The records of a batch that an appender was filled with; their timestamps are unknown here."""
    header = BatchHeader._make(HEADER.unpack(encode_batch([NewRecord()])[: HEADER.size]))
    header = header._replace(record_count=count, last_offset_delta=count - 1)
    return _native.RecordReader(header, bytes(buffer[HEADER.size :]), topic="events", partition=3).take(count)  # type: ignore[no-any-return]


def test_steps_hand_each_item_to_one_thread() -> None:
    async def the_end() -> int:
        raise StopAsyncIteration

    steps = _native.Steps(the_end)
    lock = threading.Lock()
    numbers = iter([*range(1_000), *[-1] * THREADS])

    class Items:
        """An iterator for several threads; and one that is replaced while they read it."""

        def __iter__(self) -> Items:
            return self

        def __next__(self) -> int:
            with lock:
                number: int = next(numbers)
            steps.items = Items()
            return number

    steps.items = Items()

    def drain() -> list[int]:
        taken: list[int] = []
        while -1 not in taken:
            with pytest.raises(StopIteration) as stop:
                anext(steps).send(None)
            taken.append(stop.value.value)
        return taken[:-1]

    assert sorted(number for taken in at_once(drain) for number in taken) == list(range(1_000))


def test_one_thread_alone_begins_a_step() -> None:
    async def the_end() -> int:
        raise AssertionError("there was an item")

    for _ in range(ROUNDS):
        steps = _native.Steps(the_end)
        steps.items = iter([1, 2, 3, 4])
        step = anext(steps)

        def begin(step: Any = step) -> object:
            try:
                step.send(None)
            except StopIteration as stop:
                return stop.value
            except RuntimeError as error:
                return str(error)
            raise AssertionError("it has an item, or it is over")

        assert sorted(map(str, at_once(begin))) == ["1", *["cannot await a step twice"] * (THREADS - 1)]


# What runs in the middle of a call must not enter the same object again: it would see half a row.


class Meddler:
    """A record whose value, when it is read, does something with the builder that reads it."""

    topic, partition, timestamp_type, leader_epoch = "events", 3, 0, None
    offset, timestamp, key, headers = 7, 1_000, b"key", ()

    def __init__(self, meddle: Callable[[], object]) -> None:
        self._meddle = meddle

    @property
    def value(self) -> bytes:
        self._meddle()
        return b"value"


@pytest.mark.parametrize("meddle", ["append_records", "append", "finish"])
def test_a_builder_in_use_refuses_another_call(meddle: str) -> None:
    builder = _native.ColumnBuilder(COLUMNS)
    calls: dict[str, Callable[[], object]] = {
        "append_records": lambda: builder.append_records([], 1 << 62, 1 << 60),
        "append": lambda: builder.append(reader_of(some(1)), **EVERYTHING),
        "finish": builder.finish,
    }
    with pytest.raises(RuntimeError, match="another thread uses this object"):
        builder.append_records([Meddler(calls[meddle])], 1 << 62, 1 << 60)
    assert builder.rows == 0
    assert builder.append_records([Meddler(lambda: None)], 1 << 62, 1 << 60) == 1


def test_an_interpreter_of_its_own_gets_an_extension_of_its_own() -> None:
    interpreters = pytest.importorskip("_interpreters", reason="needs Python 3.13")
    code = "import sys; sys.path[:] = " + repr(sys.path) + "; import aiokc._native.extension"
    interpreter = interpreters.create()
    try:
        failed = interpreters.run_string(interpreter, code)
    finally:
        interpreters.destroy(interpreter)
    if failed is not None and "crc32c" in str(failed.msg):
        pytest.skip(f"crc32c refuses it: {failed.msg}")
    assert failed is None, failed.msg
