"""A cluster: its brokers, the operations that its authorizer allows, the API versions and features of each broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple


class AclOperation(IntEnum):
    """An operation that the authorizer allows or denies; its number is its bit in Kafka's answers (KIP-430)."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """A broker at the address that it advertises on the listener that the client uses.

    ``is_fenced``: the controller does not let it lead partitions, because it does not send heartbeats. Brokers before
    Kafka 4.0 do not name those, so there it is always False.
    """

    node_id: int
    host: str
    port: int
    rack: str | None = None
    is_fenced: bool = False


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster as one broker describes it.

    ``controller_id`` is the node that clients may take for the controller: with KRaft, any broker. It is None where no
    broker is. ``brokers`` are ordered by id. ``authorized_operations`` are those that the client's principal may do to
    the cluster; None where the broker does not say.
    """

    cluster_id: str | None
    controller_id: int | None
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: frozenset[AclOperation] | None = None


class ApiRange(NamedTuple):
    """The versions of one API that a broker speaks. ``name`` is Kafka's, "" where this client does not know the API."""

    api_key: int
    name: str
    min_version: int
    max_version: int


class FeatureRange(NamedTuple):
    """A feature (KIP-584): the levels that the broker supports, and the one that the cluster has finalized.

    ``finalized`` is 0 where the feature is off.
    """

    name: str
    min_version: int
    max_version: int
    finalized: int


@dataclass(frozen=True, slots=True)
class BrokerVersions:
    """What a broker answers to ApiVersions: its APIs by key, its features by name."""

    node_id: int
    apis: Mapping[int, ApiRange]
    features: Mapping[str, FeatureRange]
