"""Partitions as people write them."""

from __future__ import annotations

import pytest

from aiokc.cli.options.partitions import partition_numbers, topic_choice
from aiokc.cli.problems import UsageProblem


@pytest.mark.parametrize(("text", "numbers"), [("0", (0,)), ("0,3-5", (0, 3, 4, 5)), ("5,0-1, 1", (0, 1, 5))])
def test_numbers_and_ranges(text: str, numbers: tuple[int, ...]) -> None:
    assert partition_numbers(text) == numbers


@pytest.mark.parametrize("text", ["", "a", "-1", "3-", "5-3", "0,,1", "0-99999999999", "2147483648", "9" * 5000, "٣"])
def test_what_names_no_partitions(text: str) -> None:
    with pytest.raises(UsageProblem, match="names no partitions"):
        partition_numbers(text)


def test_a_topic_with_and_without_partitions() -> None:
    assert topic_choice("orders") == ("orders", None)
    assert topic_choice("orders:0,2-4") == ("orders", (0, 2, 3, 4))
    with pytest.raises(UsageProblem, match="names no topic"):
        topic_choice(":1")
