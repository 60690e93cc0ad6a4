"""What the source may do with the permissions that docs/administration.md names, and what it may not without them."""

from __future__ import annotations

import pytest

from aiokc import EARLIEST, ClientConfig, TopicPartition
from aiokc.errors import AuthorizationFailed
from aiokc.testing import Acl, Cluster
from spark_source.cluster.driver import DriverCluster

T0 = TopicPartition("t", 0)
GROUP = "billing"


def test_a_source_needs_the_topic_alone_until_it_has_to_do_with_a_group() -> None:
    with Cluster(
        topics={"t": 1, "hidden": 1}, sasl={"alice": "a secret"}, acls=[Acl("alice", "Read", topic="t")]
    ).in_thread() as cluster:
        cluster.append("t", b"a", b"b")
        config = ClientConfig(
            bootstrap_servers=cluster.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="SCRAM-SHA-256",
            sasl_plain_username="alice",
            sasl_plain_password="a secret",
        )
        with DriverCluster(config) as driver:
            assert list(driver.topics(None)) == ["t"], "what a pattern sees"
            assert driver.log_ranges([T0]) == {T0: (0, 2)}
            assert driver.list_offsets({T0: EARLIEST}) == {T0: 0}
            assert driver.offsets_at({T0: 0}) == {T0: 0}
            assert driver.high_watermarks([T0]) == {T0: 2}
            with pytest.raises(AuthorizationFailed):
                driver.committed(GROUP, [T0])
            cluster.grant(Acl("alice", "Describe", group=GROUP))
            assert driver.committed(GROUP, [T0]) == {T0: None}
            with pytest.raises(AuthorizationFailed):
                driver.commit(GROUP, {T0: 2})
            cluster.grant(Acl("alice", "Read", group=GROUP))
            driver.commit(GROUP, {T0: 2})
            assert driver.committed(GROUP, [T0]) == {T0: 2}
