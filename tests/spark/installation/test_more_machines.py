"""Executors that are processes of their own, and get the code from the driver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aiokc.testing.kafka import LocalKafka
from tests.producing import produce

from ..file_sink import written_in
from ..session import ROOT
from . import shipping
from .standalone import StandaloneCluster

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]

RECORDS = 60
SMALL = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.cores.max": "2"}
NATIVE_IS_MISSING = "records are decoded in Python"


@pytest.fixture
def job(options: Mapping[str, str], tmp_path: Path) -> dict[str, Any]:
    """The job of all tests here. The executors find no code but what the driver sends."""
    (tmp_path / "elsewhere").mkdir()
    die = {"die.at": "reading:2", "die.folder": str(tmp_path / "death")}
    return {
        "options": {**options, **die, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"},
        "config": {**SMALL, "spark.executorEnv.PYTHONPATH": str(tmp_path / "elsewhere")},
        "python": sys.executable,
        "register": False,
    }


def submit(master: str, folder: Path, job: dict[str, Any]) -> dict[str, Any]:
    """Run the job to its end, in the folder; return what it printed."""
    command = [sys.executable, "-m", "tests.spark.installation.run_on_cluster", master, str(folder), json.dumps(job)]
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    printed: dict[str, Any] = json.loads(done.stdout)
    return printed


def test_a_python_worker_that_dies_costs_a_retry_and_no_row(
    kafka: LocalKafka, topic: str, job: dict[str, Any], tmp_path: Path
) -> None:
    stored = produce(kafka.bootstrap, topic, [b"x"] * RECORDS)
    packed = shipping.pure_zip(tmp_path / "aiokc.zip", *shipping.PACKAGES, "tests")
    job["config"]["spark.submit.pyFiles"] = str(packed)

    done = submit("local-cluster[2,1,700]", tmp_path, job)

    assert (tmp_path / "death" / "reading").stat().st_size > 2, "nothing was tried again"
    assert written_in(tmp_path / "sink") == Counter(stored)
    assert all("aiokc.zip" in place for *places, _ in done["imported"] for place in places)


def test_a_standalone_cluster_is_sent_a_packed_environment(
    kafka: LocalKafka, topic: str, job: dict[str, Any], tmp_path: Path
) -> None:
    """The driver has the same environment under the same relative path: it plans with its interpreter.

    One of the two workers dies, with its executor, while one of its tasks reads.
    """
    stored = produce(kafka.bootstrap, topic, [b"x"] * RECORDS)
    shipping.environment(tmp_path / "environment", shipping.build(tmp_path / "build", "wheel"), without=["pyspark"])
    packed = shipping.pack(tmp_path / "environment", tmp_path / "environment.tar.gz")
    job["python"] = "./environment/bin/python"
    job["options"]["die.machine"] = "true"
    job["config"] |= {
        "spark.archives": f"{packed}#environment",
        "spark.submit.pyFiles": str(shipping.pure_zip(tmp_path / "tests.zip", "tests")),
    }

    with StandaloneCluster(tmp_path / "cluster", workers=2) as cluster:
        done = submit(cluster.master, tmp_path, job)
        logs = cluster.executor_logs()

    assert (tmp_path / "death" / "reading").stat().st_size > 2, "nothing was tried again"
    assert written_in(tmp_path / "sink") == Counter(stored)
    assert done["count"] == RECORDS
    assert all("/environment/lib/" in place for *places, _ in done["imported"] for place in places)
    assert all(is_native for *_, is_native in done["imported"])
    assert NATIVE_IS_MISSING not in logs


def test_a_standalone_cluster_is_sent_a_zip(kafka: LocalKafka, topic: str, job: dict[str, Any], tmp_path: Path) -> None:
    """Its interpreter has what aiokc requires, and not aiokc."""
    stored = produce(kafka.bootstrap, topic, [b"x"] * RECORDS)
    packed = shipping.pure_zip(tmp_path / "aiokc.zip", *shipping.PACKAGES, "tests")
    job["options"]["die.machine"] = "true"
    job["config"]["spark.submit.pyFiles"] = str(packed)
    job["register"] = True

    with StandaloneCluster(tmp_path / "cluster", workers=2) as cluster:
        done = submit(cluster.master, tmp_path, job)
        logs = cluster.executor_logs()

    assert (tmp_path / "death" / "reading").stat().st_size > 2, "nothing was tried again"
    assert written_in(tmp_path / "sink") == Counter(stored)
    assert done["count"] == RECORDS
    assert all("aiokc.zip" in place for *places, _ in done["imported"] for place in places)
    assert not any(is_native for *_, is_native in done["imported"])
    assert NATIVE_IS_MISSING in logs
