"""Groups: their states, owners, lag, and retention."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aiokc import OffsetAndMetadata, TopicPartition
from aiokc.admin import AclOperation, ConfigEntry, ConfigSource, GroupDescription, Lag, MemberDescription
from aiokc.core.doctor.group import (
    is_unknown,
    lag_findings,
    past_end,
    permission_findings,
    retention_findings,
    state_finding,
)
from aiokc.core.doctor.report import Finding
from aiokc.errors import BrokerError, ConnectionFailed

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
NOW = 1_000_000_000_000
HOUR = 3_600_000


def member(name: str, *owns: TopicPartition) -> MemberDescription:
    return MemberDescription(name, "client", "/10.0.0.1", subscription=("t",), assignment=owns)


def group(state: str, *members: MemberDescription) -> GroupDescription:
    return GroupDescription("g", "classic", state, 1, members)


def lag(committed: int | None, start: int = 0, end: int = 10, **given: Any) -> Lag:
    return Lag(None if committed is None else OffsetAndMetadata(committed), start, end, **given)


def codes(found: list[Finding]) -> list[str]:
    return [one.code for one in found]


@pytest.mark.parametrize(
    ("described", "code"),
    [
        (group("Stable", member("a", ONE)), "group.state"),
        (group("Stable", member("a", ONE), member("b")), "group.idle_members"),
        (group("PreparingRebalance", member("a")), "group.rebalancing"),
        (group("Reconciling", member("a", ONE)), "group.rebalancing"),
        (group("Empty"), "group.state"),
        # a worker of Kafka Connect owns no partitions that a consumer would read
        (replace(group("Stable", member("a")), protocol_type="connect"), "group.state"),
    ],
)
def test_states(described: GroupDescription, code: str) -> None:
    assert state_finding(described).code == code


def test_a_group_that_is_not_there() -> None:
    assert is_unknown(group("Dead"))
    assert is_unknown(BrokerError(69))
    assert not is_unknown(BrokerError(15))
    assert not is_unknown(ConnectionFailed("gone"))
    assert not is_unknown(group("Empty"))


@pytest.mark.parametrize(
    ("operations", "expected"),
    [
        (None, []),
        ((), []),  # it could not have been described: the broker does not tell them
        ((AclOperation.READ, AclOperation.DESCRIBE), []),
        ((AclOperation.DESCRIBE,), ["group.no_read"]),
        ((AclOperation.DELETE, AclOperation.DESCRIBE), ["group.no_read"]),
    ],
)
def test_a_group_that_may_be_seen_and_not_joined(
    operations: tuple[AclOperation, ...] | None, expected: list[str]
) -> None:
    told = None if operations is None else frozenset(operations)
    assert codes(permission_findings(replace(group("Stable"), authorized_operations=told))) == expected


@pytest.mark.parametrize(
    ("described", "lags", "expected"),
    [
        (group("Stable", member("a", ONE, TWO)), {ONE: lag(10), TWO: lag(3)}, []),
        (group("Stable", member("a", ONE)), {ONE: lag(10), TWO: lag(3)}, ["group.no_owner"]),
        (group("Stable", member("a", ONE)), {ONE: lag(10), TWO: lag(10)}, []),
        (group("Stable", member("a", ONE)), {TopicPartition("old", 0): lag(3)}, []),  # a topic not subscribed to
        (group("PreparingRebalance", member("a")), {ONE: lag(3)}, []),
        (group("Empty"), {ONE: lag(3)}, ["group.no_members"]),
        (group("Empty"), {ONE: lag(10)}, []),
        (group("Stable", member("a", ONE)), {ONE: lag(3, start=5)}, ["group.deleted_unread"]),
        (group("Stable", member("a", ONE)), {ONE: lag(11)}, ["group.beyond_end"]),
        (group("Stable", member("a", ONE)), {ONE: lag(None)}, []),
        (group("Stable", member("a", ONE)), {ONE: Lag(None, None, None, error=BrokerError(3))}, ["group.no_lag"]),
        (group("Empty"), {}, []),
    ],
)
def test_lag(described: GroupDescription, lags: dict[TopicPartition, Lag], expected: list[str]) -> None:
    ends = {tp: lags[tp].end or 0 for tp in past_end(lags)}
    assert codes(lag_findings("g", described, lags, ends, NOW)) == [*expected, "group.lag"]


@pytest.mark.parametrize(("log_end", "expected"), [(11, ["group.beyond_end"]), (12, []), (13, []), (None, [])])
def test_only_what_the_log_itself_does_not_have_is_beyond_its_end(log_end: int | None, expected: list[str]) -> None:
    """The end of a Lag may be the beginning of an open transaction."""
    lags = {ONE: lag(12), TWO: lag(10)}
    assert past_end(lags) == [ONE]
    ends = {} if log_end is None else {ONE: log_end}
    assert codes(lag_findings("g", group("Empty"), lags, ends, NOW)) == [*expected, "group.lag"]


@pytest.mark.parametrize(
    ("lags", "text"),
    [
        ({ONE: lag(10), TWO: lag(10)}, "has read all in 2 partitions"),
        ({ONE: lag(10), TWO: lag(7)}, "3 records behind in 2 partitions"),
        ({ONE: lag(None), TWO: lag(None)}, "nothing is committed in 2 partitions that members own"),
        (
            {ONE: lag(10), TWO: lag(None)},
            "has read all in 1 partition; nothing is committed in 1 partition that members own",
        ),
        ({ONE: Lag(None, None, None, error=BrokerError(3))}, "no lag is known"),
        ({}, "nothing is committed, and no member owns a partition"),
    ],
)
def test_the_words_for_the_lag(lags: dict[TopicPartition, Lag], text: str) -> None:
    found = lag_findings("g", group("Stable", member("a", ONE, TWO)), lags, {}, NOW)[-1]
    assert (found.code, found.text) == ("group.lag", text)
    assert found.details["uncommitted"] == sum(one.committed is None and one.error is None for one in lags.values())


def configs(**values: str | None) -> dict[str, ConfigEntry]:
    named = {name.replace("_", "."): value for name, value in values.items()}
    return {name: ConfigEntry(name, value, ConfigSource.DEFAULT_CONFIG) for name, value in named.items()}


@pytest.mark.parametrize(
    ("age", "entries", "found"),
    [
        (HOUR, configs(retention_ms=str(HOUR), cleanup_policy="delete"), True),
        (int(HOUR * 0.81), configs(retention_ms=str(HOUR)), True),
        (int(HOUR * 0.79), configs(retention_ms=str(HOUR)), False),
        (HOUR, configs(retention_ms="-1"), False),
        (HOUR, configs(retention_ms=str(HOUR), cleanup_policy="compact"), False),
        (HOUR, configs(retention_ms=str(HOUR), cleanup_policy="compact,delete"), True),
        (HOUR, configs(retention_ms=None), False),
        (HOUR, configs(retention_ms="9" * 5_000), False),
        (HOUR, configs(), False),
        (HOUR, BrokerError(29), False),
    ],
)
def test_retention(age: int, entries: Any, found: bool) -> None:
    lags = {ONE: lag(3, timestamp=NOW - age), TWO: lag(10, timestamp=None)}
    assert bool(retention_findings("g", lags, {"t": entries}, NOW)) == found
