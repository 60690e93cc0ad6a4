from __future__ import annotations

import json
from random import Random

import pytest

from benchmarks.cases import CASES, KEY_SIZE, PARTITIONS, Case, json_lines


@pytest.mark.parametrize("records", [1, 5, 6, 7, 100_000])
def test_totals_are_those_of_records_dealt_out_one_by_one(records: int) -> None:
    case = Case("any", 100, "none", records)
    counts = [0] * PARTITIONS
    offset_sum = 0
    for number in range(records):
        partition = number % PARTITIONS
        offset_sum += counts[partition]
        counts[partition] += 1

    assert case.partition_records == counts
    assert case.offset_sum == offset_sum
    assert case.data_bytes == records * (KEY_SIZE + 100)


def test_topics_of_different_contents_have_different_names() -> None:
    smaller = Case("100B-none", 100, "none", 1000)
    assert len({case.topic for case in (*CASES.values(), smaller)}) == len(CASES) + 1


@pytest.mark.parametrize("size", [100, 1000])
def test_values_are_json_of_the_exact_size(size: int) -> None:
    lines = json_lines(size, 50, Random(1))
    assert {len(line) for line in lines} == {size}
    assert len(set(lines)) == 50
    assert all(json.loads(line)["msg"] for line in lines)


def test_a_size_too_small_for_the_fields_is_refused() -> None:
    with pytest.raises(ValueError, match="20 are too few"):
        json_lines(20, 1, Random(1))
