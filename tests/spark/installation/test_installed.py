"""Spark finds the format in environments where this project is installed as its users install it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from aiokc.testing.kafka import LocalKafka
from tests.producing import produce

from . import shipping

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(400)]

RECORDS = 30
START = """
import sys
from pyspark.sql import SparkSession
bootstrap, topic, checkpoint = sys.argv[1:]
options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
settings = {
    "spark.ui.enabled": "false", "spark.log.level": "ERROR", "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
}
builder = SparkSession.builder.config(map=settings)
def stream(spark):
    rows = spark.readStream.format("aiokc").options(**options).load()
    writer = rows.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    assert query.awaitTermination(120)
    return sum(progress.numInputRows for progress in query.recentProgress)
"""
IN_PROCESS = "\nspark = builder.master('local[1]').getOrCreate()\n"
BATCH = "spark.read.format('aiokc').options(**options).load().count()"
WHERE = (
    "import aiokc, aiokc.records, spark_source; print(aiokc.__file__, spark_source.__file__, aiokc.records.NATIVE)\n"
)

Run = Callable[[str, str], list[str]]


@pytest.fixture
def run(kafka: LocalKafka, topic: str, tmp_path: Path) -> Run:
    """Run a script with this interpreter; return the words that it prints. The topic has RECORDS records."""
    produce(kafka.bootstrap, topic, [b"x"] * RECORDS)

    def run(python: str, script: str, **environ: str) -> list[str]:
        given = (kafka.bootstrap, topic, str(tmp_path / "checkpoint"))
        environ |= {"PYSPARK_PYTHON": python, "SPARK_LOCAL_IP": "127.0.0.1"}
        return shipping.run(python, "-c", START + script, *given, cwd=tmp_path, **environ).split()

    return run


def installed(folder: Path, kind: str, *more: str) -> tuple[str, Path]:
    """Install the project in an environment of its own; return the interpreter, and where its packages are."""
    packages = shipping.environment(folder / "environment", shipping.build(folder / "build", kind), *more)
    return str(folder / "environment" / "bin" / "python"), packages


@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_installed_it_is_found_by_its_name(run: Run, tmp_path: Path, kind: str) -> None:
    python, packages = installed(tmp_path, kind)

    *places, is_native, batch, streamed = run(python, WHERE + IN_PROCESS + f"print({BATCH}, stream(spark))")

    assert all(Path(place).is_relative_to(packages) for place in places), "not what was installed"
    assert (is_native, batch, streamed) == ("True", str(RECORDS), str(RECORDS))


def test_over_spark_connect_too(run: Run, tmp_path: Path) -> None:
    python, _ = installed(tmp_path, "wheel", "pyspark[connect]")

    script = f"spark = builder.remote('local[1]').getOrCreate()\nprint(type(spark).__module__, {BATCH}, stream(spark))"

    assert run(python, script) == ["pyspark.sql.connect.session", str(RECORDS), str(RECORDS)]


def test_where_a_neighbour_spoils_the_search_it_can_be_registered(run: Run, tmp_path: Path) -> None:
    python, packages = installed(tmp_path, "wheel")
    (packages / "pyspark_broken").mkdir()
    (packages / "pyspark_broken" / "__init__.py").write_text("raise ValueError('broken')\n")
    script = f"""
try:
    print({BATCH})
except Exception:
    print("not found")
import spark_source
spark_source.register(spark)
print({BATCH}, stream(spark))
"""

    assert run(python, IN_PROCESS + script) == ["not", "found", str(RECORDS), str(RECORDS)]
