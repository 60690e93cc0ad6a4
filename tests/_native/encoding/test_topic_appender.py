"""TopicAppender: what it appends is what an ordinary send appends, and everything else it leaves alone."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.records.encoding import _pure
from aiokc.types import ProducerRecord

_native = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)

AMPLE = 1 << 40
NOW = 1_700_000_000_123

CONTENT = st.none() | st.binary(max_size=40) | st.sampled_from(["text", bytearray(b"b"), 7])
PARTITION = st.none() | st.integers(-1, 4) | st.sampled_from([True, "0", 1 << 70])
TIMESTAMP = st.none() | st.integers(-1, (1 << 63) - 1) | st.sampled_from([1 << 63, True, 1.5])
HEADERS = st.lists(st.tuples(st.text(max_size=3), CONTENT), max_size=9).map(tuple) | st.sampled_from(
    [[("h", b"1")], (["h", b"1"],), (("\ud800", b"1"),), (("h",),), None]
)


class Place(_native.RecordPlace):  # type: ignore[misc, name-defined]
    __slots__ = ()


class Batch:
    """Stands for a ProducerBatch."""

    def __init__(self) -> None:
        self.waiting: list[object] = []


def topic_of(
    count: int,
    *,
    capacity: int = AMPLE,
    keys: int = _pure.KEYS_CHOOSE_BY_MURMUR2,
    largest: int = AMPLE,
    limit: int = AMPLE,
) -> tuple[Any, list[Any], list[Batch]]:
    memory = _native.BufferMemory(limit)
    topic = _native.TopicAppender(Place, lambda: NOW / 1000, memory, count, keys, largest)
    appenders = [_native.RecordAppender(capacity, memory) for _ in range(count)]
    batches = [Batch() for _ in range(count)]
    for partition in range(count):
        topic.put(partition, batches[partition], appenders[partition])
    return topic, appenders, batches


@given(
    st.lists(st.tuples(CONTENT, CONTENT, PARTITION, TIMESTAMP, HEADERS), max_size=12),
    st.integers(-1, 3),
    st.integers(0, 2),
    st.integers(0, 400) | st.just(AMPLE),
)
def test_it_appends_what_append_records_appends(
    records: list[tuple[Any, ...]], sticky: int, keys: int, capacity: int
) -> None:
    topic, appenders, batches = topic_of(3, capacity=capacity, keys=keys)
    topic.sticky = sticky
    expected = [_pure.RecordAppender(capacity) for _ in range(3)]
    for value, key, partition, timestamp_ms, headers in records:
        record = ProducerRecord("t", value, key, partition, timestamp_ms, headers)
        before = [one.count for one in expected]
        at, _ = _pure.append_records([*expected], "t", (record,), 0, 1, NOW, sticky, keys, AMPLE, AMPLE, [])
        found = topic.append(value, key, partition, timestamp_ms, headers)
        assert (type(found) is Place) == at
        if not at:  # with room in each partition it shows which one it is for, and whether it is out of the ordinary
            ample = [_pure.RecordAppender(AMPLE) for _ in range(3)]
            touched: list[int] = []
            _pure.append_records([*ample], "t", (record,), 0, 1, NOW, sticky, keys, AMPLE, AMPLE, touched)
            is_sticky = partition is None and (key is None or keys == _pure.KEYS_CHOOSE_NOTHING)
            place = None
            if touched:
                timestamp = NOW if timestamp_ms is None else timestamp_ms
                place = -1 if is_sticky else touched[0], timestamp, _pure.record_bound(key, value, headers)
            assert found == place
        else:
            (where,) = (number for number in range(3) if expected[number].count > before[number])
            assert type(found) is Place
            assert (found._batch, found._index) == (batches[where], before[where])
            assert found._timestamp == (NOW if timestamp_ms is None else timestamp_ms)
    assert topic.appended == sum(one.count for one in expected)
    assert [one.take() for one in appenders] == [one.take() for one in expected]


def test_it_takes_no_more_than_there_is_room_for() -> None:
    topic, _, _ = topic_of(1, limit=250)
    topic.sticky = 0
    assert topic.append(bytes(100), None, None, 5, ()) is not None
    assert topic.append(bytes(100), None, None, 5, ()) is not None
    assert topic.append(bytes(100), None, None, 5, ()) is None, "2 * 109 bytes are taken"
    topic, _, _ = topic_of(1, largest=135)
    topic.sticky = 0
    assert topic.append(bytes(99), None, None, 5, ()) is not None
    assert topic.append(bytes(100), None, None, 5, ()) is None


def test_a_batch_that_is_sealed_or_gone_takes_nothing() -> None:
    topic, appenders, _ = topic_of(3)
    appenders[0].seal()
    appenders[1].take()
    each = [topic.append(b"v", None, partition, 5, ()) for partition in range(2)]
    assert each == [(0, 5, 37), (1, 5, 37)], "each needs another batch"
    assert type(topic.append(b"v", None, 2, 5, ())) is Place
    topic.sticky = 0
    assert topic.append(b"v", None, None, 5, ()) == (-1, 5, 37)
    empty = _native.TopicAppender(Place, lambda: 0.0, _native.BufferMemory(AMPLE), 2, 0, AMPLE)
    assert empty.append(b"v", None, 0, 5, ()) == (0, 5, 37)
    assert empty.append(b"v", None, 2, 5, ()) is None, "there is no such partition"


def test_another_batch_takes_the_place() -> None:
    topic, _, _ = topic_of(1)
    other, appender = Batch(), _native.RecordAppender(AMPLE)
    topic.put(0, other, appender)
    assert topic.append(b"v", None, 0, 5, ())._batch is other
    for wrong in (-1, 1):
        with pytest.raises(IndexError):
            topic.put(wrong, other, appender)
    with pytest.raises(TypeError):
        topic.put(0, other, object())


def test_the_clock_may_fail() -> None:
    def broken() -> float:
        raise ZeroDivisionError

    for clock, error in ((broken, ZeroDivisionError), (lambda: "noon", TypeError)):
        topic = _native.TopicAppender(Place, clock, _native.BufferMemory(AMPLE), 1, 0, AMPLE)
        topic.put(0, Batch(), _native.RecordAppender(AMPLE))
        with pytest.raises(error):
            topic.append(b"v", None, 0, None, ())
    before_the_epoch = _native.TopicAppender(Place, lambda: -1.0, _native.BufferMemory(AMPLE), 1, 0, AMPLE)
    before_the_epoch.put(0, Batch(), _native.RecordAppender(AMPLE))
    assert before_the_epoch.append(b"v", None, 0, None, ()) is None


def test_what_it_is_made_of_is_checked() -> None:
    class WithFields(_native.RecordPlace):  # type: ignore[misc, name-defined]
        __slots__ = ("more",)

    for kind in (WithFields, int):
        with pytest.raises(TypeError, match="derived from RecordPlace"):
            _native.TopicAppender(kind, float, _native.BufferMemory(1), 1, 0, 1)
    with pytest.raises(TypeError):
        _native.TopicAppender(Place, float, 5, 1, 0, 1)
    topic, _, _ = topic_of(1)
    with pytest.raises(TypeError, match="takes value, key, partition"):
        topic.append(b"v")


def test_what_refers_to_itself_is_collected() -> None:
    """As a record's place does whose batch calls a function that holds the place."""
    topic, _, batches = topic_of(1)
    place = topic.append(b"v", None, 0, 5, ())
    batch = batches.pop()
    batch.waiting.append(place)
    topic.put(0, Batch(), _native.RecordAppender(AMPLE))
    gone = weakref.ref(batch)
    del batch, place
    gc.collect()
    assert gone() is None


def test_nothing_is_left_behind() -> None:
    headers = (("ü", b"1"), ("h", None))

    def rounds(number: int) -> int:
        for _ in range(number):
            topic, _, _ = topic_of(2)
            topic.sticky = 1
            places = [topic.append(b"value", b"key", None, None, headers) for _ in range(10)]
            assert [place._batch is not None for place in places] == [True] * 10
            assert topic.append("text", None, None, None, ()) is None
            assert topic.append(b"v", None, None, None, (("\ud800", None),)) is None
        gc.collect()
        return sys.getallocatedblocks()

    assert rounds(300) - rounds(30) < 100
