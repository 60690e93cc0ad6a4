"""What the tests of the administrative calls begin with: a cluster in virtual time, and groups with offsets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from aiokc import Client, Consumer, ErrorCode, TopicPartition
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.group_admin import ListedGroup, ListGroupsResponse

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)

#: The cluster for ``as_alice``.
SECURED: dict[str, Any] = {"sasl": {"alice": "secret-of-alice"}, "mechanisms": ["SCRAM-SHA-256"]}


@asynccontextmanager
async def client_of(cluster: Cluster, **options: Any) -> AsyncIterator[Client]:
    async with Client(bootstrap_servers=cluster.bootstrap, retry_backoff_ms=20, **options) as client:
        yield client


def as_alice(cluster: Cluster) -> AbstractAsyncContextManager[Client]:
    """A client whose user may do only what the cluster's ACLs allow."""
    return client_of(
        cluster,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="alice",
        sasl_plain_password="secret-of-alice",
    )


@asynccontextmanager
async def member_of(cluster: Cluster, group_id: str = "g", **options: Any) -> AsyncIterator[Consumer]:
    """A member that owns everything of topic t."""
    consumer = Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap,
        group_id=group_id,
        **{"client_id": "app", "auto_offset_reset": "earliest", "enable_auto_commit": False, **options},
    )
    async with consumer:
        await consumer.wait_assigned()
        yield consumer


def make_streams(cluster: Cluster, *groups: str) -> None:
    """Let these groups be of Kafka Streams' own protocol (KIP-1071): they are listed, and no protocol describes them.

    What they have committed is there as before.
    """

    async def listed(exchange: Exchange) -> ListGroupsResponse:
        response = await exchange.handle()
        assert isinstance(response, ListGroupsResponse)
        response.groups = [
            *(one for one in response.groups if one.group_id not in groups),
            *(ListedGroup(group_id=one, protocol_type="streams", group_type="Streams") for one in groups),
        ]
        return response

    cluster.intercept(ApiKey.LIST_GROUPS, listed)
    cluster.intercept(ApiKey.DESCRIBE_GROUPS, ErrorCode.GROUP_ID_NOT_FOUND)
