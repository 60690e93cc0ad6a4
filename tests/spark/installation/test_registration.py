"""How Spark finds the format, and that its search for formats does no harm."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

import pytest
from pyspark.sql import SparkSession

import spark_source
from aiokc.testing.kafka import LocalKafka
from tests.producing import produce

from ..session import ROOT


def run(script: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", script]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200, check=False)


def test_the_search_imports_next_to_nothing() -> None:
    done = run(
        "import sys, pyspark.sql.datasource; before = set(sys.modules); import pyspark_aiokc;"
        "assert pyspark_aiokc.DefaultSource.name() == 'aiokc';"
        "print(*sorted({name.partition('.')[0] for name in set(sys.modules) - before}))"
    )

    assert done.stdout.split() == ["pyspark_aiokc", "spark_source"], done.stderr


def test_without_the_data_source_api_there_is_a_warning_and_no_error() -> None:
    done = run(
        "import sys; sys.modules['pyspark.sql.datasource'] = None; import pyspark_aiokc;"
        "assert not hasattr(pyspark_aiokc, 'DefaultSource')"
    )

    assert done.returncode == 0, done.stderr
    assert "format 'aiokc' is not available" in done.stderr


@pytest.mark.spark
@pytest.mark.kafka
@pytest.mark.timeout(180)
def test_registered_by_hand(spark: SparkSession, kafka: LocalKafka, topic: str, options: Mapping[str, str]) -> None:
    produce(kafka.bootstrap, topic, [b"x"] * 3)
    session = spark.newSession()

    spark_source.register(session)

    assert session.read.format("aiokc").options(**options).load().count() == 3
