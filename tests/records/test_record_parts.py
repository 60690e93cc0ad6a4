"""The parts of a sequence of records in C against their twin in Python; freed records; what the collector ignores."""

from __future__ import annotations

import gc
import sysconfig
from collections.abc import Callable
from typing import Any, Final
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.fetch.partition.record_sequence import PureParts
from aiokc.records import NewRecord, encode_batch
from aiokc.types import TopicPartition

extension = pytest.importorskip(
    "aiokc._native.extension", reason="aiokc._native.extension is not built: install a C compiler, then make setup"
)
needs_gil = pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="all is tracked there")
NOT_BEGUN: Final = (0, -1, -1)


def span(first: int, count: int, prefix: bytes = b"value") -> Any:
    """``count`` records from offset ``first`` on; their values are of two sizes."""
    records = [
        NewRecord(b"%s %d" % (prefix, number), None if number % 3 else b"key") for number in range(first, first + count)
    ]
    run = memoryview(encode_batch(records, base_offset=first))
    taken, *_ = extension.take_run(run, 0, NOT_BEGUN, "events", 3, first, count, True)
    return taken


def parts_of(sizes: list[tuple[bool, int]], make: Callable[[], Any]) -> Any:
    parts, offset = make(), 0
    for is_list, count in sizes:
        part = span(offset, count)
        parts.add(list(part) if is_list else part)
        offset += count
    return parts


def outcome(use: Callable[[Any], Any], parts: Any) -> Any:
    try:
        found = use(parts)
    except (IndexError, TypeError) as error:
        return type(error)
    return list(found) if hasattr(found, "as_list") else found


indices: Final = st.integers(-9, 9)
slices: Final = st.builds(slice, st.none() | indices, st.none() | indices, st.none() | indices.filter(bool))
uses: Final = st.one_of(
    st.sampled_from([list, len, lambda parts: parts.as_list(), lambda parts: list(map(list, [parts, parts]))]),
    indices.map(lambda index: lambda parts: parts[index]),
    slices.map(lambda some: lambda parts: parts[some]),
    st.sampled_from([None, "1", 1.0]).map(lambda wrong: lambda parts: parts[wrong]),
    st.integers(0, 5).map(lambda count: lambda parts: parts.split(count)),
    st.integers(1, 3).map(lambda count: lambda parts: parts.add(span(90, count))),
    st.just(lambda parts: parts.add([])),
)


@given(st.lists(st.tuples(st.booleans(), st.integers(1, 4)), max_size=3), st.lists(uses, max_size=6))
def test_as_its_twin(sizes: list[tuple[bool, int]], calls: list[Callable[[Any], Any]]) -> None:
    in_c, in_python = parts_of(sizes, extension.RecordParts), parts_of(sizes, PureParts)
    for call in calls:
        assert outcome(call, in_c) == outcome(call, in_python)
    assert list(in_c) == list(in_python)
    assert len(in_c) == sum(map(len, in_c.parts)) == len(in_python) == sum(map(len, in_python.parts))


@pytest.mark.parametrize("make", [extension.RecordParts, PureParts])
def test_made_of_what_can_be_iterated(make: Callable[..., Any]) -> None:
    assert make(iter([1, 2])).as_list() == [1, 2]
    assert make(None).as_list() == make().as_list() == []
    for wrong in (1, object()):
        with pytest.raises(TypeError):
            make(wrong)
    with pytest.raises(TypeError):
        make(records=[1])
    with pytest.raises(TypeError):
        make().add(1)


@given(st.lists(st.booleans(), max_size=60))
def test_what_a_loop_keeps_stays_as_it_is(kept: list[bool]) -> None:
    """Whatever it keeps, in any rhythm: the iterator writes only those anew that nobody has."""
    mine = []
    for keep, record in zip(kept, span(0, max(1, len(kept))), strict=False):
        if keep:
            mine.append((record, record.value, record.key))
    offsets = [number for number, keep in enumerate(kept) if keep]
    assert [record.offset for record, _, _ in mine] == offsets
    assert [value for _, value, _ in mine] == [b"value %d" % offset for offset in offsets]
    assert all((record.value, record.key) == (value, key) for record, value, key in mine)


def test_freed_records_are_used_again_and_kept_ones_are_not() -> None:
    first = list(span(0, 2_000))
    kept = first[::7]
    del first
    others = list(span(0, 3_000, b"another"))
    assert [record.value for record in kept] == [b"value %d" % number for number in range(0, 2_000, 7)]
    assert [record.value for record in others] == [b"another %d" % number for number in range(3_000)]
    assert len({id(record) for record in (*kept, *others)}) == len(kept) + len(others)


class Node:
    """What may be in a cycle."""


def test_a_sequence_in_a_cycle_is_collected() -> None:
    node: Any = Node()
    node.parts = extension.RecordParts([node])
    gone = ref(node)
    del node
    gc.collect()
    assert gone() is None


@needs_gil
def test_a_sequence_of_spans_is_none_of_the_collectors_business() -> None:
    parts = extension.RecordParts()
    assert not gc.is_tracked(parts)
    parts.add(span(0, 5))
    assert not gc.is_tracked(parts)
    parts.as_list()
    assert gc.is_tracked(parts)


@needs_gil
def test_what_is_untracked_is_freed_with_its_last_reference() -> None:
    one, number = TopicPartition("t", 0), 5
    assert gc.is_tracked(one)
    extension.untrack([one, number, "text", one])
    assert not gc.is_tracked(one)
    node = Node()
    gone = ref(node)
    extension.untrack(iter([node]))
    del node
    assert gone() is None
    with pytest.raises(TypeError):
        extension.untrack(1)


class Item:
    """As a message of the protocol."""

    __slots__ = ("numbers", "pairs")

    numbers: list[int]
    pairs: list[list[int]]


@needs_gil
def test_with_an_object_its_lists_of_numbers_are_untracked_and_no_other_list() -> None:
    item = Item()
    item.numbers, item.pairs = [1, 2], [[1], [2]]
    extension.untrack([item])
    assert not gc.is_tracked(item)
    assert not gc.is_tracked(item.numbers)
    assert gc.is_tracked(item.pairs)
    assert gc.is_tracked(item.pairs[0])
    item.numbers.extend(range(100))
    del item
