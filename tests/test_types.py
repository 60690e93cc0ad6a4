"""How errors and log lines name partitions."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokc.errors import LogTruncated, NoOffsetForPartition, OffsetOutOfRange
from aiokc.types import TopicPartition, named

A = [TopicPartition("a", number) for number in range(5_000)]


@pytest.mark.parametrize(
    ("partitions", "text"),
    [
        ([], "no partition"),
        ([A[1], A[0]], "a-0, a-1"),
        ([A[2], A[0], A[1]], "a-0, a-1, a-2"),
        (A[:4], "a-0, a-1, a-2 and 1 more"),
        (set(A), "a-0, a-1, a-2 and 4,997 more"),
    ],
)
def test_the_first_of_them_and_how_many_more(partitions: list[TopicPartition], text: str) -> None:
    assert named(partitions, 3) == text


def test_topics_are_named_as_partitions_are() -> None:
    assert named({"b", "d", "a", "c"}, 3) == "a, b, c and 1 more"


def test_thousands_of_partitions_make_a_line_that_can_be_read() -> None:
    assert len(named(A)) < 200


def test_an_error_of_thousands_of_partitions_has_a_message_that_can_be_read() -> None:
    error = NoOffsetForPartition(A)
    assert len(str(error)) < 500
    assert error.partitions == set(A)


@pytest.mark.parametrize("make", [OffsetOutOfRange, lambda offsets: LogTruncated(offsets, offsets)])
def test_an_error_of_thousands_of_offsets_has_a_message_that_can_be_read(
    make: Callable[[dict[TopicPartition, int]], OffsetOutOfRange],
) -> None:
    error = make(dict.fromkeys(A, 7))
    assert "a-0 at 7, a-1 at 7, " in str(error)
    assert " and 4,980 more" in str(error)
    assert len(str(error)) < 1_000
    assert error.offsets == dict.fromkeys(A, 7)


def test_a_truncated_log_names_where_to_seek() -> None:
    assert "; seek() a-0 to 5 to go on" in str(LogTruncated({A[0]: 7}, {A[0]: 5}))
    assert "; seek() to an existing offset to go on" in str(LogTruncated({A[0]: 7}, {}))
