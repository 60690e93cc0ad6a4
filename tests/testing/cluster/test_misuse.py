"""What a test gets wrong about its Cluster, it is told in the line that is wrong, and with what would be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.testing import ApiKey, Cluster, ErrorCode, Refusal, faults


@pytest.mark.parametrize(
    ("keywords", "message"),
    [
        ({"group_min_session_timeout": 1}, "no setting 'group_min_session_timeout'; did you mean 'group_min_session"),
        ({"zzz": 1}, "Cluster has no setting 'zzz'$"),
        ({"topics": ["events"]}, "give the number of partitions of each, such as {'events': 6}"),
    ],
    ids=str,
)
def test_a_wrong_keyword(keywords: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        Cluster(**keywords)


@pytest.mark.parametrize("value", ["text", 5, (b"key", b"value")], ids=repr)
async def test_a_record_that_is_not_bytes(value: Any) -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        with pytest.raises(TypeError, match="is no record: give the value in bytes, None, or a NewRecord"):
            cluster.append("t", b"first", value)
        assert cluster.end_offset("t") == 0


async def test_a_batch_of_no_records_is_not_appended() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        with pytest.raises(ValueError, match="no record for t-0: a batch has at least one"):
            cluster.append("t")
        assert cluster.end_offset("t") == 0


@pytest.mark.parametrize(
    "call",
    [
        lambda cluster: cluster.take_down(7),
        lambda cluster: cluster.bring_up(7),
        lambda cluster: cluster.disconnect(7),
        lambda cluster: cluster.slow_link(7),
        lambda cluster: cluster.move_leader("events", to=7),
        lambda cluster: cluster.move_coordinator("group", to=7),
    ],
    ids=["take_down", "bring_up", "disconnect", "slow_link", "move_leader", "move_coordinator"],
)
async def test_a_broker_that_there_is_not(call: Callable[[Cluster], None]) -> None:
    async with Cluster(brokers=2, topics={"events": 1}) as cluster:
        with pytest.raises(LookupError, match="there is no broker 7: they are 1 to 2"):
            call(cluster)
        assert cluster.coordinator("group") in (1, 2)


@pytest.mark.parametrize(
    ("call", "code"),
    [
        (lambda cluster: cluster.create_topic("other", 0), ErrorCode.INVALID_PARTITIONS),
        (lambda cluster: cluster.create_topic("other", -1), ErrorCode.INVALID_PARTITIONS),
        (lambda cluster: cluster.delete_topic("other"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda cluster: cluster.recreate_topic("other"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (lambda cluster: cluster.add_partitions("events", 2), ErrorCode.INVALID_PARTITIONS),
        (lambda cluster: cluster.add_partitions("events", 1), ErrorCode.INVALID_PARTITIONS),
        (lambda cluster: cluster.trim("events", to=-5), ErrorCode.OFFSET_OUT_OF_RANGE),
        (lambda cluster: cluster.trim("events", to=4), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
)
async def test_what_a_broker_refuses(call: Callable[[Cluster], None], code: ErrorCode) -> None:
    async with Cluster(topics={"events": 2}) as cluster:
        cluster.append("events", b"a", b"b", b"c")
        with pytest.raises(Refusal) as refused:
            call(cluster)
        assert refused.value.code == code
        assert len(cluster.records("events")) == 3


async def test_records_that_are_gone_do_not_come_back() -> None:
    async with Cluster(topics={"events": 1}) as cluster:
        for value in (b"a", b"b", b"c"):
            cluster.append("events", value)
        cluster.trim("events", to=2)
        cluster.trim("events", to=1)
        assert cluster._partition("events", 0).log.start_offset == 2
        assert [record.offset for record in cluster.records("events")] == [2]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda cluster: cluster.slow_link(1, bytes_per_second=0), "bytes_per_second=0: 0 or more, and more than 0"),
        (lambda cluster: cluster.slow_link(1, latency=-1.0), "latency=-1.0"),
    ],
)
async def test_a_value_that_makes_no_sense(call: Callable[[Cluster], None], message: str) -> None:
    async with Cluster(brokers=2) as cluster:
        with pytest.raises(ValueError, match=message):
            call(cluster)


async def test_a_setting_that_is_no_text() -> None:
    config: Any = {"retention.ms": 5}
    async with Cluster() as cluster:
        with pytest.raises(TypeError, match="give the value as text, such as '5'"):
            cluster.create_topic("events", config=config)


@pytest.mark.parametrize(
    ("api", "fault", "message"),
    [
        ("FETCH", faults.drop(), "'FETCH' is no API: give an ApiKey, such as ApiKey.FETCH"),
        (ApiKey.FETCH, "drop", "'drop' is no fault: give an ErrorCode, one of `faults`, or a function"),
    ],
)
async def test_what_is_no_fault(api: Any, fault: Any, message: str) -> None:
    async with Cluster() as cluster:
        with pytest.raises(TypeError, match=message):
            cluster.intercept(api, fault)


async def test_a_fault_that_was_not_called_fails_the_test() -> None:
    async def forgotten() -> None:
        async with Cluster(topics={"t": 1}) as cluster:
            cluster.append("t", b"0")
            cluster.intercept(ApiKey.METADATA, faults.delay, times=1)  # type: ignore[arg-type]
            async with Consumer("t", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
                assert (await consumer.getone()).value == b"0"

    with pytest.raises(TypeError, match=r"call it where you give it to intercept\(\), as in delay\(0.2\)"):
        await forgotten()


async def test_a_group_without_members() -> None:
    async with Cluster() as cluster:
        with pytest.raises(LookupError, match="group 'g' has no members"):
            cluster.expire_member("g")
