"""A read is tried again only where its timeout was over too early: any other wrong error fails the test at once."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from aiokc import TopicPartition
from aiokc.errors import NoBrokersAvailable, RequestTimedOut
from spark_source.data_loss import DataLoss

from .patience import assert_times_out, read_with_more_time

LOSS = DataLoss(TopicPartition("events", 0), "it is gone", wanted=(0, 3), available=None, remedy="Start again.")


def read_of(*errors: Exception) -> Callable[[int], str]:
    """Return a read that raises these errors, one after the other, and then returns."""
    left = [*errors]

    def read(timeout_ms: int) -> str:
        if left:
            raise left.pop(0)
        return "rows"

    return read


@pytest.mark.parametrize("early", [RequestTimedOut("no answer within 1 s"), NoBrokersAvailable("no connection yet")])
def test_an_error_that_came_too_early_is_forgotten(early: Exception) -> None:
    assert_times_out(read_of(early, RequestTimedOut("no progress for 5 s")), "no progress for N s")
    assert read_with_more_time(read_of(early)) == "rows"


@pytest.mark.parametrize("wrong", [KeyError("events"), LOSS])
def test_a_wrong_error_is_not_forgotten_where_the_next_one_is_right(wrong: Exception) -> None:
    with pytest.raises(type(wrong)):
        assert_times_out(read_of(wrong, RequestTimedOut("no progress for 5 s")), "no progress for N s")
    with pytest.raises(type(wrong)):
        read_with_more_time(read_of(wrong))
