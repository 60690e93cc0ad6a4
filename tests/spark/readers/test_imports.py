"""What Spark waits for at the begin of each query: the processes that it starts import what they need, and no more."""

from __future__ import annotations

from ..installation.test_registration import run

MAKES_A_READER = """
import pickle, sys
import pyarrow, pyspark.worker  # Spark's process has them
from spark_source import AiokcDataSource

source = AiokcDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "events"})
again = pickle.loads(pickle.dumps(source.streamReader(source.schema())))
again.stop()
print(sorted({".".join(name.split(".")[:2]) for name in sys.modules if name.startswith(("aiokc.", "anyio"))}))
"""


def test_a_stream_reader_is_made_and_sent_without_the_client() -> None:
    done = run(MAKES_A_READER)

    assert done.returncode == 0, done.stderr
    for package in ("aiokc.client", "aiokc.net", "aiokc.records", "aiokc.wire", "anyio"):
        assert package not in done.stdout
    assert "aiokc.config" in done.stdout


def test_a_system_without_fork_has_a_source_too() -> None:
    done = run(
        "import os, random, pyarrow, pyspark.worker; del os.register_at_fork; import spark_source.runtimes;"
        "print('imported')"
    )

    assert done.stdout == "imported\n", done.stderr
