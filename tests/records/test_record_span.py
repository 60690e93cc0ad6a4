"""Spans of a run: objects that nobody keeps are written anew, whatever is kept stays, and no record keeps the run."""

from __future__ import annotations

import copy
import gc
import pickle
import random
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from operator import attrgetter
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiokc.records import NOT_BEGUN, NewRecord, encode_batch, split_batches
from aiokc.types import RawRecord

from .batches import compacted_records, read_all

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)
pytestmark = pytest.mark.skipif(
    bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="without the GIL, take_run returns lists"
)

ALL: Final = 1 << 30
#: Offsets of one, two and three of an integer's digits; some are the interpreter's own objects.
FIRST_OFFSETS: Final = (0, 0, 1_000, (1 << 30) - 9, (1 << 60) - 9)
FIELDS: Final = attrgetter("topic", "partition", "offset", "timestamp", "timestamp_type", "headers", "leader_epoch")


def span_of(run: bytes | bytearray, count: int = ALL, start: int = 0) -> Any:
    """The span of the first records of a run."""
    span, *_ = _native.take_run(memoryview(run), 0, NOT_BEGUN, "events", 3, start, count, False)
    return span


def run_of(*batches: int, size: int = 100, epochs: int = 1) -> bytes:
    """A run of batches with so many records, whose values have all the same size."""
    run, offset = b"", 0
    for number, count in enumerate(batches):
        records = [
            NewRecord(b"%d" % index * (size // len(b"%d" % index)) or b"v", b"key %4d" % index, [("h", b"%4d" % index)])
            for index in range(offset, offset + count)
        ]
        padded = [record._replace(value=(record.value or b"").ljust(size, b".")) for record in records]
        run += encode_batch(padded, base_offset=offset, leader_epoch=number % epochs)
        offset += count
    return run


def seen(record: RawRecord) -> tuple[Any, ...]:
    """All that can be seen of a record, as objects that nothing changes."""
    key, value = record.key, record.value
    content = tuple(None if data is None else bytes(bytearray(data)) for data in (key, value))
    topic, partition, offset, *others = FIELDS(record)
    return (topic, partition, int(str(offset)), *others, *content, hash(key), hash(value), hash(record))


@st.composite
def runs(draw: st.DrawFn) -> bytes:
    """Batches side by side of any records, which may overlap."""
    run, offset = b"", draw(st.sampled_from(FIRST_OFFSETS))
    for records in draw(st.lists(compacted_records(), min_size=1, max_size=5)):
        run += encode_batch(
            records,
            base_offset=offset,
            last_offset_delta=20_000,
            leader_epoch=draw(st.sampled_from((-1, 0, 7))),
            append_time=draw(st.sampled_from((None, 1_700_000_000_000))),
        )
        offset += draw(st.sampled_from((20_001, 20_001, 4, 20_004)))
    return run


# What is written anew


def test_two_records_are_enough_for_a_loop_that_keeps_none() -> None:
    span = span_of(run_of(40, 1, 59, epochs=3))
    records, keys, values = set[int](), set[int](), set[int]()
    for record in span:
        records.add(id(record))
        keys.add(id(record.key))
        values.add(id(record.value))
    assert (len(records), len(keys), len(values)) == (2, 2, 2)
    assert len({id(record) for record in list(span)}) == 100


@pytest.mark.parametrize("first", [5_000, 1 << 30, 1 << 59])
def test_two_integers_are_enough_for_the_offsets_of_a_loop(first: int) -> None:
    records = [NewRecord(b"value")] * 100
    span = span_of(encode_batch(records, base_offset=first))
    assert len({id(record.offset) for record in span}) == 2
    assert [record.offset for record in span] == list(range(first, first + 100))


@pytest.mark.parametrize("first", [0, 250, 1_020, (1 << 30) - 50, (1 << 31) - 50, (1 << 60) - 50, (1 << 63) - 101])
def test_an_offset_is_an_integer_like_any_other(first: int) -> None:
    """Also where integers get another digit, and among those of which the interpreter has but one object."""
    records = [NewRecord(b"value")] * 100
    last = kept = None
    for index, record in enumerate(span_of(encode_batch(records, base_offset=first))):
        expected = first + index
        assert record.offset == expected
        assert (str(record.offset), hash(record.offset)) == (str(expected), hash(expected))
        assert record.offset.to_bytes(8, "big") == expected.to_bytes(8, "big")
        assert {record.offset: 1}[expected]
        assert last is None or (last, kept) == (expected - 1, expected - 1)
        last, kept = record.offset, int(str(record.offset))
    assert [*range(300)] == [int(str(number)) for number in range(300)]


def test_bytes_of_another_size_are_not_written_anew() -> None:
    values = [bytes([index]) * (index % 7) for index in range(100)]
    span = span_of(encode_batch([NewRecord(value) for value in values]))
    assert [bytes(bytearray(record.value)) for record in span] == values
    assert [bytes([index]) for index in range(256)] == [bytearray([index]) for index in range(256)]
    assert b"".join(()) == bytearray()


def test_the_hash_is_that_of_what_is_there_now() -> None:
    """bytes remember their hash."""
    run = run_of(100)
    expected = [(hash(record.key), hash(record.value)) for record in read_all(run)]
    assert [(hash(record.key), hash(record.value)) for record in span_of(run)] == expected
    found = {record.key: record.offset for record in span_of(run)}
    assert [found[record.key] for record in read_all(run)] == list(range(100))


def keeps_nothing(record: RawRecord) -> object:
    return None


KEEPS: Final[tuple[Callable[[RawRecord], object], ...]] = (
    keeps_nothing,
    lambda record: record,
    lambda record: record.key,
    lambda record: record.value,
    lambda record: record.headers,
    lambda record: record.offset,
    lambda record: range(record.offset, record.offset + 1),
    lambda record: {record.offset: 1},
    lambda record: {record.key: 1},
    lambda record: frozenset([record.value]),
    lambda record: [[record]],
    lambda record: memoryview(record.value or b""),
    lambda record: iter(record.value or b""),
    lambda record: (record.value or b"").upper,
    lambda record: functools_of(record),
    lambda record: copy.copy(record),
    lambda record: [hash(record), record.headers, record.topic],
)


def functools_of(record: RawRecord) -> object:
    """A closure."""
    return lambda: record


def told(kept: object) -> object:
    """What can be seen of a kept object."""
    if isinstance(kept, memoryview):
        return bytes(kept)
    if hasattr(kept, "__next__"):
        return bytes(copy.copy(kept))  # type: ignore[call-overload]
    if hasattr(kept, "offset"):
        return seen(kept)  # type: ignore[arg-type]
    if isinstance(kept, list):
        return [told(each) for each in kept]
    if callable(kept):
        return told(kept())
    return repr(kept), isinstance(kept, bytes | tuple | frozenset) and hash(kept)


@settings(deadline=None)
@given(runs(), st.lists(st.integers(0, len(KEEPS) - 1), min_size=1, max_size=6), st.integers(0, 12))
def test_whatever_is_kept_stays_as_it_is(run: bytes, how: list[int], poll_at: int) -> None:
    span = span_of(run)
    kept: list[object] = []
    was: list[object] = []
    for index, record in enumerate(span):
        if index == poll_at:
            span.detach()
        one = KEEPS[how[index % len(how)]](record)
        kept.append(one)
        was.append(told(one))
    assert [told(one) for one in kept] == was


@settings(deadline=None)
@given(runs(), st.integers(0, 30), st.integers(0, 60_000))
def test_records_are_those_of_the_batches(run: bytes, count: int, start: int) -> None:
    """Also of batches that overlap: no offset comes twice."""
    expected: list[RawRecord] = []
    for header, view in split_batches(memoryview(run)):
        expected += [record for record in read_all(bytes(view)) if record.offset >= start]
        start = max(start, header.next_offset)
    span = span_of(run, count, expected[0].offset if expected else start)
    for _ in range(2 if count and expected else 0):
        assert list(span) == expected[: len(span)]
        assert len(span) == min(count, len(expected))
        assert [seen(record) for record in span] == [seen(record) for record in expected[: len(span)]]
        assert (span.first(), span.last()) == (expected[0], expected[len(span) - 1])
        span.detach()


def test_batches_that_the_one_before_has_passed_are_left_out() -> None:
    batches = [(0, 10), (3, 2), (8, 2), (9, 5), (14, 1)]
    records = {first: [NewRecord(b"%d" % (first + index)) for index in range(count)] for first, count in batches}
    span = span_of(b"".join(encode_batch(some, base_offset=first) for first, some in records.items()))
    assert [(record.offset, record.value) for record in span] == [(offset, b"%d" % offset) for offset in range(15)]


# References that the loop does not see


def test_two_loops_over_one_span() -> None:
    span = span_of(run_of(30, 30, epochs=2))
    expected = list(span)
    assert [(one, other) for one in span for other in span] == [(one, other) for one in expected for other in expected]
    assert list(zip(span, span, strict=True)) == list(zip(expected, expected, strict=True))


def test_two_loops_over_one_iterator() -> None:
    span = span_of(run_of(30, 30, epochs=2))
    expected = [seen(record) for record in span]
    records = iter(span)
    found = []
    for record in records:
        first = seen(record)
        for other in records:
            assert seen(record) == first
            found += [first, seen(other)]
            break
    assert found == expected
    assert next(records, None) is None


def test_exceptions_keep_what_they_have_seen() -> None:
    errors = []
    span = span_of(run_of(50))
    for record in span:
        try:
            raise ValueError(record, record.value)
        except ValueError as error:
            errors.append(error)
    assert [(error.args[0], error.args[1]) for error in errors] == [(record, record.value) for record in span]


def test_a_loop_that_ends_early_leaves_what_it_has() -> None:
    span = span_of(run_of(50))
    for record in span:
        if record.offset == 20:
            break
    for other in span:
        assert other.offset >= 0
    assert seen(record) == seen(list(span)[20])


def test_what_pickle_has_seen() -> None:
    span = span_of(run_of(50))
    assert [pickle.loads(pickle.dumps(record)) for record in span] == list(span)
    for refused in (span, iter(span)):
        with pytest.raises(TypeError):
            pickle.dumps(refused)
        with pytest.raises(TypeError):
            type(refused)()


# What keeps the run


def can_change(run: bytearray) -> bool:
    """Whether no view of it is left."""
    try:
        run.append(0)
    except BufferError:
        return False
    run.pop()
    return True


def test_records_do_not_keep_the_run() -> None:
    run = bytearray(run_of(50))
    span = span_of(run)
    kept = [list(span), span.first(), span.last(), [record.value for record in span]]
    assert not can_change(run)
    del span
    assert can_change(run)
    assert kept[0][0] == kept[1]


def test_an_iterator_keeps_the_run_until_its_end() -> None:
    run = bytearray(run_of(10))
    records = iter(span_of(run))
    offsets = [record.offset for _, record in zip(range(9), records, strict=False)]
    assert not can_change(run)
    offsets += [record.offset for record in records]
    assert can_change(run)
    assert offsets == list(range(10))


def test_a_detached_span_has_what_it_had() -> None:
    run = bytearray(run_of(10, 20, 30, epochs=2))
    span = span_of(run, 45, 5)
    expected = list(span)
    half = iter(span)
    first = [seen(next(half)) for _ in range(7)]
    assert not span.is_detached
    span.detach()
    span.detach()
    assert span.is_detached
    assert can_change(run)
    run[:] = bytes(len(run))
    assert list(span) == expected
    assert (span.first(), span.last()) == (expected[0], expected[-1])
    assert first + [seen(record) for record in half] == [seen(record) for record in expected]


def test_only_spans_that_are_held_are_copied() -> None:
    run = run_of(10)
    held, dropped, of_an_iterator = span_of(run), span_of(run), span_of(run)
    records = iter(of_an_iterator)
    spans = [held, dropped, of_an_iterator]
    del dropped, of_an_iterator
    assert _native.detach_held(spans, 1 << 20) == 3
    assert [span.is_detached for span in spans] == [True, False, True]
    assert len(list(records)) == 10
    for wrong in ((held,), [held, None]):
        with pytest.raises(TypeError):
            _native.detach_held(wrong, 1 << 20)


def test_no_more_spans_are_copied_than_asked_for() -> None:
    run = run_of(10)
    spans = [span_of(run) for _ in range(6)]
    held = [spans[0], spans[2], spans[3], spans[5]]
    size = spans[0].size
    assert _native.detach_held(spans, 0) == 0
    assert _native.detach_held(spans, size + 1) == 3
    assert [span.is_detached for span in held] == [True, True, False, False]
    assert _native.detach_held(spans, size + 1) == 6, "copies that were made before do not count"
    assert all(span.is_detached for span in held)


def test_nothing_is_left_behind() -> None:
    run = run_of(5, 5, epochs=2)

    def rounds(number: int) -> int:
        for index in range(number):
            span = span_of(run)
            records = iter(span)
            kept = [record.value for _, record in zip(range(index % 11), records, strict=False)]
            assert len(kept) == index % 11
            if index % 3:
                span.detach()
            assert len(list(records)) <= 10
        gc.collect()
        return sys.getallocatedblocks()

    assert rounds(2_000) - rounds(200) < 100


def test_spans_are_no_business_of_the_collector() -> None:
    span = span_of(run_of(5))
    assert not gc.is_tracked(span)
    assert not gc.is_tracked(iter(span))
    assert not any(gc.is_tracked(record) for record in span)


def test_a_collection_may_read_from_the_iterator_that_causes_it() -> None:
    """A tuple of a batch's origin is made between two records; in Python 3.11 that may collect garbage at once."""
    span = span_of(run_of(*[1] * 300, epochs=2))
    records = iter(span)
    offsets: list[int] = []

    class Reads:
        def __init__(self) -> None:
            self.myself = self

        def __del__(self) -> None:
            offsets.extend(record.offset for record in (next(records, None),) if record is not None)

    before = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for record in records:
            offsets.append(record.offset)
            Reads()
    finally:
        gc.set_threshold(*before)
        gc.collect()
    assert sorted(offsets) == list(range(300))


# Threads


@pytest.fixture
def threads_that_change_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def at_once(*work: Callable[[], Any]) -> list[Any]:
    barrier = threading.Barrier(len(work))

    def begin(each: Callable[[], Any]) -> Any:
        barrier.wait(timeout=20)
        return each()

    with ThreadPoolExecutor(len(work)) as threads:
        return [future.result(timeout=40) for future in [threads.submit(begin, each) for each in work]]


@pytest.mark.usefixtures("threads_that_change_often")
def test_threads_read_one_span_while_it_is_detached() -> None:
    run = run_of(*[7] * 60, epochs=3)
    expected = [seen(record) for record in span_of(run)]
    for _ in range(10):
        span = span_of(run)
        found = at_once(*[lambda span=span: [seen(record) for record in span]] * 3, span.detach)
        assert found == [expected, expected, expected, None]


@pytest.mark.usefixtures("threads_that_change_often")
def test_each_record_of_an_iterator_goes_to_one_thread() -> None:
    run = run_of(*[7] * 60, epochs=3)
    expected = sorted(seen(record) for record in span_of(run))
    for _ in range(10):
        records = iter(span_of(run))
        found = at_once(*[lambda records=records: [seen(record) for record in records]] * 3)
        assert sorted(one for part in found for one in part) == expected


# Bytes that are not what they were


def test_bytes_that_change_after_the_check_lead_nowhere() -> None:
    """Nobody changes the bytes of a frame that is in use. If anybody did, there would be an error, or other records."""
    chance = random.Random(1)
    original = run_of(3, 1, 4, size=12, epochs=2)
    errors = 0
    for _ in range(3_000):
        run = bytearray(original)
        span = span_of(run)
        for _ in range(chance.choice((1, 2, 8))):
            run[chance.randrange(len(run))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        with suppress(SystemError):
            assert all(record.headers is not None for record in span)
            assert all(record.offset >= 0 for record in (span.first(), span.last()))
            continue
        errors += 1
    assert errors > 100
