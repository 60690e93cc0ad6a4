"""Which brokers are not read from as replicas, and for how long."""

from __future__ import annotations

from aiokc.core.cluster.avoided_replicas import AvoidedReplicas
from aiokc.types import TopicPartition

T0 = TopicPartition("t", 0)


def test_a_replica_that_failed_is_avoided_for_ten_times_as_long() -> None:
    avoided = AvoidedReplicas()
    avoided.named(1, with_rack=True)
    assert not avoided.any(100.0)
    assert not avoided.is_avoided(1, 100.0)
    avoided.failed(1, 101.0, took=30.0)
    for now, is_avoided in ((100.0, True), (400.9, True), (401.0, False)):
        assert (avoided.is_avoided(1, now), avoided.any(now)) == (is_avoided, is_avoided)
    assert not avoided.is_avoided(2, 100.0)


def test_each_replica_has_its_own_time() -> None:
    avoided = AvoidedReplicas()
    for node_id, took in ((1, 1.0), (2, 2.0)):
        avoided.named(node_id, with_rack=True)
        avoided.failed(node_id, 100.0, took)
    assert avoided.any(115.0)
    assert [avoided.is_avoided(node_id, 115.0) for node_id in (1, 2)] == [False, True]
    avoided.failed(1, 116.0, took=0.0)
    assert avoided.is_avoided(1, 115.9)


def test_a_younger_failure_shortens_nothing() -> None:
    avoided = AvoidedReplicas()
    avoided.named(1, with_rack=True)
    avoided.failed(1, 100.0, took=30.0)
    avoided.failed(1, 100.1, took=0.5)
    assert avoided.is_avoided(1, 399.0)
    assert not avoided.is_avoided(1, 400.1)


def test_a_broker_that_no_leader_has_named_is_not_avoided() -> None:
    avoided = AvoidedReplicas()
    avoided.failed(1, 101.0, took=30.0)
    assert not avoided.any(100.0)


def test_a_replica_that_is_named_without_a_rack_is_not_avoided() -> None:
    avoided = AvoidedReplicas()
    for with_rack in (True, False):
        avoided.named(1, with_rack=True)
        avoided.failed(1, 101.0, took=30.0)
        avoided.named(1, with_rack=with_rack)
        assert avoided.is_avoided(1, 100.0) is with_rack
    avoided.failed(1, 101.0, took=30.0)
    assert avoided.is_avoided(1, 100.0), "it fails again"


def test_a_replica_that_errs_twice_at_one_offset_is_avoided() -> None:
    """Once, or at another offset, it may only have lagged; and another one has its own errors."""
    avoided = AvoidedReplicas()
    for node_id in (2, 3):
        avoided.named(node_id, with_rack=True)
    for node_id, offset in ((2, 5), (2, 6), (3, 6), (2, 6)):
        avoided.erred(node_id, T0, offset, 1.0)
        assert not avoided.is_avoided(node_id, 1.5), (node_id, offset)
    avoided.erred(2, T0, 6, 1.0)
    assert avoided.is_avoided(2, 1.5)
