"""The decoder in C beside its twin in Python: the same records or the same error, whatever the bytes are."""

from __future__ import annotations

import gc
import sys
import tracemalloc
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.records import BatchHeader, NewRecord, _pure
from aiokc.types import RawRecord

from ..records.batches import ALL, compacted_records
from .twins import assert_same, batch

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)

WHOLE: Final = [(ALL, 0)] * 3
RECORDS: Final = [
    NewRecord(
        b"value %d" % i * (i % 4), b"key" if i % 5 else None, [("h", b"1"), ("ü", None)] * (i % 3), 1_000 - 90 * i
    )
    for i in range(12)
]
calls: Final = st.lists(
    st.tuples(st.integers(-1, 5) | st.just(ALL), st.just(0) | st.integers(-5, 20_200)), max_size=6
).map(lambda some: [*some, *WHOLE])
epochs_of_ms: Final = st.sampled_from((0, -1, 1_700_000_000_000, (1 << 63) - 1, -(1 << 63))) | st.integers(0, 1 << 42)


@st.composite
def headers_of(draw: st.DrawFn, header: BatchHeader) -> BatchHeader:
    """Return that header, or one that a broken or hostile producer made of it, if read_header accepts that."""
    count = draw(st.just(header.record_count) | st.integers(0, 20))
    last = draw(st.just(header.last_offset_delta) | st.integers(0, 20_100) | st.just((1 << 31) - 1))
    return header._replace(
        base_timestamp=draw(epochs_of_ms),
        max_timestamp=draw(epochs_of_ms),
        attributes=draw(st.sampled_from((0, 8))),
        partition_leader_epoch=draw(st.sampled_from((-1, 0, 7))),
        last_offset_delta=max(last, count - 1),
        record_count=count,
    )


def take(payload: bytes, header: BatchHeader, count: int = ALL) -> list[RawRecord]:
    taken: list[RawRecord] = _native.RecordReader(header, payload, topic="events", partition=3).take(count)
    return taken


# The same as in Python


@given(st.data(), compacted_records(), st.sampled_from((0, 50, (1 << 63) - 20_200)), calls)
def test_good_batches(
    data: st.DataObject, records: list[NewRecord], base_offset: int, some: list[tuple[int, int]]
) -> None:
    header, payload = batch(records, base_offset=base_offset, last_offset_delta=20_000)
    header = header._replace(base_timestamp=data.draw(epochs_of_ms), attributes=data.draw(st.sampled_from((0, 8))))
    assert_same(_native, header, payload, [(count, max(0, base_offset - 10 + start)) for count, start in some])


def test_records_are_equal_in_both_directions() -> None:
    header, payload = batch(RECORDS, base_offset=50)
    in_c, in_python = take(payload, header), _pure.RecordReader(header, payload, topic="events", partition=3).take(ALL)
    assert len(in_c) == len(RECORDS)
    assert in_c == in_python
    assert in_python == in_c
    assert [hash(record) for record in in_c] == [hash(record) for record in in_python]


@pytest.mark.parametrize("count", [12, 11, 3])
def test_truncated_at_every_byte(count: int) -> None:
    header, payload = batch(RECORDS, base_offset=50)
    header = header._replace(record_count=count)
    refused = 0
    for cut in range(len(payload)):
        for some in (WHOLE, [(3, 0), *WHOLE], [(1, 55), *WHOLE], [(ALL, 100), *WHOLE]):
            refused += any(isinstance(part, tuple) for part in assert_same(_native, header, payload[:cut], some))
    assert refused >= 3 * len(payload)


@given(st.data(), compacted_records(), calls)
def test_truncated_somewhere(data: st.DataObject, records: list[NewRecord], some: list[tuple[int, int]]) -> None:
    header, payload = batch(records, last_offset_delta=20_000)
    assert_same(_native, header, payload[: data.draw(st.integers(0, len(payload)))], some)


@given(st.data(), compacted_records(), calls)
def test_mutated(data: st.DataObject, records: list[NewRecord], some: list[tuple[int, int]]) -> None:
    header, payload = batch(records, last_offset_delta=20_000)
    mutated = bytearray(payload)
    for at in data.draw(st.lists(st.integers(0, max(len(mutated) - 1, 0)), max_size=4)):
        mutated[at : at + data.draw(st.integers(0, 2))] = data.draw(st.binary(max_size=2))
    assert_same(_native, data.draw(headers_of(header)), bytes(mutated), some)


@given(st.data(), st.binary(max_size=60), calls)
def test_any_bytes(data: st.DataObject, payload: bytes, some: list[tuple[int, int]]) -> None:
    header, _ = batch(RECORDS)
    assert_same(_native, data.draw(headers_of(header)), payload, some)


# What only C can get wrong


def test_a_reader_is_of_a_header_that_was_checked() -> None:
    header, payload = batch(RECORDS)
    for lie in (
        {"base_offset": -1},
        {"base_offset": (1 << 63) - 1},
        {"last_offset_delta": -1},
        {"record_count": -1},
        {"record_count": 13},
    ):
        with pytest.raises(ValueError, match="read_header"):
            take(payload, header._replace(**lie))
    with pytest.raises(OverflowError):
        take(payload, header._replace(base_offset=1 << 63))
    with pytest.raises(AttributeError):
        take(payload, None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        take("text", header)  # type: ignore[arg-type]


def test_records_are_no_business_of_the_collector() -> None:
    header, payload = batch(RECORDS)
    for record in take(payload, header):
        assert not gc.is_tracked(record)


def test_there_is_no_other_way_to_a_record() -> None:
    header, payload = batch(RECORDS)
    (record,) = take(payload, header, 1)
    ways: list[Callable[[], object]] = [
        lambda: type(record)("events", 3, 42),
        lambda: object.__new__(type(record)),
        lambda: type("Mine", (type(record),), {}),
    ]
    for way in ways:
        with pytest.raises(TypeError):
            way()
    with pytest.raises(AttributeError):
        record.__init__("others", 4, 43)  # type: ignore[misc]
    with pytest.raises(AttributeError):
        object.__setattr__(record, "offset", 1)


def test_contents_are_made_once() -> None:
    header, payload = batch(RECORDS)
    record = take(payload, header)[1]
    assert record.key is record.key
    assert record.value is record.value
    assert record.headers is record.headers


def test_records_own_what_they_say_and_keep_nothing_of_their_batch() -> None:
    header, payload = batch([*RECORDS, NewRecord(bytes(1 << 20)), NewRecord(None)])
    before = sys.getrefcount(payload)
    records = take(payload, header)
    assert sys.getrefcount(payload) == before
    assert records == _pure.RecordReader(header, payload, topic="events", partition=3).take(ALL)
    assert (records[1].value, records[1].headers) == (b"value 1", (("h", b"1"), ("ü", None)))
    assert (records[-1].key, records[-1].value, records[-1].headers) == (None, None, ())


def test_a_collection_may_look_at_the_headers_that_are_being_built() -> None:
    """A finalizer that runs in the midst of it, and reads the same record's headers to their end."""
    header, payload = batch([NewRecord(None, None, [(f"h{i}", b"%d" % i) for i in range(2_000)])])
    (record,) = take(payload, header)
    seen: list[object] = []

    def look(phase: str, _: dict[str, int]) -> None:
        if phase == "start" and not seen:
            seen.append(None)
            seen[0] = record.headers

    gc.callbacks.append(look)
    try:
        built = record.headers
        gc.collect()
    finally:
        gc.callbacks.remove(look)
    assert built == seen[0] == record.headers
    assert len(built) == 2_000


def test_headers_are_built_when_they_are_first_read() -> None:
    """To build 400,000 of them takes 50 ms, which would hold the event loop of those who never look at them."""
    header, payload = batch([NewRecord(None, None, [("", None)] * 400_000)])
    tracemalloc.start()
    try:
        (record,) = take(payload, header)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 2 * len(payload)
    assert record.headers == (("", None),) * 400_000


def test_nothing_is_left_behind() -> None:
    """Of records, of readers that gave up, and of errors."""
    header, payload = batch(RECORDS)
    broken = payload[:-1]

    def rounds(number: int) -> int:
        for _ in range(number):
            assert_same(_native, header, payload, WHOLE)
            assert_same(_native, header, broken, [(3, 0), (2, 8), *WHOLE])
            assert_same(_native, header, b"", WHOLE)
        gc.collect()
        return sys.getallocatedblocks()

    assert rounds(300) - rounds(30) < 100
