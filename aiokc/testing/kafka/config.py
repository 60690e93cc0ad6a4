"""The broker configuration of a local Kafka: small, quick to fail over, with short group sessions for tests."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from .zookeeper import SESSION_SECONDS

PLAINTEXT: Final = "PLAINTEXT"
CONTROLLER: Final = "CONTROLLER"

#: The address on which every listener listens.
HOST: Final = "127.0.0.1"

#: The ports of one node, by the name of the listener.
Ports = Mapping[str, int]


def of_all(nodes: int, listeners: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration that all brokers share, with KRaft or ZooKeeper.

    `listeners` has the security protocol of each listener, by its name.
    """
    copies, in_sync = str(nodes), str(max(1, nodes - 1))
    return {
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in listeners.items()),
        "inter.broker.listener.name": PLAINTEXT,
        "auto.create.topics.enable": "false",
        "log.retention.ms": "-1",  # who tests writes old timestamps: Kafka would delete the records within minutes
        "num.network.threads": "2",
        "num.io.threads": "2",
        "offsets.topic.num.partitions": "5",
        "offsets.topic.replication.factor": copies,
        "transaction.state.log.num.partitions": "5",
        "transaction.state.log.replication.factor": copies,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.num.partitions": "3",
        "share.coordinator.state.topic.replication.factor": copies,
        "share.coordinator.state.topic.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": "0",
        "group.min.session.timeout.ms": "1000",
        "group.consumer.min.session.timeout.ms": "1000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.heartbeat.interval.ms": "200",
        "group.consumer.heartbeat.interval.ms": "500",
        "group.consumer.assignment.interval.ms": "0",
    }


def of_kraft(controllers: Mapping[int, int]) -> dict[str, str]:
    """Return the shared configuration of brokers that are KRaft controllers too, at these ports by node id."""
    shared = {
        "process.roles": "broker,controller",
        "controller.listener.names": CONTROLLER,
        "controller.quorum.voters": ",".join(f"{node}@127.0.0.1:{port}" for node, port in controllers.items()),
    }
    if len(controllers) > 1:  # the others notice a crash after 3 s, not after 9 s
        shared |= {"broker.heartbeat.interval.ms": "500", "broker.session.timeout.ms": "3000"}
    return shared


def of_zookeeper(address: str) -> dict[str, str]:
    """Return the shared configuration of brokers with a ZooKeeper at `address`."""
    session = str(round(SESSION_SECONDS * 1000))
    return {
        "zookeeper.connect": address,
        "zookeeper.session.timeout.ms": session,
        "zookeeper.connection.timeout.ms": "60000",  # ZooKeeper may still be starting
    }


def of_node(node_id: int, ports: Ports, advertised: Mapping[str, str]) -> dict[str, str]:
    """Return the configuration of one node. `advertised` has the address that clients are given, by listener.

    Listeners that are not advertised are for controllers.
    """
    return {
        "node.id": str(node_id),
        "broker.id": str(node_id),
        "listeners": _joined({name: f"{HOST}:{port}" for name, port in ports.items()}),
        "advertised.listeners": _joined(advertised),
    }


def _joined(addresses: Mapping[str, str]) -> str:
    return ",".join(f"{name}://{address}" for name, address in addresses.items())
