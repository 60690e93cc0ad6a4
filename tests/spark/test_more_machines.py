"""Executors that are processes of their own, and get the code from the driver."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from aiokc.testing.kafka import LocalKafka
from tests.producing import produce

from .file_sink import written_in
from .session import ROOT

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.long, pytest.mark.timeout(600)]


def test_a_worker_that_dies_on_a_cluster_costs_a_retry_and_no_row(
    kafka: LocalKafka, topic: str, options: Mapping[str, str], tmp_path: Path
) -> None:
    stored = produce(kafka.bootstrap, topic, [b"x"] * 60)
    die = {"die.at": "reading:2", "die.folder": str(tmp_path / "death")}
    given = {**options, **die, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "40"}
    command = [sys.executable, "-m", "tests.spark.run_on_cluster", "local-cluster[2,1,700]", str(tmp_path)]

    done = subprocess.run(
        [*command, json.dumps(given)], cwd=ROOT, capture_output=True, text=True, timeout=500, check=False
    )

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "death" / "reading").stat().st_size > 2, "nothing was tried again"
    assert written_in(tmp_path / "sink") == Counter(stored)
    assert all("aiokc.zip" in file for place in json.loads(done.stdout) for file in place)
