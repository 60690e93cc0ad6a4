"""``ZooKeeper``: the ZooKeeper of a local cluster, for Kafka before 3.3, where KRaft is missing or a preview."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from .jars import java_command
from .process import JavaProcess, write_properties

#: How long the session of a crashed broker lasts; ZooKeeper allows 2 to 20 ticks.
SESSION_SECONDS: Final = 6.0
_TICK_MS: Final = 500
_JVM: Final = ("-Xms32m", "-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")


class ZooKeeper(JavaProcess):
    """One ZooKeeper process, run from the jars of the Kafka version that needs it; brokers connect to `address`."""

    def __init__(self, *, port: int, folder: Path, version: str, keep: bool) -> None:
        super().__init__("ZooKeeper", folder, "zookeeper.log", keep=keep)
        self.address = f"127.0.0.1:{port}"
        self._port, self._version = port, version
        self._properties = folder / "zookeeper.properties"
        settings = {
            "dataDir": str(folder / "data"),
            "clientPort": str(port),
            "clientPortAddress": "127.0.0.1",
            "tickTime": str(_TICK_MS),
            "maxClientCnxns": "0",
            "admin.enableServer": "false",
        }
        write_properties(self._properties, settings)

    def command(self) -> Sequence[str]:
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return java_command(main, str(self._properties), jvm=_JVM, version=self._version)

    def ready(self, brokers: int = 1) -> bool:
        """Return whether it accepts connections."""
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=2).close()
        except OSError:
            return False
        return True
