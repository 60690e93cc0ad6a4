"""With read_committed a log ends where its first open transaction begins. A start behind that is no loss."""

from __future__ import annotations

from dataclasses import replace

import pytest
from confluent_kafka import Producer

from aiokc import LATEST, ClientConfig, TopicPartition
from aiokc.testing.kafka import LocalKafka
from spark_source.cluster.driver import DriverCluster
from spark_source.data_loss import DataLoss
from spark_source.options.bounds import AtCommitted, AtOffset, AtTime, Bound
from spark_source.options.source_options import SourceOptions
from spark_source.options.topic_choice import subscribe
from spark_source.planning.batch_plan import batch_ranges

from .played_cluster import A0, PlayedCluster, stored

OPTIONS = SourceOptions(ClientConfig(isolation_level="read_committed"), subscribe("a"))


@pytest.mark.parametrize("starting", [AtOffset("startingOffsets", {A0: 12}), AtTime("startingTimestamp", 12_000)])
@pytest.mark.parametrize("fail", [False, True])
@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_stream_that_starts_behind_it_waits_for_its_end(starting: Bound, fail: bool, is_frozen: bool) -> None:
    cluster = PlayedCluster({A0: (0, 10)})
    cluster.high_watermark[A0] = 20
    plan = cluster.plan(OPTIONS, starting=starting, fail_on_data_loss=fail)
    if is_frozen:
        plan.freeze()
    start = stored(plan.initial())
    end = stored(plan.latest(start))

    assert end["a"] == start["a"] == {"0": 12}
    assert plan.ranges(start, end) == {}
    began, cluster.asked = cluster.now, 0
    if not is_frozen:
        while cluster.now < began + 60:
            assert plan.latest(end) is end
        assert cluster.asked <= 60 * 5
        cluster.logs[A0] = (0, 20)
        assert stored(plan.latest(end)) == {"a": {"0": 20}}


def test_what_is_not_in_the_log_is_lost() -> None:
    cluster = PlayedCluster({A0: (0, 10)})
    cluster.high_watermark[A0] = 11
    plan = cluster.plan(OPTIONS, starting=AtOffset("startingOffsets", {A0: 12}))

    with pytest.raises(DataLoss, match="Wanted: from offset 12 on; available: 0 to 10"):
        plan.latest(plan.initial())


def test_a_batch_that_starts_behind_it_has_nothing_to_read() -> None:
    cluster = PlayedCluster({A0: (0, 10)})
    cluster.high_watermark[A0] = 20
    cluster.groups["g"] = {A0: 12}

    for starting in AtCommitted("startingOffsets", "g"), AtTime("startingTimestamp", 12_000):
        assert batch_ranges(replace(OPTIONS, starting=starting), cluster) == ({}, set(), {})


def test_a_batch_does_not_end_behind_it() -> None:
    """What comes before that time and is not committed yet can't be read now, and a batch does not wait for it."""
    cluster = PlayedCluster({A0: (0, 10)})
    cluster.high_watermark[A0] = 20
    ending = AtTime("endingTimestamp", 12_000, LATEST)

    ranges, _, _ = batch_ranges(replace(OPTIONS, ending=ending), cluster)

    assert ranges == {A0: (0, 10)}


@pytest.mark.kafka
def test_the_driver_asks_for_both_ends(kafka: LocalKafka, topic_name: str) -> None:
    kafka.create_topic(topic_name, partitions=1)
    tp = TopicPartition(topic_name, 0)
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "transactional.id": topic_name})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce(topic_name, b"open", partition=0)
    assert producer.flush(30) == 0
    config = ClientConfig(bootstrap_servers=kafka.bootstrap, isolation_level="read_committed")
    try:
        with DriverCluster(config) as calls:
            assert calls.list_offsets({tp: LATEST}) == {tp: 0}
            assert calls.high_watermarks([tp]) == {tp: 1}
            assert calls.offsets_at({tp: 0}) == {tp: None}
            assert calls.offsets_at({tp: 0}, isolation_level="read_uncommitted") == {tp: 0}
    finally:
        producer.abort_transaction(30)
