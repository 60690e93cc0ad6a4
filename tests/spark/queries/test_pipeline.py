"""The pipeline of the documentation does what the page says, across restarts."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, produce

from ..session import ROOT

MINUTE = 60_000
START = 1_700_000_040_000  # a full minute


def pipeline() -> Any:
    spec = importlib.util.spec_from_file_location("windows_to_parquet", ROOT / "docs/demo/windows_to_parquet.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(240)
def test_windows_to_parquet(spark: SparkSession, kafka: LocalKafka, topic: str, tmp_path: Path) -> None:
    run: Callable[..., Any] = pipeline().start

    def found() -> list[tuple[int, str, int]]:
        assert run(spark, kafka.bootstrap, topic, tmp_path, available_now=True).awaitTermination(120)
        rows = spark.read.parquet(str(tmp_path / "counts")).selectExpr("unix_millis(minute)", "key", "count").collect()
        return sorted(((row[0] - START) // MINUTE, row[1], row[2]) for row in rows)

    def write(*minutes: float) -> None:
        times = [START + int(minute * MINUTE) for minute in minutes]
        produce(kafka.bootstrap, topic, [Message(b"x", key, timestamp=time) for time in times for key in (b"a", b"b")])

    write(0, 0.5, 1.2, 1.7)  # the first minute is complete when an event is 30 s past it
    assert found() == [(0, "a", 2), (0, "b", 2)]
    write(1.9, 2.6)
    assert found() == [(0, "a", 2), (0, "b", 2), (1, "a", 3), (1, "b", 3)]
