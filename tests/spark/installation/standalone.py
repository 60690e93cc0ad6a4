"""A standalone Spark cluster on this machine: a master and workers, from PySpark's own jars, on ports that are free.

    with StandaloneCluster(folder, workers=2) as cluster:
        ... cluster.master ...

Its processes know nothing of this project: no PYTHONPATH, and a folder of their own to work in.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Final

import pyspark

_HOME: Final = Path(pyspark.__file__).parent
_MASTER: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_REGISTERED: Final = re.compile(r"Successfully registered with master")
_START_SECONDS: Final = 180


class _Daemon:
    """One process of the cluster; what it logs goes to a file."""

    def __init__(self, name: str, folder: Path, *arguments: str) -> None:
        folder.mkdir(parents=True)
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        environment |= {"SPARK_HOME": str(_HOME), "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"}
        environment["SPARK_DAEMON_JAVA_OPTS"] = (
            "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.master.rest.enabled=false"
        )
        self._process = subprocess.Popen(
            [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *arguments],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._log, self._grew, self._ended = "", threading.Condition(), False
        self._reading = threading.Thread(target=self._read, name=f"the log of {name}", daemon=True)
        self._reading.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._grew:
                self._log += line
                self._grew.notify_all()
        with self._grew:
            self._ended = True
            self._grew.notify_all()

    def said(self, pattern: re.Pattern[str]) -> re.Match[str]:
        """Wait until it has logged this."""
        with self._grew:
            self._grew.wait_for(lambda: pattern.search(self._log) or self._ended, _START_SECONDS)
            if found := pattern.search(self._log):
                return found
        raise AssertionError(f"{pattern.pattern!r} is not in the log:\n{self._log}")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(20)
        self._reading.join(20)
        assert self._process.stdout is not None
        self._process.stdout.close()


class StandaloneCluster:
    """A master, and workers of one core each."""

    def __init__(self, folder: Path, *, workers: int) -> None:
        self.folder, self._count = folder, workers
        self._daemons: list[_Daemon] = []

    def __enter__(self) -> StandaloneCluster:
        try:
            local = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
            master = self._started("deploy.master.Master", "master", *local)
            self.master = master.said(_MASTER)[1]
            size = ("--cores", "1", "--memory", "700m")
            for number in range(self._count):
                self._started("deploy.worker.Worker", f"worker-{number}", *local, *size, self.master)
            for worker in self._daemons[1:]:
                worker.said(_REGISTERED)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def executor_logs(self) -> str:
        """Return what the executors have written to stderr, their Python workers included."""
        return "\n".join(file.read_text() for file in sorted(self.folder.glob("worker-*/work/app-*/*/stderr")))

    def _started(self, what: str, name: str, *arguments: str) -> _Daemon:
        folder = self.folder / name
        work = ("--work-dir", str(folder / "work")) if "worker" in what else ()
        daemon = _Daemon(what.removeprefix("deploy."), folder, *work, *arguments)
        self._daemons.append(daemon)
        return daemon

    def _stop(self) -> None:
        for daemon in reversed(self._daemons):
            daemon.stop()
