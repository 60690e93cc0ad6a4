"""The zip that is sent to executors holds all of the project that a task needs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from aiokc.testing import Cluster

from . import shipping

EXECUTOR = """
import json, logging, sys

logging.basicConfig(stream=sys.stdout)
import aiokc, pyspark_aiokc, spark_source
from aiokc.records import NATIVE
from spark_source import worker
from spark_source.options.source_options import SourceOptions
from spark_source.planning.task_plan import OffsetRange
from spark_source.options.topic_choice import subscribe

options = SourceOptions(aiokc.ClientConfig(bootstrap_servers=sys.argv[1]), subscribe("events"))
task = (OffsetRange(aiokc.TopicPartition("events", 0), 1, 4),)
values = [value.decode() for batch in worker.read_task(options, ("value",), task) for value in batch[0].to_pylist()]
places = [package.__file__ for package in (aiokc, pyspark_aiokc, spark_source)]
print(json.dumps({"places": places, "native": NATIVE, "values": values}))
"""


def test_a_task_runs_from_the_zip_alone(tmp_path: Path) -> None:
    """As with --py-files on a machine that has what aiokc requires, and not aiokc."""
    packed = shipping.pure_zip(tmp_path / "aiokc.zip", *shipping.PACKAGES)
    (folder := tmp_path / "executor").mkdir()
    (folder / "task.py").write_text(EXECUTOR)
    with Cluster(topics={"events": 1}).in_thread() as cluster:
        cluster.append("events", *[b"%d" % n for n in range(5)])
        said = shipping.run(
            sys.executable, "task.py", cluster.bootstrap, cwd=folder, PYTHONPATH=str(packed), AIOKC_NATIVE=""
        )

    seen = json.loads(said.splitlines()[-1])
    assert seen["values"] == ["1", "2", "3"]
    assert all(place.startswith(f"{packed}/") for place in seen["places"]), seen
    assert not seen["native"]
    assert "records are decoded in Python" in said
