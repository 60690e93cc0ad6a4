"""A right that the principal lacks: the error names it, whichever request was refused."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import Consumer, Producer
from aiokc.errors import AuthorizationFailed, RecordRefused
from aiokc.testing import Acl, Cluster

pytestmark = pytest.mark.timeout(30)

READER, WRITER = Acl("alice", "Read", topic="read"), Acl("alice", "Write", topic="written")


def allowing(*acls: Acl) -> Cluster:
    return Cluster(topics={"read": 1, "written": 1}, sasl={"alice": "hush"}, mechanisms=["SCRAM-SHA-256"], acls=acls)


def alice(cluster: Cluster) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-256",
        "sasl_plain_username": "alice",
        "sasl_plain_password": "hush",
    }


async def test_a_topic_that_may_not_be_written() -> None:
    async with allowing(READER, WRITER) as cluster, Producer(**alice(cluster)) as producer:
        await producer.send_and_wait("written", b"0")
        with pytest.raises(RecordRefused, match="this principal needs the WRITE permission on the topic") as refused:
            await producer.send_and_wait("read", b"0")
        assert isinstance(refused.value.__cause__, AuthorizationFailed)
        assert "WRITE permission" in str(refused.value.__cause__)
        assert (await producer.send_and_wait("written", b"1")).offset == 1


async def test_no_topic_at_all_that_may_be_written() -> None:
    async with allowing(READER) as cluster, Producer(**alice(cluster)) as producer:
        with pytest.raises(AuthorizationFailed, match="needs the WRITE permission on a topic, or IDEMPOTENT_WRITE on"):
            await producer.send_and_wait("read", b"0")


async def test_a_group_that_may_not_be_joined() -> None:
    async with allowing(READER) as cluster, Consumer("read", group_id="g", **alice(cluster)) as consumer:
        message = "coordinator of group 'g': this principal needs the DESCRIBE permission on the group$"
        with pytest.raises(AuthorizationFailed, match=message):
            await consumer.getmany()
