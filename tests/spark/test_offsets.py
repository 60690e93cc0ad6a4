"""The JSON of the checkpoint, and the arithmetic of batches."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc import TopicPartition
from aiokc.errors import ConfigError
from spark_source import offsets

TOPICS = st.sampled_from(["a", "b.c", "z_9"])
PARTITIONS = st.builds(TopicPartition, TOPICS, st.integers(0, 12))
OFFSETS = st.dictionaries(PARTITIONS, st.integers(0, 2**62))


def test_the_shape_is_that_of_sparks_own_source() -> None:
    ends = {TopicPartition("b", 10): 7, TopicPartition("b", 9): 6, TopicPartition("a", 0): 5}

    assert json.dumps(offsets.to_json(ends)) == '{"a": {"0": 5}, "b": {"9": 6, "10": 7}}'


def test_the_anchor_stands_beside_the_topics() -> None:
    written = offsets.to_json({TopicPartition("a", 0): 5}, {TopicPartition("a", 0): 3})

    assert written == {"a": {"0": 5}, "__aiokc_from__": {"a": {"0": 3}}}


@given(OFFSETS, OFFSETS)
def test_what_is_written_is_read(ends: offsets.Offsets, starts: offsets.Offsets) -> None:
    written = json.loads(json.dumps(offsets.to_json(ends, starts)))

    assert offsets.positions(written) == ends
    assert offsets.anchor(written) == starts


@given(OFFSETS)
def test_equal_offsets_are_equal_text(ends: offsets.Offsets) -> None:
    reversed_order = dict(reversed(ends.items()))

    assert json.dumps(offsets.to_json(ends)) == json.dumps(offsets.to_json(reversed_order))


@pytest.mark.parametrize("written", [{"a": {"0": -1}}, {"a": {"-1": 1}}, {"a": 1}, {"a": {"0": "5"}}])
def test_a_checkpoint_of_something_else_is_refused(written: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match="the checkpoint: "):
        offsets.positions(written)


BACKLOGS = st.dictionaries(PARTITIONS, st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1)


@given(BACKLOGS, st.integers(1, 10**10))
def test_admission_is_bounded_fair_and_never_starves(
    logs: dict[TopicPartition, tuple[int, int]], max_offsets: int
) -> None:
    starts = {tp: start for tp, (start, _) in logs.items()}
    ends = {tp: start + backlog for tp, (start, backlog) in logs.items()}

    admitted = offsets.admit(starts, ends, max_offsets)

    taken = {tp: admitted[tp] - starts[tp] for tp in starts}
    busy = [tp for tp, (_, backlog) in logs.items() if backlog]
    assert all(starts[tp] <= admitted[tp] <= ends[tp] for tp in starts)
    assert sum(taken.values()) <= max_offsets + len(busy)
    assert all(taken[tp] for tp in busy)
    total = sum(backlog for _, backlog in logs.values())
    if total > max_offsets:
        assert all(abs(taken[tp] - max_offsets * logs[tp][1] / total) <= 1 for tp in busy)
    else:
        assert admitted == ends


def test_a_partition_that_was_cut_does_not_count_as_backlog() -> None:
    a, b = TopicPartition("a", 0), TopicPartition("a", 1)

    assert offsets.admit({a: 100, b: 0}, {a: 50, b: 10}, 5) == {a: 50, b: 5}
