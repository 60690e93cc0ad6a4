"""The Spark examples of README.md and docs/spark.md, unchanged, on the Spark of the other tests.

In tests/docs they run on a Spark of their own, started as from a shell.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aiokc.testing.kafka import LocalKafka
from tests.docs.examples import ROOT, Example, examples
from tests.producing import produce

SECONDS = 90.0
EXAMPLES = [example for page in ("README.md", "docs/spark.md") for example in examples(page) if example.needs_spark]


class Program(threading.Thread):
    """An example that waits for its query for ever; ``error`` is the error that ended it."""

    def __init__(self, example: Example, code: str) -> None:
        super().__init__(name=example.name, daemon=True)
        self.error: BaseException | None = None
        self._code = compile(code, example.name, "exec")

    def run(self) -> None:
        try:
            exec(self._code, {"__name__": "__main__"})
        except BaseException as error:
            self.error = error


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(180)
@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_it_reads_all_that_there_is(
    example: Example, spark: SparkSession, kafka: LocalKafka, topic: str, tmp_path: Path
) -> None:
    stored = produce(kafka.bootstrap, topic, [b"x"] * 12)
    code = example.program(kafka.bootstrap, topic)
    assert topic in code
    before = {query.id for query in spark.streams.active}
    program = Program(example, code.replace('"checkpoint"', repr(str(tmp_path / "checkpoint"))))
    program.start()

    def mine() -> list[Any]:
        return [query for query in spark.streams.active if query.id not in before]

    try:
        until(lambda: not program.is_alive() or bool(mine()))
        assert program.is_alive(), program.error
        (query,) = mine()
        query.processAllAvailable()
        reached = json.loads(query.lastProgress.sources[0].endOffset)[topic]
        assert sum(reached.values()) == len(stored)
    finally:
        for query in mine():
            query.stop()
    program.join(SECONDS)
    assert not program.is_alive()
    assert program.error is None


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not after {SECONDS:g} s"
        time.sleep(0.05)


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_the_statement_of_the_quick_start(spark: SparkSession, kafka: LocalKafka, topic: str) -> None:
    (statement,) = re.findall(r"`(CREATE TEMPORARY VIEW rides [^`]*\))`", (ROOT / "docs/spark.md").read_text())
    stored = produce(kafka.bootstrap, topic, [b"x"] * 12)
    spark.sql(statement.replace("localhost:9092", kafka.bootstrap).replace("'rides'", f"'{topic}'"))
    try:
        assert spark.sql("SELECT * FROM rides").count() == len(stored)
    finally:
        spark.catalog.dropTempView("rides")


def test_both_pages_have_an_example() -> None:
    assert [example.name.split(":")[0] for example in EXAMPLES] == ["README.md", "spark.md"]
