from __future__ import annotations

import json
from dataclasses import replace
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
    assert replace(case, takes="value").data_bytes == records * 100


def test_topics_of_different_contents_have_different_names() -> None:
    smaller = Case("100B-none", 100, "none", 1000)
    cases = (*CASES.values(), smaller)
    contents = {(case.value_size, case.compression, case.records) for case in cases}
    assert len({case.topic for case in cases}) == len(contents)


def test_the_same_records_are_read_in_plaintext_and_over_tls() -> None:
    for plain, *secure in (("100B-none", "100B-SSL", "100B-SASL_SSL"), ("1kB-none", "1kB-SSL", "1kB-SASL_SSL")):
        assert {CASES[name].topic for name in secure} == {CASES[plain].topic}
        assert [CASES[name].security_protocol for name in secure] == ["SSL", "SASL_SSL"]


def test_values_alone_are_taken_of_the_same_records() -> None:
    for name in ("100B-none", "100B-lz4", "100B-zstd", "1kB-none"):
        assert CASES[f"{name}-value"] == replace(CASES[name], name=f"{name}-value", takes="value")


def test_a_title_says_what_is_read() -> None:
    titles = {name: CASES[name].title for name in ("100B-none-value", "100B-lz4", "1kB-none-value", "1kB-SASL_SSL")}
    assert titles == {
        "100B-none-value": "100 B, value only",
        "100B-lz4": "100 B lz4, key, value, offset",
        "1kB-none-value": "1 kB, value only",
        "1kB-SASL_SSL": "1 kB over TLS with SASL, key, value, offset",
    }


@pytest.mark.parametrize("size", [100, 1000])
def test_values_are_json_of_the_exact_size(size: int) -> None:
    lines = json_lines(size, 50, Random(1))
    assert {len(line) for line in lines} == {size}
    assert len(set(lines)) == 50
    assert all(json.loads(line)["msg"] for line in lines)


def test_a_size_too_small_for_the_fields_is_refused() -> None:
    with pytest.raises(ValueError, match="20 are too few"):
        json_lines(20, 1, Random(1))
