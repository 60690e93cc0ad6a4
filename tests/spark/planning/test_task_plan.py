"""Ranges become tasks: the splits of Spark's own source, and several ranges in one task."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from aiokc import ClientConfig, TopicPartition
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.task_plan import OffsetRange, tasks
from spark_source.worker import rounds

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
OPTIONS = SourceOptions(ClientConfig(), subscribe("a"))
RANGES = st.dictionaries(
    st.builds(TopicPartition, st.sampled_from("ab"), st.integers(0, 9)),
    st.tuples(st.integers(0, 100), st.integers(1, 5000)).map(lambda drawn: (drawn[0], sum(drawn))),
)
LIMIT = st.none() | st.integers(1, 30)


def sizes(*counts: int, **limits: int) -> list[int]:
    ranges = {TopicPartition("a", part): (0, count) for part, count in enumerate(counts)}
    planned = tasks(ranges, replace(OPTIONS, **limits))  # type: ignore[arg-type]
    return [sum(part.size for part in task) for task in planned]


def test_one_task_for_each_partition() -> None:
    assert tasks({A1: (5, 9), A0: (0, 3)}, OPTIONS) == [(OffsetRange(A0, 0, 3),), (OffsetRange(A1, 5, 9),)]


def test_large_ranges_are_split_in_proportion() -> None:
    # Expected as in KafkaOffsetRangeCalculatorSuite of Spark.
    assert sizes(5, min_partitions=3) == [1, 2, 2]
    assert sizes(1000, 1, 1, min_partitions=4) == [500, 500, 1, 1]
    assert sizes(10, 10, min_partitions=2) == [10, 10]


def test_there_are_no_more_tasks_than_records() -> None:
    assert sizes(2, min_partitions=10**18) == [1, 1]


def test_no_task_has_more_records_than_it_may() -> None:
    assert sizes(10, 4, max_records_per_partition=4) == [3, 3, 4, 4]
    assert sizes(10, 4, max_records_per_partition=100) == [10, 4]
    assert sizes(10, max_records_per_partition=5, min_partitions=4) == [2, 3, 2, 3]


def test_small_ranges_share_tasks_evenly() -> None:
    assert sizes(100, 1, 1, 50, 49, max_partitions=2) == [101, 100]
    assert sizes(3, 3, max_partitions=5) == [3, 3]


@given(RANGES, LIMIT, LIMIT, LIMIT)
def test_every_offset_is_read_once(
    ranges: dict[TopicPartition, tuple[int, int]], least: int | None, most: int | None, records: int | None
) -> None:
    options = replace(OPTIONS, min_partitions=least, max_partitions=most, max_records_per_partition=records)

    planned = tasks(ranges, options)

    read = Counter(
        (part.partition, offset) for task in planned for part in task for offset in range(part.start, part.until)
    )
    assert read == Counter((tp, offset) for tp, span in ranges.items() for offset in range(*span))
    assert all(part.size > 0 for task in planned for part in task)
    assert most is None or len(planned) <= most
    if most is None and records is not None:
        assert all(part.size <= records for task in planned for part in task)


def test_a_partition_is_in_one_round_only_once() -> None:
    task = (OffsetRange(A0, 0, 3), OffsetRange(A0, 7, 9), OffsetRange(A1, 0, 1))

    assert rounds(task) == [{A0: (0, 3), A1: (0, 1)}, {A0: (7, 9)}]


def test_of_a_range_that_is_split_only_the_first_piece_is_from_the_earliest() -> None:
    options = replace(OPTIONS, max_records_per_partition=4, min_partitions=6)

    planned = tasks({A0: (0, 8), A1: (5, 9)}, options, from_earliest={A0})

    assert [part for task in planned for part in task if part.from_earliest] == [OffsetRange(A0, 0, 2, True)]


def test_every_piece_of_a_range_knows_the_topic_that_was_planned() -> None:
    options = replace(OPTIONS, max_records_per_partition=4)

    (first,), (second,), (other,) = tasks({A0: (0, 8), B0: (5, 9)}, options, topic_ids={"a": UUID(int=1), "b": None})

    assert first.topic_id == second.topic_id == UUID(int=1)
    assert other.topic_id is None
