"""``Node``: one Kafka broker of a local cluster, as a process: its command line, readiness, kill and restart."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from .admin import describe
from .jars import KAFKA_VERSION, java_command, run_tool
from .process import START_SECONDS, STOP_SECONDS, JavaProcess, write_properties

# In a test Kafka runs for seconds: compile little, collect garbage simply. In a benchmark it must not be a bottleneck.
_FAST_JVM: Final = ("-Xms64m", "-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
_THOROUGH_JVM: Final = ("-Xms512m", "-Xmx512m", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20")
_FORMAT_JVM: Final = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class Node(JavaProcess):
    """One broker (and controller, where there is no ZooKeeper) of a local cluster; `id` is its broker id.

    `outlived_by` is for how many seconds its ZooKeeper session outlives a crash; no broker may use its id until then.
    """

    def __init__(
        self,
        node_id: int,
        *,
        port: int,
        folder: Path,
        properties: Mapping[str, str],
        version: str = KAFKA_VERSION,
        fast: bool = True,
        jvm: Sequence[str] = (),
        keep: bool = False,
        outlived_by: float = 0.0,
    ) -> None:
        super().__init__(f"Kafka node {node_id}", folder, "kafka.log", keep=keep)
        self.id = node_id
        self.address = f"127.0.0.1:{port}"
        self._version = version
        self._jvm = (*(_FAST_JVM if fast else _THOROUGH_JVM), *jvm)
        self._outlived_by, self._free_at = outlived_by, 0.0
        self._properties = folder / "server.properties"
        write_properties(self._properties, {**properties, "log.dirs": str(folder / "data")})

    def format(self, cluster_id: str, extra: Sequence[str] = ()) -> None:
        """Prepare the empty data folder; `extra` goes to Kafka's StorageTool (``--add-scram ...``)."""
        arguments = ("format", "-t", cluster_id, "-c", str(self._properties), *extra)
        run_tool("kafka.tools.StorageTool", *arguments, jvm=_FORMAT_JVM, timeout=START_SECONDS, version=self._version)

    def command(self) -> Sequence[str]:
        return java_command("kafka.Kafka", str(self._properties), jvm=self._jvm, version=self._version)

    def launch(self) -> None:
        """Start the process once its broker id is free, and return at once; the broker does not answer yet."""
        time.sleep(max(0.0, self._free_at - time.monotonic()))
        super().launch()

    def start(self, *, timeout: float = START_SECONDS) -> None:
        """Start the process (again), and return when the broker answers and is part of its cluster.

        Raises LocalKafkaError with the end of the broker's log.
        """
        self.launch()
        self.wait_until_ready(timeout=timeout)

    def ready(self, brokers: int = 1) -> bool:
        """Return whether it answers, and knows a controller, itself, and at least `brokers` brokers that are alive."""
        try:
            view = describe(self.address, timeout=2)
        except OSError:
            return False
        return view.controller is not None and self.id in view.brokers and len(view.brokers) >= brokers

    def kill(self) -> None:
        """Kill the broker (SIGKILL). The other brokers notice when its session ends."""
        super().kill()
        self._free_at = time.monotonic() + self._outlived_by

    def terminate(self, *, timeout: float = STOP_SECONDS) -> None:
        """Stop the broker cleanly: its leaderships move first. It is killed if it still runs after `timeout` s."""
        self._end(signal.SIGTERM, timeout)
