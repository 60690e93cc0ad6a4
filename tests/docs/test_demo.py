"""The demo: its rides, its lines, its checks, which do find differences, and all of it on a machine without Java."""

from __future__ import annotations

import importlib
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.suite.child_process import run_to_end

from .examples import ROOT

DEMO = ROOT / "docs" / "demo"
UNTIL_MS = 1_767_225_600_000  # 2026-01-01T00:00:00Z


@contextmanager
def demo_path() -> Iterator[None]:
    """`python docs/demo` puts its folder first on the path; so does this."""
    sys.path.insert(0, str(DEMO))
    try:
        yield
    finally:
        sys.path.remove(str(DEMO))


with demo_path():
    checks: ModuleType = importlib.import_module("checks")
    consuming: ModuleType = importlib.import_module("consuming")
    display: ModuleType = importlib.import_module("display")
    events: ModuleType = importlib.import_module("events")
    streaming: ModuleType = importlib.import_module("streaming")


def some_rides(count: int = 200) -> list[Any]:
    rides: list[Any] = events.rides(count, until_ms=UNTIL_MS, minutes=5, seed=1)
    return rides


def members(*received: list[tuple[str, int, int]]) -> list[Any]:
    return [
        consuming.Member(f"member {number}", received=[consuming.Receipt(*receipt) for receipt in receipts])
        for number, receipts in enumerate(received, 1)
    ]


def differences(found: list[Any]) -> list[str]:
    return [difference for check in found for difference in check.differs]


def test_rides_are_distinct_in_order_and_within_their_minutes() -> None:
    rides = some_rides()
    times = [ride.timestamp_ms for ride in rides]
    assert len({ride.id for ride in rides}) == 200
    assert times == sorted(times)
    assert UNTIL_MS - 5 * 60_000 <= times[0] < times[-1] < UNTIL_MS
    assert rides == some_rides(), "the same seed gives the same rides"


def test_counts_are_by_minute_and_city() -> None:
    ride = some_rides(1)[0]
    counted = events.per_minute_and_city([ride, ride])
    ((minute, city), count) = next(iter(counted.items()))
    assert (city, count) == (ride.city, 2)
    assert minute == datetime.fromtimestamp(ride.timestamp_ms // 60_000 * 60, UTC)


def test_checks_of_members_hold_where_all_arrived_once() -> None:
    rides = some_rides(3)
    both = members([(rides[0].id, 0, 0), (rides[1].id, 1, 0)], [(rides[2].id, 0, 1)])
    assert differences(checks.check_members(both, rides, {0: 2, 1: 1})) == []


def test_checks_of_members_name_what_is_lost_doubled_and_unknown() -> None:
    rides = some_rides(3)
    both = members([(rides[0].id, 0, 0), (rides[0].id, 0, 0), ("ride-x", 0, 5)], [])
    assert differences(checks.check_members(both, rides, {0: 2, 1: 1})) == [
        "member 2 received nothing",
        "2 missing: ride-000001, ride-000002",
        "1 more than once: ride-000000",
        "1 never produced: ride-x",
        "2 missing: partition 0 offset 1, partition 1 offset 0",
        "1 more than once: partition 0 offset 0",
        "1 never produced: partition 0 offset 5",
    ]


def test_checks_of_spark_name_wrong_counts_and_records() -> None:
    minute = datetime(2026, 1, 1, tzinfo=UTC)
    expected = Counter({(minute, "Oslo"): 2, (minute, "Vienna"): 1})
    right = checks.check_spark(expected, [(0, 0), (0, 1), (1, 0)], expected, {0: 2, 1: 1})
    assert differences(right) == []
    wrong = checks.check_spark(Counter({(minute, "Oslo"): 3}), [(0, 0), (0, 1), (0, 1)], expected, {0: 2, 1: 1})
    assert differences(wrong) == [
        "00:00 Oslo: 3 counted, 2 produced",
        "00:00 Vienna: 0 counted, 1 produced",
        "1 missing: partition 1 offset 0",
        "1 more than once: partition 0 offset 1",
    ]


def test_a_long_list_of_differences_is_cut() -> None:
    (missing,) = checks.once(Counter[str](), [f"ride-{number}" for number in range(9)], str)
    assert missing == "9 missing: ride-0, ride-1, ride-2, ride-3, ride-4, ..."


def test_the_result_has_a_row_for_each_minute_and_sums() -> None:
    first, second = datetime(2026, 1, 1, 10, 0, tzinfo=UTC), datetime(2026, 1, 1, 10, 1, tzinfo=UTC)
    table = display.result_table(Counter({(first, "Oslo"): 1, (first, "Vienna"): 2, (second, "Oslo"): 1000}))
    assert [line.split() for line in table.splitlines()] == [
        ["minute", "Oslo", "Vienna", "all"],
        ["10:00", "1", "2", "3"],
        ["10:01", "1,000", "0", "1,000"],
        ["all", "1,001", "2", "1,003"],
    ]


def test_plain_lines_tell_of_each_new_assignment(capsys: pytest.CaptureFixture[str]) -> None:
    def glance(*assignments: tuple[int, ...]) -> Any:
        states = [consuming.MemberState(f"member {n}", a, 10, 5.0, 1) for n, a in enumerate(assignments, 1)]
        return consuming.Glance(1.0, 12, tuple(states), 2)

    with display.PlainLines().live() as show:
        show(glance((), ()))
        show(glance((0, 1), ()))
        show(glance((0, 1), ()))
        show(glance((0,), (1,)))
    told = [line for line in capsys.readouterr().out.splitlines() if "assignment" in line]
    assert told == ["  assignment: member 1 has 0 1", "  assignment: member 1 has 0, member 2 has 1"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (None, r"no java found: install a JDK 17"),
        (
            'openjdk version "11.0.2" 2019-01-15\nmore',
            r"bin/java is openjdk version \"11.0.2\" 2019-01-15: install a JDK 17",
        ),
        ("Unable to locate a Java Runtime.\nmore", r"bin/java is Unable to locate a Java Runtime.: install a JDK 17"),
        ("", "bin/java is no Java: install a JDK 17"),
        ('openjdk version "17.0.15" 2025-01-01', None),
    ],
    ids=["no java", "an old one", "the one of macOS", "a silent one", "one that Spark takes"],
)
def test_without_java_the_demo_says_so_in_one_line(
    said: str | None, told: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    if said is not None:
        java = tmp_path / "bin" / "java"
        java.parent.mkdir()
        java.write_text(f"#!/bin/sh\nprintf '%s' '{said}' >&2\n")
        java.chmod(0o755)
    lacking = streaming.missing()
    if told is None:
        assert lacking is None
    else:
        assert re.search(told, lacking)
        assert "\n" not in lacking


def test_without_java_the_demo_does_what_it_can_and_says_what_it_left_out(tmp_path: Path) -> None:
    """No Kafka and no Spark: brokers in Python, and the group."""
    environment = {name: value for name, value in os.environ.items() if name != "AIOKC_BOOTSTRAP"}
    environment |= {"JAVA_HOME": str(tmp_path), "AIOKC_KAFKA_HOME": str(tmp_path / "none"), "PYTHONPATH": str(ROOT)}
    ran = run_to_end([sys.executable, DEMO], seconds=100, env=environment, cwd=tmp_path)
    said = ran.stdout.splitlines()
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stderr == ""
    assert any(line.startswith("Broker: aiokc.testing.Cluster, 3 brokers in Python") for line in said)
    assert [line[:4] for line in said if re.match("  (ok|NO) ", line)] == ["  ok"] * 3  # nothing of Spark
    assert any(re.match("Spark: left out.*no java found: install a JDK 17", line) for line in said)
    assert re.match(r"Done \(without Spark\), after \d+ s, on aiokc.testing.Cluster", said[-1])
    assert list(tmp_path.iterdir()) == []  # no jars were fetched


@pytest.mark.parametrize(("broker", "fetches"), [((), False), (("BROKER=cluster",), False), (("BROKER=kafka",), True)])
def test_make_demo_needs_jars_for_a_real_kafka_only(broker: tuple[str, ...], fetches: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name not in ("BROKER", "MAKEFLAGS")}
    planned = run_to_end(["make", "--dry-run", "demo", *broker], seconds=50, cwd=ROOT, env=environment)
    assert planned.returncode == 0, planned.stderr
    assert ("aiokc.testing.kafka --fetch" in planned.stdout) is fetches
    assert f"docs/demo --broker {'kafka' if fetches else 'cluster'}" in planned.stdout
