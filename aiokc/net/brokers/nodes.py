"""The brokers that the pool knows: those of the newest metadata, and the bootstrap servers that lead to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from random import Random

from ...config import ClusterConfig
from ...core.backoff import Backoff
from ...core.connection.least_loaded import candidates, least_loaded
from ...core.connection.login_policy import login_backoff
from ...core.connection.traffic import NodeTraffic
from ...errors import ConnectionFailed, KafkaError
from ...observation import NodeMetrics
from ...types import Broker
from .node import FAILURE_COUNTS_SECONDS, Node


class Nodes:
    """The brokers to ask, by node id. Bootstrap servers get negative ids, as in the Java client; no broker has one."""

    def __init__(self, config: ClusterConfig, random: Random) -> None:
        self._config = config
        self._random = random
        self._traffic: dict[int, NodeTraffic] = {}  # kept when a broker is gone: counters only grow
        self._bootstrap = {
            -1 - index: self._new_node(Broker(-1 - index, host, port))
            for index, (host, port) in enumerate(config.addresses)
        }
        self._brokers: dict[int, Node] = {}
        self.has_connected = False  # whether a connection to any of them was ever made

    def _new_node(self, broker: Broker) -> Node:
        config = self._config
        backoff = Backoff(config.reconnect_backoff_ms / 1e3, config.reconnect_backoff_max_ms / 1e3, self._random)
        setup_timeouts = Backoff(
            config.socket_connection_setup_timeout_ms / 1e3,
            config.socket_connection_setup_timeout_max_ms / 1e3,
            self._random,
        )
        traffic = self._traffic.setdefault(broker.node_id, NodeTraffic())
        failure_counts = FAILURE_COUNTS_SECONDS + config.retry_backoff_max_ms / 1e3
        return Node(broker, backoff, login_backoff(self._random), setup_timeouts, traffic, failure_counts)

    # The cluster

    def set_brokers(self, brokers: Mapping[int, Broker]) -> list[Node]:
        """Take over the addresses of the newest metadata, and return the nodes that are new.

        A broker that moved gets a new node. Its old node, the nodes of brokers that are gone, and the bootstrap servers
        close their connections as soon as nothing is in flight on them.
        """
        for node_id, known in list(self._brokers.items()):
            wanted = brokers.get(node_id)
            if wanted is None or (wanted.host, wanted.port) != known.address:
                del self._brokers[node_id]
                known.retire()
                if not known.traffic.connects:  # nothing to keep, and metadata may name ever new brokers
                    del self._traffic[node_id]
        new = [node for broker in brokers.values() if (node := self.introduce(broker)) is not None]
        if self._brokers:
            for server in self._bootstrap.values():
                server.retire()
        return new

    def introduce(self, broker: Broker) -> Node | None:
        """Return a new node for this broker; None if it has one, or an id that no broker can have.

        The new node takes over the connections of a bootstrap server at the same address: they lead to this broker.
        """
        if broker.node_id in self._brokers or broker.node_id < 0:  # those are the bootstrap servers' ids
            return None
        node = self._brokers[broker.node_id] = self._new_node(broker)
        for bootstrap in self._bootstrap.values():
            if bootstrap.address == node.address:
                node.adopt(bootstrap)
        return node

    # One of them

    def find(self, node_id: int) -> Node | None:
        """Return the node of the broker with this id; None if it is not known."""
        return self._brokers.get(node_id)

    def __getitem__(self, node_id: int) -> Node:
        node = self._brokers.get(node_id)
        if node is None:
            known = ", ".join(map(str, sorted(self._brokers))) or "none"
            raise ConnectionFailed(f"broker {node_id} is not in the cluster's metadata (known: {known})")
        return node

    def is_current(self, node: Node) -> bool:
        """Whether ``node`` is still where its broker is, or a bootstrap server."""
        node_id = node.broker.node_id
        return node_id < 0 or self._brokers.get(node_id) is node

    # Any of them

    def least_loaded(
        self, tried: Set[int], *, now: float, overdue: bool, rather_not: Sequence[int] = ()
    ) -> Node | None:
        """Return the node to send a request to that any broker can answer; None if all were ``tried``.

        Those in ``rather_not`` come after all others that may answer, in its order. ``overdue``: no broker has answered
        for so long that the bootstrap servers count too. See ``candidates``.
        """
        brokers = [node.view(tried, now) for node in self._brokers.values()]
        bootstrap = [node.view(tried, now) for node in self._bootstrap.values()]
        for views in (brokers, bootstrap):
            self._random.shuffle(views)  # so that not all clients ask the first broker
        chosen = least_loaded(candidates(brokers, bootstrap, overdue=overdue), tried, now=now, rather_not=rather_not)
        if chosen is None:
            return None
        return self._bootstrap[chosen] if chosen < 0 else self._brokers[chosen]

    @property
    def metrics(self) -> dict[int, NodeMetrics]:
        """What was exchanged with each broker, also if it is gone, once it was connected to. Any thread may ask."""
        found: dict[int, NodeMetrics] = {}
        for node_id, traffic in list(self._traffic.items()):
            if node_id >= 0:
                node = self._brokers.get(node_id)
                is_connected = node is not None and node.is_connected
                requests, throttle = traffic.requests.snapshot(), traffic.throttle.snapshot()
                found[node_id] = NodeMetrics(
                    connected=is_connected, connects=traffic.connects, requests=requests, throttle=throttle
                )
        return found

    @property
    def best_known(self) -> list[Node]:
        """The brokers; before any metadata, the bootstrap servers."""
        return list((self._brokers or self._bootstrap).values())

    def trouble(self, now: float) -> KafkaError | None:
        """Return why one of the best known nodes can't be used at the moment; None if there is none. See ``Node``."""
        return next((error for node in self.best_known if (error := node.trouble(now)) is not None), None)
