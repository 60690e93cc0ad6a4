"""Places where bob may do what a test grants him: a real Kafka with ACLs, and the cluster in Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from typing import Any, Literal, TypeAlias

import pytest

from aiokc.testing import Acl as ClusterAcl
from aiokc.testing import Cluster
from aiokc.testing.kafka import Acl, SecureKafka
from aiokc.testing.kafka.secure.acls import CLUSTER_NAME
from tests.producing import produce

from ..ways import Way

Resource: TypeAlias = Literal["TOPIC", "GROUP", "TRANSACTIONAL_ID", "CLUSTER"]
Right: TypeAlias = tuple[Resource, str, str]  # and the name, and the operation

_WAY = Way("SASL", "SCRAM-SHA-512")
_PASSWORD = "secret-of-all"
_AS_LOCAL_KAFKA: Any = {
    "group_min_session_timeout_ms": 500,
    "group_consumer_heartbeat_interval_ms": 500,
    "group_consumer_session_timeout_ms": 6_000,
}


class Place(ABC):
    """Brokers where bob has the rights that were granted, and root has all."""

    def __init__(self) -> None:
        self._there = set[Right]()

    def grant(self, resource: Resource, name: str = CLUSTER_NAME, operation: str = "READ") -> Right:
        """Let bob do this. It is in force when the call returns."""
        right = resource, name, operation
        self._add(right)
        self._there.add(right)
        return right

    def revoke(self, right: Right) -> None:
        self._remove(right)
        self._there.discard(right)

    def clear(self) -> None:
        """Revoke all that is left."""
        for right in list(self._there):
            self.revoke(right)

    @abstractmethod
    def set_password(self, password: str | None) -> None:
        """Give bob another password, or (None) the one that he had at first."""

    def new_topic(self, name: str) -> str:
        """Create a topic of one partition with the records 0 and 1."""
        self._create(name)
        self.produce(name, b"0", b"1")
        return name

    def options(self, **more: Any) -> dict[str, Any]:
        """Return the options of bob's consumers."""
        return {
            **self.options_of_clients(),
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "metadata_max_age_ms": 500,
            **more,
        }

    @abstractmethod
    def options_of_clients(self, user: str = "bob") -> dict[str, Any]: ...

    @abstractmethod
    def produce(self, topic: str, *values: bytes) -> None: ...

    @abstractmethod
    def _create(self, topic: str) -> None: ...

    @abstractmethod
    def _add(self, right: Right) -> None: ...

    @abstractmethod
    def _remove(self, right: Right) -> None: ...


class _AtKafka(Place):
    def __init__(self, kafka: SecureKafka) -> None:
        super().__init__()
        self._kafka = kafka

    def options_of_clients(self, user: str = "bob") -> dict[str, Any]:
        if user == "root":  # nobody in particular may do everything
            return {"bootstrap_servers": self._kafka.bootstrap}
        return _WAY.options(self._kafka, user)

    def set_password(self, password: str | None) -> None:
        self._kafka.set_scram_password("bob", password or _WAY.password(self._kafka, "bob"), mechanism=_WAY.mechanism)

    def produce(self, topic: str, *values: bytes) -> None:
        produce(self._kafka.bootstrap, topic, list(values))

    def _create(self, topic: str) -> None:
        self._kafka.create_topic(topic)

    def _add(self, right: Right) -> None:
        self._kafka.add_acls(_acl(*right))

    def _remove(self, right: Right) -> None:
        self._kafka.remove_acls(_acl(*right))


def _acl(resource: Resource, name: str, operation: str) -> Acl:
    return Acl("bob", operation, resource, name)


class _AtCluster(Place):
    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def options_of_clients(self, user: str = "bob") -> dict[str, Any]:
        return {
            "bootstrap_servers": self._cluster.bootstrap,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "SCRAM-SHA-256",
            "sasl_plain_username": user,
            "sasl_plain_password": _PASSWORD,
        }

    def set_password(self, password: str | None) -> None:
        self._cluster.set_password("bob", password or _PASSWORD)

    def produce(self, topic: str, *values: bytes) -> None:
        self._cluster.append(topic, *values)

    def _create(self, topic: str) -> None:
        self._cluster.create_topic(topic)

    def _add(self, right: Right) -> None:
        self._cluster.grant(_acl_of_cluster(*right))

    def _remove(self, right: Right) -> None:
        self._cluster.withdraw(_acl_of_cluster(*right))


def _acl_of_cluster(resource: Resource, name: str, operation: str) -> ClusterAcl:
    if resource == "CLUSTER":
        return ClusterAcl("bob", operation, cluster=True)
    if resource == "TRANSACTIONAL_ID":
        return ClusterAcl("bob", operation, transactional_id=name)
    return ClusterAcl("bob", operation, topic=name) if resource == "TOPIC" else ClusterAcl("bob", operation, group=name)


@pytest.fixture(params=["kafka", "cluster"])
async def place(request: pytest.FixtureRequest) -> AsyncIterator[Place]:
    """A place where bob has no right; each test that asks for it runs at both."""
    if request.param == "kafka":
        at_kafka = _AtKafka(request.getfixturevalue("secure_kafka"))
        yield at_kafka
        at_kafka.clear()
    else:
        users = dict.fromkeys(("root", "bob"), _PASSWORD)
        async with Cluster(brokers=1, sasl=users, acls=[], super_users=["root"], **_AS_LOCAL_KAFKA) as cluster:
            yield _AtCluster(cluster)
