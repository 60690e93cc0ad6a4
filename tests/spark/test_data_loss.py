from __future__ import annotations

import logging

import pytest

from aiokc import TopicPartition
from spark_source.data_loss import DataLoss, within

TP = TopicPartition("events", 3)


def test_what_the_log_holds_is_wanted_in_full() -> None:
    assert within(TP, (10, 20), (10, 20), fail=True) == (10, 20)
    assert within(TP, (10, 20), (0, 99), fail=True) == (10, 20)


@pytest.mark.parametrize(
    ("wanted", "available", "said"),
    [
        ((10, 20), (15, 99), "oldest records were deleted. Wanted: offsets 10 to 20 .exclusive.; available: 15 to 99"),
        ((10, 20), (0, 12), "ends before offsets that were read or planned already. Wanted: .*; available: 0 to 12"),
        ((10, 20), None, "the partition is gone. Wanted: .*; available: nothing of it"),
        ((20, 10), (0, 15), "ended before what was read already. Wanted: from offset 20 on; available: 0 to 15"),
    ],
)
def test_anything_less_is_an_error_with_a_remedy(
    wanted: tuple[int, int], available: tuple[int, int] | None, said: str
) -> None:
    with pytest.raises(DataLoss, match=f"topic 'events', partition 3: .*{said}.*set failOnDataLoss=false"):
        within(TP, wanted, available, fail=True)


@pytest.mark.parametrize(
    ("available", "kept"),
    [((15, 99), (15, 20)), ((0, 12), (10, 12)), ((30, 99), (10, 10)), ((0, 5), (10, 10)), (None, (10, 10))],
)
def test_with_fail_on_data_loss_false_what_is_left_is_read_and_the_rest_is_told(
    available: tuple[int, int] | None, kept: tuple[int, int], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, logger="spark_source"):
        assert within(TP, (10, 20), available, fail=False) == kept

    assert "failOnDataLoss=false: going on after data loss: topic 'events', partition 3" in caplog.text
    assert "set failOnDataLoss" not in caplog.text, "it is set"
