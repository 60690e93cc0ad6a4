"""Sums of lag, names of members, the limit of --fail-above."""

from __future__ import annotations

from dataclasses import replace

import pytest

from aiokc.cli.lag.limits import Limit, parse_limit, rows_above
from aiokc.cli.lag.rows import NO_MEMBER, LagRow, member_names, summed
from aiokc.cli.problems import UsageProblem

ROW = LagRow("g", "t", 0, committed=10, end=15, lag=5, lag_ms=700, member="a@h", member_id="a-1")
ROWS = [
    ROW,
    replace(ROW, partition=1, committed=0, end=100, lag=100, lag_ms=None),
    replace(ROW, topic="u", committed=None, end=7, lag=None, lag_ms=None, member=None, member_id=None),
    replace(ROW, group="h", committed=1, end=1, lag=0, lag_ms=0),
]


def test_partitions_are_as_they_are() -> None:
    assert summed(ROWS, "partition") == ROWS


def test_the_sum_of_a_topic() -> None:
    t, u, other = summed(ROWS, "topic")
    assert (t.group, t.topic, t.partition, t.partitions, t.unknown) == ("g", "t", None, 2, 0)
    assert (t.committed, t.end, t.lag, t.lag_ms, t.member) == (10, 115, 105, 700, None)
    assert (u.topic, u.committed, u.end, u.lag, u.lag_ms, u.partitions, u.unknown) == (
        "u",
        None,
        None,
        None,
        None,
        1,
        1,
    )
    assert (other.group, other.lag) == ("h", 0)


def test_the_sum_of_a_member() -> None:
    member, nobody, other = summed(ROWS, "member")
    assert (member.member, member.member_id, member.lag, member.topic) == ("a@h", "a-1", 105, None)
    assert (nobody.member, nobody.member_id, nobody.unknown) == (NO_MEMBER, "", 1)
    assert other.group == "h"


def test_the_sum_of_a_group_counts_what_is_unknown() -> None:
    group, other = summed(ROWS, "group")
    assert (group.lag, group.lag_ms, group.partitions, group.unknown) == (105, 700, 3, 1)
    assert (group.end, group.committed) == (115, 10)  # without the partition that has no lag
    assert (other.lag, other.lag_ms, other.partitions) == (0, 0, 1)
    assert len({row.key for row in [*ROWS, group, other]}) == 6


def test_a_sum_says_the_first_error() -> None:
    assert summed([ROW, replace(ROW, partition=1, error="no leader")], "group")[0].error == "no leader"


def test_sums_of_64_bits_are_exact() -> None:
    most = (1 << 63) - 1
    rows = [replace(ROW, partition=number, committed=0, end=most, lag=most) for number in range(3)]
    assert summed(rows, "group")[0].lag == 3 * most


def test_members_are_told_apart() -> None:
    uuid = "5b2c5f1e-0000-0000-0000-000000000000"
    names = member_names(
        [
            (f"app-{uuid}", None, "app", "/10.0.0.1"),
            ("app-7777aaaa-0000", None, "app", "/10.0.0.1"),
            ("other-1", None, "other", "/10.0.0.2"),
            ("whatever", "static-1", "app", "10.0.0.3"),
            ("of-no-client", None, "", ""),
        ]
    )
    assert list(names.values()) == [
        "app@10.0.0.1#5b2c5f1e",
        "app@10.0.0.1#7777aaaa",
        "other@10.0.0.2",
        "static-1@10.0.0.3",
        "of-no-client",
    ]


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("0", Limit(records=0)),
        ("1000", Limit(records=1000)),
        ("9223372036854775807", Limit(records=(1 << 63) - 1)),
        ("250ms", Limit(milliseconds=250)),
        ("30s", Limit(milliseconds=30_000)),
        ("5m", Limit(milliseconds=300_000)),
        ("2h", Limit(milliseconds=7_200_000)),
        ("1d", Limit(milliseconds=86_400_000)),
    ],
)
def test_limits(text: str, limit: Limit) -> None:
    assert parse_limit(text) == limit


@pytest.mark.parametrize("text", ["", "5 m", "-1", "-5m", "5x", "m", "٣", "1.5", "1e3"])
def test_what_is_no_limit(text: str) -> None:
    with pytest.raises(UsageProblem, match="a number of records"):
        parse_limit(text)


def test_rows_above_a_limit_come_the_worst_first() -> None:
    worse, unknown = replace(ROW, partition=1, lag=9, lag_ms=600), replace(ROW, lag=None, lag_ms=None)
    assert rows_above([ROW, worse, unknown], Limit(records=4)) == [worse, ROW]
    assert rows_above([ROW, worse, unknown], Limit(records=5)) == [worse]
    assert rows_above([ROW, worse, unknown], Limit(milliseconds=599)) == [ROW, worse]
    assert rows_above([ROW, worse, unknown], Limit(milliseconds=700)) == []


def test_what_a_limit_says_nothing_about() -> None:
    assert Limit(records=1).cannot_tell(replace(ROW, lag=None))
    assert Limit(records=1).cannot_tell(replace(ROW, unknown=1))
    assert not Limit(records=1).cannot_tell(replace(ROW, lag_ms=None))
    assert Limit(milliseconds=1).cannot_tell(replace(ROW, lag_ms=None))
    assert not Limit(milliseconds=1).cannot_tell(ROW)


def test_a_sum_of_which_a_partition_has_no_age_is_not_all_checked() -> None:
    """Its next record has no timestamp, and may be older than all others."""
    (total,) = summed(ROWS[:2], "group")
    assert (total.unknown, total.without_age) == (0, 1)
    assert Limit(milliseconds=1_000).cannot_tell(total)
    assert not Limit(records=1_000).cannot_tell(total)
    assert not Limit(milliseconds=1_000).cannot_tell(summed([ROW, ROW], "group")[0])
