"""Each block of Python in README.md, the guide and Spark's page runs against a real broker and does what it says."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from aiokc.testing.kafka import LocalKafka

from ..producing import Message, produce
from ..suite.child_process import run_to_end
from .examples import ROOT, Example, examples

VALUES = [f"value-{number:02}" for number in range(12)]
# What Python writes to stderr when a task, a coroutine or a socket was left behind.
SIGNS_OF_NEGLECT = ["Exception ignored", "never awaited", "never retrieved", "was destroyed", "Warning"]
SMALL_SPARK = (
    "--master local[2] --conf spark.ui.enabled=false --conf spark.driver.bindAddress=127.0.0.1 "
    "--driver-java-options '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC' pyspark-shell"
)
PAGES = (
    *("README.md", "docs/index.md", "docs/integrations.md", "docs/metrics.md", "docs/production.md", "docs/spark.md"),
    *(path.relative_to(ROOT).as_posix() for path in sorted((ROOT / "docs" / "guide").glob("*.md"))),
)
EXAMPLES = [example for page in PAGES for example in examples(page)]


@pytest.fixture
def topic(kafka: LocalKafka, topic_name: str) -> str:
    """A topic of two partitions that holds VALUES."""
    kafka.create_topic(topic_name, partitions=2)
    produce(
        kafka.bootstrap,
        topic_name,
        [Message(value.encode(), key=b"key", partition=number % 2) for number, value in enumerate(VALUES)],
    )
    return topic_name


def cases(*, spark: bool) -> list[Example]:
    return [example for example in EXAMPLES if example.needs_spark == spark and not example.needs_registry]


@pytest.mark.kafka
@pytest.mark.parametrize("example", cases(spark=False), ids=lambda example: example.name)
async def test_example(example: Example, kafka: LocalKafka, topic: str, tmp_path: Path) -> None:
    for name in example.other_topics(topic):
        kafka.create_topic(name, partitions=2)
    printed, said = await run(example, kafka.bootstrap, topic, tmp_path, timeout=120)
    assert printed, "it ended without a word"
    assert not [sign for sign in SIGNS_OF_NEGLECT if sign in said], said


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(180)
@pytest.mark.parametrize("example", cases(spark=True), ids=lambda example: example.name)
async def test_spark_example(example: Example, kafka: LocalKafka, topic: str, tmp_path: Path) -> None:
    """Each starts a Spark of its own; tests/spark runs the same on the Spark that is there."""
    printed, _ = await run(example, kafka.bootstrap, topic, tmp_path, timeout=150)
    assert printed


async def run(example: Example, bootstrap: str, topic: str, folder: Path, *, timeout: float) -> tuple[str, str]:
    """Run an example as its own process; return what it wrote to stdout and stderr.

    A program that reads for ever is interrupted (Ctrl-C, or SIGTERM if it handles that) when it has printed all VALUES;
    any other must end by itself, with exit code 0.
    """
    program = folder / "example.py"
    program.write_text(example.program(bootstrap, topic))
    printed = ""
    async with running(program) as process, asyncio.timeout(timeout):
        assert process.stdout is not None
        assert process.stderr is not None
        complaints = asyncio.ensure_future(process.stderr.read())
        interrupted = False
        async for line in process.stdout:
            printed += line.decode()
            if example.runs_for_ever and not interrupted and all(value in printed for value in VALUES):
                process.send_signal(signal.SIGTERM if example.ends_well else signal.SIGINT)
                interrupted = True
        said = (await complaints).decode()
        code = await process.wait()
    what = f"{example.name} ended with {code} after printing:\n{printed}\nand said:\n{said}"
    assert interrupted == example.runs_for_ever, what
    if example.runs_for_ever and not example.ends_well:
        assert "KeyboardInterrupt" in said, what
    else:
        assert code == 0, what
    return printed, said


@pytest.mark.timeout(180)
def test_a_type_checker_accepts_the_programs(tmp_path: Path) -> None:
    """mypy --strict, except that their functions need no annotations: what is copied brings no other errors."""
    programs = [example for page in (*PAGES, "docs/testing.md") for example in examples(page) if example.is_whole]
    for example in programs:
        # In the program, not on the command line: with other flags mypy would check all of aiokc anew.
        relaxed = "disallow-untyped-defs=False, disallow-incomplete-defs=False, disallow-untyped-calls=False"
        module = re.sub(r"\W", "_", example.name)
        (tmp_path / f"{module}.py").write_text(f"# mypy: {relaxed}\n{example.code}")
    done = run_to_end([sys.executable, "-m", "mypy", "--strict", "--no-pretty", tmp_path], seconds=150, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"no issues found in {len(programs)} source files" in done.stdout


def test_programs_handle_sigterm_before_they_start_clients() -> None:
    """Until then SIGTERM ends the process at once, and its group waits for a session."""
    programs = [example.code for example in EXAMPLES if example.ends_well]
    assert programs
    for code in programs:
        assert code.index("signal.SIGTERM") < code.index("async with ", code.index("async def main")), code


@pytest.mark.parametrize("page", [page for page in PAGES if "/guide/" in page])
def test_a_page_with_examples_that_import_nothing_says_where_they_stand(page: str) -> None:
    parts = [example for example in examples(page) if not example.is_whole]
    assert ("(index.md#examples)" in (ROOT / page).read_text()) == bool(parts)


@asynccontextmanager
async def running(program: Path) -> AsyncIterator[Process]:
    """Run a program with warnings as errors, in its own folder; nothing of it is left afterwards."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-u", "-W", "error", program.name),
        cwd=program.parent,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_SUBMIT_ARGS": SMALL_SPARK,
        },
        stdin=DEVNULL,
        stdout=PIPE,
        stderr=PIPE,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):  # all of them have ended, the JVM of a Spark too
            os.killpg(process.pid, signal.SIGKILL)
        async with asyncio.timeout(10):
            await process.wait()
