"""The encoder in C: the same bytes, answers and errors as the one in Python; and what only C can get wrong."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.records.encoding import _pure

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)

INT_64 = st.integers(-(1 << 63), (1 << 63) - 1)
LENGTHS = st.sampled_from([0, 1, 63, 64, 8191, 8192, 1 << 20]).map(bytes)
BYTES = st.none() | st.binary(max_size=100) | LENGTHS
BUFFERS = BYTES | st.binary(max_size=9).map(bytearray) | st.binary(max_size=9).map(lambda data: memoryview(data)[::-1])
NO_BYTES = st.sampled_from(["text", 7, [1], object()])
HEADER = st.tuples(st.text(max_size=4), BUFFERS)
NO_HEADER = st.sampled_from([("h",), ("h", b"1", b"2"), (b"h", b"1"), ("\ud800", b"1"), ("h", "1"), 5, None])
HEADERS = st.lists(HEADER, max_size=12) | st.lists(HEADER, max_size=3).map(tuple)
NO_HEADERS = st.lists(HEADER | NO_HEADER, max_size=10) | st.sampled_from([5, None, "ab"])
RECORD = st.tuples(INT_64, BUFFERS, BUFFERS, HEADERS)
NO_RECORD = st.tuples(
    INT_64 | st.sampled_from([1 << 63, "now", None]), BUFFERS | NO_BYTES, BUFFERS | NO_BYTES, HEADERS | NO_HEADERS
)


def answer(call: Callable[[], object]) -> object:
    """What a call returns, or the error that it raises."""
    try:
        return call()
    except (TypeError, ValueError, OverflowError) as error:  # also a UnicodeEncodeError, which is a ValueError
        return type(error)


def seen(appender: Any) -> tuple[object, ...]:
    names = ("count", "size", "largest", "base_timestamp", "max_timestamp", "is_full")
    return *(getattr(appender, name) for name in names), *(appender.fits(size) for size in (0, 1, 100, 1 << 40))


def outcome(module: Any, capacity: int, records: Sequence[tuple[Any, ...]], last: int) -> list[object]:
    """Return all that can be seen of a batch that is filled with these, and sealed before the last few."""
    memory = module.BufferMemory(1_000)
    appender = module.RecordAppender(capacity, memory)
    found: list[object] = [seen(appender), memory.limit]
    for number, record in enumerate(records):
        if number == len(records) - last:
            appender.seal()
        found += answer(lambda record=record: appender.append(*record)), seen(appender), memory.used  # type: ignore[misc]
    found += bytes(appender.take()), seen(appender)
    found += answer(appender.take), answer(lambda: appender.append(1, None, None)), seen(appender)
    return found


def assert_same(capacity: int, records: Sequence[tuple[Any, ...]], *, last: int = 0) -> list[object]:
    found = outcome(_native, capacity, records, last)
    assert found == outcome(_pure, capacity, records, last)
    return found


@given(st.lists(RECORD, max_size=30), st.integers(-1, 5_000) | st.just(1 << 40), st.integers(0, 3))
def test_it_writes_the_same_bytes(records: list[tuple[Any, ...]], capacity: int, last: int) -> None:
    assert_same(capacity, records, last=last)


@given(st.lists(RECORD | NO_RECORD, max_size=8))
def test_what_is_no_record_raises_and_appends_nothing(records: list[tuple[Any, ...]]) -> None:
    found = assert_same(1 << 30, records)
    assert found[-3:-1] == [ValueError, False]


def lose_buffer(appender: Any) -> None:
    """Do what a bytearray does from Python 3.15 on that can't grow for want of memory."""
    buffer: Any
    if isinstance(appender, _pure.RecordAppender):
        buffer = appender._buffer
    else:  # it is the first that the object in C has
        buffer = ctypes.py_object.from_address(id(appender) + object.__basicsize__).value
    assert type(buffer) is bytearray
    buffer.clear()


@pytest.mark.parametrize("module", [_native, _pure])
def test_records_that_are_lost_for_want_of_memory_are_not_sent(module: Any) -> None:
    """Nor is what happens to lie in memory where they were."""
    appender = module.RecordAppender(1 << 20)
    assert appender.append(1, b"key", b"value" * 1000)
    lose_buffer(appender)
    assert not appender.fits(10)
    assert not appender.append(2, None, b"next")
    with pytest.raises(MemoryError):
        appender.take()
    with pytest.raises(ValueError, match="before"):
        appender.take()


@pytest.mark.parametrize("module", [_native, _pure])
def test_a_batch_whose_first_record_found_no_memory_takes_another_one(module: Any) -> None:
    batches = []
    for is_lost in (False, True):
        appender = module.RecordAppender(1 << 20)
        if is_lost:
            lose_buffer(appender)
        assert appender.append(1, b"key", b"value" * 1000)
        buffer = appender.take()
        appender.write_header(buffer, 0, 1, 2, 3)
        batches.append(bytes(buffer))
    assert batches[0] == batches[1]


def test_the_bytes_of_a_record() -> None:
    appender = _native.RecordAppender(1_000)
    assert appender.append(1_000, b"k", b"v", [("h", None)])
    assert appender.append(999, None, b"")
    assert appender.take()[61:] == bytes.fromhex("16 00 00 00 02 6b 02 76 02 02 68 01") + bytes.fromhex(
        "0c 00 01 02 01 00 00"
    )


def test_a_batch_is_not_longer_than_its_capacity_but_for_one_record() -> None:
    appender = _native.RecordAppender(100)
    assert appender.append(0, None, bytes(500))
    assert appender.is_full
    assert not appender.append(0, None, None)
    assert (appender.count, len(appender.take())) == (1, appender.size)
    exact = _native.RecordAppender(61 + 2 * 17)
    assert [exact.append(0, None, bytes(10)) for _ in range(3)] == [True, True, False]
    assert (exact.size, exact.is_full) == (95, True)


@pytest.mark.parametrize("size", [0, 100, 10_000])
def test_the_buffer_grows_no_further_than_a_full_batch_needs(size: int) -> None:
    appender, capacity = _native.RecordAppender(16_384), 16_384
    while appender.append(0, None, bytes(size)):
        pass
    buffer = appender.take()
    assert sys.getsizeof(buffer) <= capacity + 200
    assert len(buffer) == appender.size <= capacity


@given(
    st.lists(RECORD, min_size=1, max_size=5),
    st.integers(0, 0x7FFF),
    st.integers(-1, (1 << 63) - 1),
    st.integers(-1, 0x7FFF),
    st.integers(-1, 0x7FFF_FFFF),
    st.none() | st.binary(max_size=50),
)
def test_it_writes_the_same_header(
    records: list[tuple[Any, ...]],
    attributes: int,
    producer_id: int,
    epoch: int,
    sequence: int,
    compressed: bytes | None,
) -> None:
    """Whatever the records have become: they may be compressed since."""
    found = []
    for module in (_native, _pure):
        appender = module.RecordAppender(1 << 30)
        for record in records:
            appender.append(*record)
        buffer = appender.take()
        if compressed is not None:
            buffer[61:] = compressed
        for given_sequence in (0, sequence):  # a batch may be numbered anew
            assert appender.write_header(buffer, attributes, producer_id, epoch, given_sequence) is None
        found.append(bytes(buffer))
    assert found[0] == found[1]


def test_a_header_needs_its_room() -> None:
    for module in (_native, _pure):
        appender = module.RecordAppender(1_000)
        with pytest.raises(ValueError, match="no room for a header"):
            appender.write_header(bytearray(60), 0, 1, 1, 1)


def test_a_header_of_wrong_parts_is_refused() -> None:
    appender = _native.RecordAppender(1_000)
    for wrong in ((b"no bytearray", 0, 1, 1, 1), (bytearray(61), 0, 1, 1 << 16, 1), (bytearray(61), 0, 1, 1)):
        with pytest.raises((TypeError, OverflowError)):
            appender.write_header(*wrong)


def test_what_is_appended_is_counted_for_all_batches_together() -> None:
    memory = _native.BufferMemory(1_000)
    one, two = _native.RecordAppender(200, memory), _native.RecordAppender(1_000, memory)
    assert one.append(0, None, bytes(100))
    assert not one.append(0, None, bytes(100))
    assert two.append(0, b"key", b"value")
    assert memory.used == one.size - 61 + two.size - 61
    memory.used -= 50
    assert (memory.used, memory.limit) == (one.size + two.size - 172, 1_000)
    with pytest.raises(TypeError, match="memory must be a BufferMemory, not int"):
        _native.RecordAppender(200, 5)
    with pytest.raises(AttributeError):
        memory.limit = 2_000


def test_nothing_is_added_to_a_sealed_batch() -> None:
    appender = _native.RecordAppender(1_000)
    assert appender.append(0, None, b"v")
    appender.seal()
    assert not appender.append(0, None, b"v")
    assert not appender.fits(0)
    assert appender.take() == _filled((0, None, b"v"))


def test_a_timestamp_has_64_bits() -> None:
    appender = _native.RecordAppender(1_000)
    with pytest.raises(OverflowError):
        appender.append(1 << 63, None, None)
    with pytest.raises(TypeError):
        appender.append("now", None, None)
    with pytest.raises(TypeError, match="takes timestamp, key, value"):
        appender.append(1)
    assert appender.count == 0


def test_what_runs_in_between_sees_whole_records_only() -> None:
    """The application's code may run while a record is gathered: here it takes the buffer away."""
    appender = _native.RecordAppender(1_000)
    assert appender.append(1, None, b"first")

    class Headers:
        def __iter__(self) -> Iterator[tuple[str, bytes]]:
            self.taken = appender.take()
            yield "h", b"1"

    headers = Headers()
    assert not appender.append(2, None, b"second", headers)
    assert headers.taken == _filled((1, None, b"first"))
    assert appender.count == 1


def _filled(*records: tuple[Any, ...]) -> bytearray:
    appender = _pure.RecordAppender(1 << 20)
    for record in records:
        assert appender.append(*record)
    return appender.take()


def test_a_list_of_headers_that_shrinks_meanwhile() -> None:
    given: list[Any] = []

    class Pair:
        def __iter__(self) -> Iterator[object]:
            given.clear()
            yield from ("h", b"1")

    given += [Pair(), Pair(), Pair()]
    appender = _native.RecordAppender(1_000)
    assert appender.append(0, None, None, given)
    assert given == []
    assert appender.take() == _filled((0, None, None, [("h", b"1")] * 3))


def test_it_can_be_derived_from() -> None:
    class Mine(_native.RecordAppender):  # type: ignore[misc, name-defined]
        __slots__ = ("extra",)

        def __new__(cls, capacity: int, extra: object) -> Mine:
            self: Mine = super().__new__(cls, capacity)
            self.extra = extra
            return self

    mine = Mine(100, [1])
    assert mine.append(0, None, b"v")
    assert (mine.extra, mine.count) == ([1], 1)


def test_nothing_is_left_behind() -> None:
    records = [
        (1, b"k", b"v", [("h", b"1"), ("ü", None)]),
        (2, bytearray(b"k"), memoryview(b"v"), [("h", bytearray(b"1"))] * 12),
        (3, "text", b"v"),
        (3, b"k", 7),
        (3, b"k", b"v", [("\ud800", b"1")]),
        (3, b"k", b"v", [("h", b"1", b"2")]),
        (3, b"k", b"v", [("h", b"1")] * 20 + [5]),
        ("now", b"k", b"v"),
        (4, None, bytes(3_000)),
    ]

    def rounds(number: int) -> int:
        for _ in range(number):
            assert_same(2_000, records)
            _native.RecordAppender(50).append(1, b"k", b"v")
        gc.collect()
        return sys.getallocatedblocks()

    assert rounds(300) - rounds(30) < 100


def test_who_gave_something_keeps_it_alone() -> None:
    key, value, header = b"a key of its own", b"a value of its own", b"a header's"
    before = [sys.getrefcount(one) for one in (key, value, header)]
    appender = _native.RecordAppender(1_000)
    assert appender.append(0, key, value, [("h", header)])
    assert [sys.getrefcount(one) for one in (key, value, header)] == before
