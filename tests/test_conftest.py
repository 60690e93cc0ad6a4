"""The suite's own rules: which loop a test runs on, and that CI knows no skipped test of a real system."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests.child_process import run_to_end
from tests.conftest import ROOT

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
    def again(): loop.call_soon(again)
    again()
    async def deaf():
        while True:
            try:
                await asyncio.sleep(0)
            except BaseException: pass
    await deaf()
"""


def _run(folder: Path, text: str, *options: str, ci: str = "") -> str:
    (folder / "test_it.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-q", "-s", *options]
    command += ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(folder), str(folder)]
    done = run_to_end(command, seconds=50, cwd=ROOT, env={**os.environ, "CI": ci})
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
    said = _run(tmp_path, _LOOPS, *options)
    found = [
        line.lstrip(".") for line in said.splitlines() if line.lstrip(".").startswith(("plain ", "both ", "later "))
    ]
    assert sorted(found) == ran, said


def test_a_skipped_test_of_a_real_system_fails_in_ci(tmp_path: Path) -> None:
    assert "3 skipped" in _run(tmp_path, _SKIPS)
    # An error is a test that failed before its body: the one with the skip mark.
    assert "1 failed, 1 skipped, 1 error" in _run(tmp_path, _SKIPS, ci="true")


def test_a_file_skipped_as_a_whole_fails_in_ci(tmp_path: Path) -> None:
    said = _run(tmp_path, "import pytest\npytest.importorskip('no_such_module')\n", ci="true")
    assert "1 error" in said
    assert "CI=true allows no skip" in said


def test_a_test_that_takes_a_broker_is_a_kafka_test(tmp_path: Path) -> None:
    text = "def test_broker(kafka): pass\ndef test_nodes(three_nodes): pass\ndef test_other(): pass\n"
    assert "test_it.py::test_broker\ntest_it.py::test_nodes\n\n2/3 tests" in _run(
        tmp_path, text, "--collect-only", "-m", "kafka"
    )


def test_without_maven_the_remedy_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("AIOKC_KAFKA_HOME", str(tmp_path / "home"))
    said = _run(tmp_path, "def test_broker(kafka): pass\n")
    assert "ERROR: no mvn on PATH: install Maven" in said
    assert "leave these tests out: -m 'not kafka'" in said


def test_an_old_kafka_runs_what_holds_on_it(tmp_path: Path) -> None:
    text = """
import pytest
pytestmark = pytest.mark.every_kafka
def test_always(kafka): pass
@pytest.mark.every_kafka(since="3.9")
def test_newer(kafka): pass
def test_without_a_broker(): pass
def test_on_three(three_nodes): pass
"""
    collect = "--collect-only"
    assert "test_it.py::test_always\n\n1/4 tests" in _run(tmp_path, text, collect, "--kafka", "2.8.2")
    assert "test_it.py::test_always\ntest_it.py::test_newer\n\n2/4 tests" in _run(
        tmp_path, text, collect, "--kafka", "3.9.2"
    )


def test_a_test_that_its_limit_does_not_end_ends_the_run_and_is_named_last(tmp_path: Path) -> None:
    options = ("timeout=0.5", "limit_again=0.3", "hang_grace=1", "filterwarnings=ignore")
    said = _run(tmp_path, _HANGS, *(f"-o{option}" for option in options))
    assert said.splitlines()[-1] == "HUNG, and not ended by its time limit: test_it.py::test_that_no_exception_ends"
    assert "in run_forever" in said
