"""How errors and log lines name partitions."""

from __future__ import annotations

import pytest

from aiokc.errors import NoOffsetForPartition
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


def test_thousands_of_partitions_make_a_line_that_can_be_read() -> None:
    assert len(named(A)) < 200


def test_an_error_of_thousands_of_partitions_has_a_message_that_can_be_read() -> None:
    error = NoOffsetForPartition(A)
    assert len(str(error)) < 500
    assert error.partitions == set(A)
