"""Fetches Spark's own Kafka source from Maven Central, for tests and benchmarks that compare it with aiokc's.

Its four jars are fetched once into the folder of Kafka's jars (`jars.home`), and given to a Spark session as
``spark.jars``. They are fetched one by one: the source's own POM names a version of the second jar that Maven Central
does not have.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Final

from .jars import LocalKafkaError, download_lock, home, maven, progress

# The newest versions that Maven Central has; they run in PySpark 4.2 and 4.3.
_ARTIFACTS: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
_COPY: Final = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy"


def spark_kafka_jars() -> str:
    """Return the value of ``spark.jars``: the paths of the jars, separated by commas. Download them if needed.

    Raises LocalKafkaError where Maven is missing or cannot reach Maven Central.
    """
    folder = home() / "spark-sql-kafka-4.2.0"
    if not _complete(folder):
        home().mkdir(parents=True, exist_ok=True)
        with download_lock():
            if not _complete(folder):
                _download(folder)
    return ",".join(str(folder / _jar(artifact)) for artifact in _ARTIFACTS)


def _jar(artifact: str) -> str:
    _, name, version = artifact.split(":")
    return f"{name}-{version}.jar"


def _complete(folder: Path) -> bool:
    return all((folder / _jar(artifact)).is_file() for artifact in _ARTIFACTS)


def _download(folder: Path) -> None:
    progress(f"fetching Spark's own Kafka source with Maven into {folder} (10 MB, once) ...")
    with tempfile.TemporaryDirectory(prefix="download-", dir=folder.parent) as temporary:
        part = Path(temporary, "jars")
        for artifact in _ARTIFACTS:
            maven(
                artifact,
                f"-Dmaven.repo.local={temporary}/repository",
                _COPY,
                f"-Dartifact={artifact}",
                f"-DoutputDirectory={part}",
            )
        if not _complete(part):
            raise LocalKafkaError(f"Maven fetched {sorted(path.name for path in part.iterdir())}, not {_ARTIFACTS}")
        shutil.rmtree(folder, ignore_errors=True)  # an incomplete one, if any
        part.rename(folder)
