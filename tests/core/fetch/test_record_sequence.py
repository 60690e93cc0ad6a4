"""The sequence of a partition's records: what a list does, but for changing, whatever its parts are."""

from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable, Sequence
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.fetch.partition.fetched_partition import FetchedPartition, Limits
from aiokc.core.fetch.partition.partition_buffer import PartitionBuffer
from aiokc.core.fetch.partition.record_sequence import RecordSequence
from aiokc.records import Codec, NewRecord, encode_batch
from aiokc.types import RawRecord, TopicPartition

TP: Final = TopicPartition("events", 3)


def log(count: int, codec: int = Codec.NONE) -> bytes:
    """A log of batches with one to five records."""
    data, offset = b"", 0
    while offset < count:
        some = min(count - offset, 1 + offset % 5)
        records = [NewRecord(b"value %4d" % number, b"%d" % number) for number in range(offset, offset + some)]
        data += encode_batch(records, base_offset=offset, codec=codec, leader_epoch=offset % 2)
        offset += some
    return data


def taken(count: int, *, steps: tuple[int, ...] = (1 << 30,), codec: int = Codec.NONE) -> RecordSequence[Any, Any]:
    """A sequence of ``count`` records, as a call hands it out that has decoded so many at a time."""
    buffer = PartitionBuffer(TP, 1, 0, Limits())
    if count:
        buffer.add(FetchedPartition(TP, 1, 0, memoryview(log(count, codec))))
    index = 0
    while buffer.undecoded:
        buffer.decode(steps[index % len(steps)])
        index += 1
    sequence, after = buffer.take(1 << 30)
    assert after == count
    return sequence


KINDS: Final[dict[str, Callable[[int], RecordSequence[Any, Any]]]] = {
    "of a run": taken,
    "in several steps": lambda count: taken(count, steps=(3, 1, 7)),
    "compressed": lambda count: taken(count, codec=Codec.GZIP),
    "of a list": lambda count: RecordSequence(list(taken(count))),
    "that was split": lambda count: _split(count),
    "made before": lambda count: _made(count),
}


def _split(count: int) -> RecordSequence[Any, Any]:
    sequence = taken(count + 4, steps=(6,))
    first = sequence.split(count)
    assert [record.offset for record in sequence] == list(range(count, count + 4))
    return first


def _made(count: int) -> RecordSequence[Any, Any]:
    sequence = taken(count)
    sequence.as_list()
    return sequence


@pytest.fixture(params=KINDS)
def build(request: pytest.FixtureRequest) -> Callable[[int], RecordSequence[Any, Any]]:
    return KINDS[request.param]


def expected(count: int) -> list[RawRecord]:
    buffer = PartitionBuffer(TP, 1, 0, Limits())
    buffer.add(FetchedPartition(TP, 1, 0, memoryview(log(count))))
    while buffer.undecoded:
        buffer.decode(1)
    return list(buffer.take(1 << 30)[0])


indices: Final = st.integers(-13, 13)
slices: Final = st.builds(slice, st.none() | indices, st.none() | indices, st.none() | indices.filter(bool))
uses: Final = st.sampled_from(
    [
        list,
        len,
        bool,
        lambda records: list(reversed(records)),
        lambda records: records[0],
        lambda records: records[-1],
        lambda records: [record.offset for record in records],
        lambda records: list(zip(records, records, strict=True)),
        lambda records: records.index(records[2]),
        lambda records: records.count(records[0]),
        lambda records: records[3] in records,
        lambda records: None in records,
        lambda records: sum(map(len, map(operator.attrgetter("value"), records))),
        lambda records: max(records, key=lambda record: record.value),
        lambda records: [records[index] for index in range(len(records))],
        lambda records: (*records,),
        lambda records: dict.fromkeys(records),
        lambda records: [*records[1:], *records[:1]],
    ]
)


@given(st.data(), st.sampled_from(sorted(KINDS)), st.integers(0, 12))
def test_it_reads_as_a_list_does(data: st.DataObject, kind: str, count: int) -> None:
    sequence, records = KINDS[kind](count), expected(count) if count else []
    ways = uses | slices.map(lambda some: lambda of: list(of[some])) | indices.map(lambda at: lambda of: of[at])
    for way in data.draw(st.lists(ways, max_size=6)):
        outcomes: list[object] = []
        for of in (sequence, records):
            try:
                outcomes.append(way(of))
            except (IndexError, ValueError) as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]
    assert list(sequence) == records


def test_it_is_a_sequence_and_no_list(build: Callable[[int], RecordSequence[Any, Any]]) -> None:
    sequence: object = build(3)
    assert isinstance(sequence, Sequence)
    assert not isinstance(sequence, list)
    for name in ("append", "sort", "extend", "__setitem__", "__delitem__", "__dict__"):
        assert not hasattr(sequence, name)
    match sequence:
        case [first, *others]:
            assert (first.offset, [record.offset for record in others]) == (0, [1, 2])
        case _:
            pytest.fail("it matches no pattern of a sequence")


def test_equal_to_a_list_or_a_sequence_of_equal_records(build: Callable[[int], RecordSequence[Any, Any]]) -> None:
    sequence, records = build(7), expected(7)
    assert sequence == records
    assert records == sequence
    assert sequence == taken(7, steps=(2,))
    assert {TP: sequence} == {TP: records}
    for other in (records[:6], records[::-1], [], tuple(records), None, taken(6), build(8)):
        assert sequence != other
        assert other != sequence
    with pytest.raises(TypeError, match="unhashable"):
        hash(sequence)


def test_no_records(build: Callable[[int], RecordSequence[Any, Any]]) -> None:
    sequence = build(0)
    assert (list(sequence), len(sequence), bool(sequence)) == ([], 0, False)
    assert sequence == RecordSequence() == []
    assert repr(sequence) == "<RecordSequence: no records>"
    for at in (0, -1):
        with pytest.raises(IndexError):
            sequence[at]


@pytest.mark.parametrize("again", [copy.copy, copy.deepcopy, lambda sequence: pickle.loads(pickle.dumps(sequence))])
def test_copies_are_equal(build: Callable[[int], RecordSequence[Any, Any]], again: Callable[[Any], Any]) -> None:
    sequence = build(9)
    same = again(sequence)
    assert type(same) is RecordSequence
    assert same is not sequence
    assert same == sequence == expected(9)


def test_its_repr_is_short(build: Callable[[int], RecordSequence[Any, Any]]) -> None:
    assert repr(build(900)) == "<RecordSequence: 900 of events-3, offsets 0 to 899>"


def test_a_slice_does_not_change(build: Callable[[int], RecordSequence[Any, Any]]) -> None:
    sequence = build(9)
    part = sequence[2:5]
    assert part == expected(9)[2:5]
    assert part[:] == part
    assert sequence == expected(9)


def test_what_is_not_an_index(build: Callable[[int], RecordSequence[Any, Any]]) -> None:
    class Two:
        def __index__(self) -> int:
            return 2

    assert build(4)[Two()].offset == 2
    for wrong in ("0", 0.0, None):
        with pytest.raises(TypeError):
            build(4)[wrong]  # type: ignore[call-overload]


def test_to_make_all_records_does_not_disturb_an_iteration(build: Callable[[int], RecordSequence[Any, Any]]) -> None:
    sequence = build(20)
    records = iter(sequence)
    before = [next(records).offset for _ in range(5)]
    assert sequence[7].offset == 7
    assert before + [record.offset for record in records] == list(range(20))
