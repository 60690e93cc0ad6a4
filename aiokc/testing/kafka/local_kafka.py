"""``LocalKafka``: a local Apache Kafka cluster: starts its nodes, creates topics, heals, stops and cleans up."""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from ..reserved_port import ReservedPort
from . import admin
from . import config as kafka_config
from .config import CONTROLLER, HOST, PLAINTEXT
from .jars import KAFKA_VERSION, LocalKafkaError, home, libs, release
from .node import Node
from .process import START_SECONDS, JavaProcess, PortTaken, StartFailed
from .zookeeper import SESSION_SECONDS, ZooKeeper

_KRAFT_FROM: Final = (3, 3)
_ATTEMPTS: Final = 5
_POLL_SECONDS: Final = 0.05
_EXTERNAL_SECONDS: Final = 10.0

#: Called with the broker id, the listener's name and its port; returns the port that the broker advertises instead.
Advertise = Callable[[int, str, int], int]


class LocalKafka:
    """A cluster of `nodes` brokers (ids from 1) on ports of 127.0.0.1 that the system chooses.

    `version` is any release on Maven Central from 2.8 on; releases before 3.3 run with a ZooKeeper.

    `config` is added to every broker's configuration ("{node}" in its values is the broker's id), `jvm` to its command
    line. ``fast=False`` gives each broker the JVM flags of a benchmark. `listeners` are additional listeners by name,
    with their security protocol ({"SECURE": "SASL_SSL"}); `advertise` returns another port for them, that of a test's
    proxy. Listeners with TLS advertise ``localhost``, the others ``127.0.0.1``, unless `hosts` has another name for
    them. `format_args` go to Kafka's StorageTool (``--add-scram ...``).
    Topics keep their records for ever, however old the timestamps are, unless they have a retention.ms of their own.
    The data are in a temporary folder, which `stop` removes unless `keep`.
    """

    def __init__(
        self,
        nodes: int = 1,
        *,
        version: str = KAFKA_VERSION,
        config: Mapping[str, str] | None = None,
        keep: bool = False,
        fast: bool = True,
        jvm: Sequence[str] = (),
        listeners: Mapping[str, str] | None = None,
        advertise: Advertise | None = None,
        hosts: Mapping[str, str] | None = None,
        format_args: Sequence[str] = (),
    ) -> None:
        plain = nodes == 1 and version == KAFKA_VERSION and not (config or listeners or format_args)
        self._external = os.environ.get("AIOKC_BOOTSTRAP", "") if plain else ""
        self.version = version
        self._count, self._keep, self._fast, self._jvm = nodes, keep, fast, tuple(jvm)
        self._config, self._listeners = dict(config or {}), dict(listeners or {})
        self._advertise, self._format_args = advertise, tuple(format_args)
        # A client checks the certificate of a name, and sends it as SNI: with an address neither would be tried.
        of_tls = {name: "localhost" for name, protocol in self._listeners.items() if protocol.endswith("SSL")}
        self._hosts = {**of_tls, **(hosts or {})}
        self._nodes: list[Node] = []
        self._zookeeper: ZooKeeper | None = None
        self._ports: list[ReservedPort] = []
        self._bootstrap: dict[str, str] = {}
        self.folder: Path | None = None

    @property
    def bootstrap(self) -> str:
        """The addresses of the brokers, "127.0.0.1:port,..."; raises LocalKafkaError before ``start``."""
        return self.bootstrap_of(PLAINTEXT)

    def bootstrap_of(self, listener: str) -> str:
        """Return the advertised addresses of one of the `listeners`."""
        if self._external:
            return self._external
        if listener not in self._bootstrap:
            raise LocalKafkaError(f"the local Kafka is not started, or has no listener {listener}")
        return self._bootstrap[listener]

    @property
    def listeners(self) -> Mapping[str, str]:
        """The security protocol of each listener beside ``PLAINTEXT``."""
        return dict(self._listeners)

    @property
    def nodes(self) -> Sequence[Node]:
        """The nodes in the order of their broker ids; empty before ``start``."""
        return tuple(self._nodes)

    def node(self, node_id: int) -> Node:
        """Return the node with this broker id, to kill, terminate, start, pause or resume it."""
        if self._external:
            raise LocalKafkaError(f"AIOKC_BOOTSTRAP={self._external} was not started from here: its nodes are not ours")
        return self._nodes[node_id - 1]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start all nodes. Afterwards each of them answers, and knows all others and a controller.

        Raises LocalKafkaError where Java or Maven is missing, or a broker does not start (with the end of its log).
        """
        if self._external:
            _check_external(self._external)
            return
        if self._nodes:
            raise LocalKafkaError(f"the local Kafka is running already, at {self.bootstrap}")
        libs(self.version)
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                self._start_once()
                return
            except PortTaken:
                self._discard()
                if attempt == _ATTEMPTS:
                    raise
            except StartFailed:
                self._discard(keep=True)  # the message names the log
                raise
            except BaseException:  # KeyboardInterrupt, too, must not leave half a cluster behind
                self._discard()
                raise

    def stop(self) -> None:
        """End all nodes and remove their data. Without `keep` they are killed, because their data are not needed."""
        running = [node for node in self._nodes if node.running]
        if self._keep and running:
            with ThreadPoolExecutor(len(running)) as together:  # one by one, the last would wait for a quorum in vain
                list(together.map(Node.terminate, running))
        self._discard(keep=self._keep)

    def _discard(self, *, keep: bool = False) -> None:
        for process in self._processes():
            process.close()
        for port in self._ports:
            port.release()
        if self.folder is not None and not keep:
            shutil.rmtree(self.folder)
            self.folder = None
        self._nodes, self._zookeeper, self._ports, self._bootstrap = [], None, [], {}

    def _processes(self) -> list[JavaProcess]:
        """Return all processes, in the order in which to end them."""
        return [*self._nodes, *([self._zookeeper] if self._zookeeper is not None else [])]

    def create_topic(
        self, name: str, partitions: int = 1, replication_factor: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Create a topic. Afterwards every broker that is alive knows a leader for each of its partitions.

        Raises aiokc.errors.BrokerError (TOPIC_ALREADY_EXISTS, ...) and TimeoutError.
        """
        admin.create_topic(self._address(), name, partitions, replication_factor, config or {})

    def leader_of(self, topic: str, partition: int) -> Node:
        """Return the node that leads a partition now. Raises LookupError while the partition has no leader."""
        leader = admin.describe(self._address(), [topic]).topics[topic].partitions[partition].leader
        if leader is None:
            raise LookupError(f"{topic}-{partition} has no leader")
        return self.node(leader)

    def heal(self, *, timeout: float = START_SECONDS) -> None:
        """Resume and start the nodes that a test left paused or dead. Afterwards every node sees all replicas in sync.

        A rolling restart calls this between two nodes. Raises LocalKafkaError after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        for node in self._nodes:
            if node.running:
                node.resume()
            else:
                node.launch()
        for node in self._nodes:
            node.wait_until_ready(len(self._nodes), timeout=deadline - time.monotonic())
        for node in self._nodes:
            while behind := admin.describe(node.address, None).under_replicated:
                if time.monotonic() > deadline:
                    names = ", ".join(f"{info.topic}-{info.partition}" for info in behind)
                    text = f"after {timeout:g} s these partitions still miss a replica, says {node.name}: {names}"
                    raise LocalKafkaError(text)
                time.sleep(_POLL_SECONDS)

    def check(self) -> None:
        """Raise LocalKafkaError, with the end of its log, if a started node or ZooKeeper is no longer running."""
        for process in self._processes():
            if not process.running:
                raise LocalKafkaError(f"{process.name} has ended; the end of its log:\n{process.log_tail()}")

    def _address(self) -> str:
        running = [node.address for node in self._nodes if node.running]
        return running[0] if running else self.bootstrap.split(",")[0]

    def _start_once(self) -> None:
        self._make_nodes()
        if self._zookeeper is None:
            # Two clusters with the same id that meet on a reused port would take each other for one cluster.
            cluster_id = base64.urlsafe_b64encode(b"\0" + os.urandom(15)).decode().rstrip("=")
            with ThreadPoolExecutor(self._count) as together:
                list(together.map(lambda node: node.format(cluster_id, self._format_args), self._nodes))
        else:
            self._zookeeper.launch()
        for node in self._nodes:
            node.launch()
        for process in reversed(self._processes()):
            process.wait_until_ready(self._count)

    def _make_nodes(self) -> None:
        home().mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="run-", dir=home()))
        self._prepare(self.folder)
        ids = range(1, self._count + 1)
        with_zookeeper = release(self.version) < _KRAFT_FROM
        listeners = {**({} if with_zookeeper else {CONTROLLER: PLAINTEXT}), PLAINTEXT: PLAINTEXT, **self._listeners}
        ports = {node_id: {name: self._reserve() for name in listeners} for node_id in ids}
        if with_zookeeper:
            self._zookeeper = ZooKeeper(
                port=self._reserve(), folder=self.folder / "zookeeper", version=self.version, keep=self._keep
            )
            keeper = kafka_config.of_zookeeper(self._zookeeper.address)
        else:
            keeper = kafka_config.of_kraft({node_id: ports[node_id][CONTROLLER] for node_id in ids})
        shared = kafka_config.of_all(self._count, listeners) | keeper
        for node_id in ids:
            advertised = self._advertised(node_id, ports[node_id])
            own = {name: value.replace("{node}", str(node_id)) for name, value in self._config.items()}
            node = Node(
                node_id,
                port=ports[node_id][PLAINTEXT],
                folder=self.folder / f"node-{node_id}",
                properties={**shared, **kafka_config.of_node(node_id, ports[node_id], advertised), **own},
                version=self.version,
                fast=self._fast,
                jvm=self._jvm,
                keep=self._keep,
                outlived_by=SESSION_SECONDS if with_zookeeper else 0.0,
            )
            self._nodes.append(node)
            for name, address in advertised.items():
                addresses = self._bootstrap.setdefault(name, "")
                self._bootstrap[name] = f"{addresses}{',' if addresses else ''}{address}"

    def _prepare(self, folder: Path) -> None:
        """Add to the configuration what depends on the data folder, which is new and empty."""

    def _reserve(self) -> int:
        port = ReservedPort()
        self._ports.append(port)
        return port.number

    def _advertised(self, node_id: int, ports: Mapping[str, int]) -> dict[str, str]:
        """Return the addresses that clients are given, by listener."""
        elsewhere = self._advertise or (lambda _node, _name, port: port)
        chosen = {
            name: f"{self._hosts.get(name, HOST)}:{elsewhere(node_id, name, ports[name])}" for name in self._listeners
        }
        return {PLAINTEXT: f"{HOST}:{ports[PLAINTEXT]}", **chosen}


def _check_external(bootstrap: str) -> None:
    deadline = time.monotonic() + _EXTERNAL_SECONDS
    while True:
        for address in bootstrap.split(","):
            try:
                admin.describe(address)
                return
            except (OSError, ValueError) as error:
                problem = error
        if time.monotonic() > deadline:
            raise LocalKafkaError(f"no Kafka answers at AIOKC_BOOTSTRAP={bootstrap}: {problem}") from problem
        time.sleep(_POLL_SECONDS)
