"""The suite's own rules: which loop a test runs on, and that in CI no test of a real system may be skipped."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.suite.child_process import run_to_end

# Each runs pytest in a process of its own, some of them a broker in that: beside other work that takes minutes.
pytestmark = pytest.mark.timeout(1200)

_LOOPS = """
import asyncio, pytest
async def test_plain(): print("plain", type(asyncio.get_running_loop()).__module__.split(".")[0])
@pytest.mark.any_loop
async def test_both(): print("both", type(asyncio.get_running_loop()).__module__.split(".")[0])
@pytest.mark.any_loop(uvloop="long")
async def test_later(): print("later", type(asyncio.get_running_loop()).__module__.split(".")[0])
"""
_SKIPS = """
import pytest
@pytest.mark.kafka
def test_needs_kafka(): pytest.skip("no java")
@pytest.mark.spark
@pytest.mark.skip(reason="no spark")
def test_needs_spark(): pass
def test_other(): pytest.skip("not here")
"""
_HANGS = """
import asyncio, threading
def test_that_waits_on_its_way_out():
    try: threading.Event().wait()
    finally: threading.Event().wait()
async def test_that_no_exception_ends():
    loop = asyncio.get_running_loop()
    def again():
        loop.call_soon(again)
        threading.Event().wait()  # here the limit raises, and the loop logs that and goes on
    loop.call_soon(again)
    await loop.create_future()
"""


def _run(folder: Path, text: str, *options: str, ci: str = "") -> str:
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-q", "-s", *options]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), str(folder)]
    done = run_to_end(command, seconds=1000, cwd=ROOT, env={**os.environ, "CI": ci})
    return done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "ran"),
    [
        (["-m", "not long"], ["both asyncio", "both uvloop", "later asyncio", "plain asyncio"]),
        (["--loop", "asyncio"], ["both asyncio", "later asyncio", "plain asyncio"]),
        (["--loop", "uvloop"], ["both uvloop", "later uvloop", "plain uvloop"]),
    ],
)
def test_async_tests_run_on_the_loops_that_are_asked_for(tmp_path: Path, options: list[str], ran: list[str]) -> None:
    """And a skipped test is a skipped test, unless CI runs it."""
    said = _run(tmp_path, _LOOPS + _SKIPS, *options)
    found = [
        line.lstrip(".s") for line in said.splitlines() if line.lstrip(".s").startswith(("plain ", "both ", "later "))
    ]
    assert sorted(found) == ran, said
    assert "3 skipped" in said


def test_a_skipped_test_of_a_real_system_fails_in_ci(tmp_path: Path) -> None:
    """So does a file that is skipped as a whole."""
    (tmp_path / "test_whole.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    said = _run(tmp_path, _SKIPS, "--continue-on-collection-errors", ci="true")
    # An error is a test that failed before its body: the one with the skip mark; the other is the file.
    assert "1 failed, 1 skipped, 2 errors" in said
    assert "CI=true allows no skip" in said


def test_without_maven_the_remedy_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AIOKC_KAFKA_HOME", str(tmp_path / "home"))
    said = _run(tmp_path, "def test_broker(kafka): pass\n")
    assert "ERROR: no mvn on PATH: install Maven" in said
    assert "leave these tests out: -m 'not kafka'" in said


def test_an_old_kafka_runs_what_holds_on_it(tmp_path: Path) -> None:
    """Of the tests that take a broker, which need no mark to be tests of Kafka."""
    text = """
import pytest
pytestmark = pytest.mark.every_kafka
def test_always(kafka): pass
@pytest.mark.every_kafka(since="3.9")
def test_newer(kafka): pass
@pytest.mark.every_kafka(since="4.2")
def test_too_new(kafka): pass
def test_without_a_broker(): pass
def test_on_three(three_nodes): pass
"""
    named = [f"test_it.py::test_{name}" for name in ("always", "newer", "too_new", "on_three")]
    assert "\n".join([*named, "", "4/5 tests"]) in _run(tmp_path, text, "--collect-only", "-m", "kafka")
    collect = ("--collect-only", "--kafka", "3.9.2")
    assert "\n".join([*named[:2], "", "2/5 tests"]) in _run(tmp_path, text, *collect)


def test_a_time_limit_of_a_parameter_comes_before_that_of_its_function(tmp_path: Path) -> None:
    text = """
import pytest
@pytest.mark.timeout(600)
@pytest.mark.parametrize("n", ["short", pytest.param("long", marks=pytest.mark.timeout(3600))])
def test_limits(n, request): print(n, request.node.get_closest_marker("timeout").args)
"""
    said = _run(tmp_path, text)
    assert "short (600,)" in said
    assert "long (3600,)" in said


def test_no_time_limit_is_short_and_the_start_of_brokers_is_added_to_it(tmp_path: Path) -> None:
    text = """
import pytest
def limit(request): return request.node.get_closest_marker("timeout")
def test_without(request): assert limit(request) is None
@pytest.mark.timeout(30)
def test_short(request): assert limit(request).args == (60.0,)
@pytest.mark.timeout(0)
def test_with_none(request): assert limit(request).args == (0,)
@pytest.mark.timeout(90)
def test_long(request): assert limit(request).args == (90,)
@pytest.mark.kafka
@pytest.mark.timeout(30)
def test_short_with_brokers(request): assert limit(request).args == (180.0,)
@pytest.mark.kafka
@pytest.mark.timeout(90)
def test_with(request): assert limit(request).args == (210.0,)
@pytest.mark.kafka
def test_by_default(request): assert limit(request).args == (180.0,)
"""
    assert "7 passed" in _run(tmp_path, text, "-otimeout=60")


def test_a_test_that_its_limit_does_not_end_ends_the_run_and_is_named_last(tmp_path: Path) -> None:
    # The limit has to fall into the test's own body, and the report of a test that it did end into the time of grace.
    options = ("timeout=5", "limit_again=1", "hang_grace=12", "filterwarnings=ignore")
    said = _run(tmp_path, _HANGS, *(f"-o{option}" for option in options))
    assert said.splitlines()[-1] == "HUNG, and not ended by its time limit: test_it.py::test_that_no_exception_ends"
    assert "in run_forever" in said


def test_a_test_that_is_run_again_has_its_limit_again(tmp_path: Path) -> None:
    """pytest-timeout's ends with the first failure, and the guard's time is counted from the first begin on."""
    text = """
import threading, pytest
tries = []
@pytest.mark.timeout(6)
@pytest.mark.flaky(reruns=1, only_rerun=["slow start"])
def test_again():
    tries.append(1)
    if len(tries) == 1:
        raise RuntimeError("slow start")
    threading.Event().wait(100)
"""
    said = _run(tmp_path, text, "-otimeout=6", "-ohang_grace=60", "-rR")
    assert "1 failed, 1 rerun" in said
    assert "Timeout" in said
