"""What a test gets wrong about its Cluster, it is told in the line that is wrong, and with what would be right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from aiokc import Consumer
from aiokc.testing import ApiKey, Cluster, faults


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


@pytest.mark.parametrize(
    "call",
    [
        lambda cluster: cluster.take_down(7),
        lambda cluster: cluster.bring_up(7),
        lambda cluster: cluster.disconnect(7),
        lambda cluster: cluster.slow_link(7),
    ],
    ids=["take_down", "bring_up", "disconnect", "slow_link"],
)
async def test_a_broker_that_there_is_not(call: Callable[[Cluster], None]) -> None:
    async with Cluster(brokers=2) as cluster:
        with pytest.raises(LookupError, match="there is no broker 7: they are 1 to 2"):
            call(cluster)


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
