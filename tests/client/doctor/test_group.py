"""A group: its coordinator, state, owners and lag, and what retention deletes before it is read."""

from __future__ import annotations

import time
from typing import Any

import pytest

from aiokc import Client, Consumer, ErrorCode, Producer, TopicPartition
from aiokc.admin import GroupDescription
from aiokc.client.doctor import login
from aiokc.doctor import Step, Verdict
from aiokc.testing import Acl, ApiKey, Cluster, NewRecord, faults
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import FindCoordinatorRequest, FindCoordinatorResponse
from tests.client.admin.scene import make_streams

from .examining import USER, asked_of, cause, examined, happen, ill, only, problems

T0 = TopicPartition("orders", 0)


async def committed(cluster: Cluster, **offsets: int) -> None:
    """Let the group have committed these offsets of orders-0."""
    async with Client(bootstrap_servers=cluster.bootstrap) as client:
        for group, offset in offsets.items():
            await client.commit(group, {T0: offset})


async def test_a_group_that_works() -> None:
    async with Cluster(2, topics={"orders": 2}) as cluster:
        cluster.append("orders", b"one", b"two")
        options: dict[str, Any] = {"group_id": "billing", "auto_offset_reset": "earliest"}
        async with Consumer("orders", bootstrap_servers=cluster.bootstrap, **options) as consumer:
            assert await consumer.getmany(timeout_ms=5_000)
            await consumer.commit()
            report = await examined(cluster.bootstrap, group_id="billing")
            assert ill(report) == []
            assert only(report, "group.state").details["state"] == "Stable"
            assert only(report, "group.state").details["members"] == 1
            assert "has read all" in only(report, "group.lag").text
            # the group is that of the options, too
            report = await examined(cluster.bootstrap, group_id="billing")
            assert only(report, "group.coordinator").step is Step.GROUP


async def test_a_member_that_has_committed_nothing() -> None:
    async with Cluster(topics={"orders": 2}) as cluster:
        cluster.append("orders", b"one", b"two")
        options: dict[str, Any] = {"group_id": "billing", "enable_auto_commit": False}
        async with Consumer("orders", bootstrap_servers=cluster.bootstrap, **options) as consumer:
            await consumer.wait_assigned()
            report = await examined(cluster.bootstrap, group_id="billing")
    assert only(report, "group.lag").text == "nothing is committed in 2 partitions that members own"


async def test_a_group_that_nobody_knows() -> None:
    async with Cluster() as cluster:
        report = await examined(cluster.bootstrap, group_id="biling")
        found = only(report, "group.unknown")
        assert found.verdict is Verdict.WARNING
        assert (report.cause, report.is_healthy) == (None, False)


@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_group_of_kafka_streams(is_listed: bool) -> None:
    """No protocol describes it; it is there all the same, with a lag."""
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.append("orders", *[b"x"] * 5)
        await committed(cluster, app=2)
        if is_listed:
            make_streams(cluster, "app", "new-app")
        else:
            cluster.intercept(ApiKey.LIST_GROUPS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            cluster.intercept(ApiKey.DESCRIBE_GROUPS, ErrorCode.GROUP_ID_NOT_FOUND)
        report = await examined(cluster.bootstrap, group_id="app")
        assert ill(report) == ["group.other_kind"]
        found = only(report, "group.other_kind")
        assert found.verdict is Verdict.WARNING
        assert found.details["type"] == ("streams" if is_listed else "")
        assert (found.text == "This is a streams group: no consumer can join it") == is_listed
        assert "3 records behind in 1 partition" in only(report, "group.lag").text
        report = await examined(cluster.bootstrap, group_id="new-app")
        assert ill(report) == ["group.other_kind" if is_listed else "group.unknown"]


async def test_a_share_group(monkeypatch: pytest.MonkeyPatch) -> None:
    async def described(client: Client, group_ids: list[str], **options: int) -> dict[str, GroupDescription]:
        return {one: GroupDescription(one, "share", "Stable", 1, protocol_type="share") for one in group_ids}

    monkeypatch.setattr(Client, "describe_groups", described)
    async with Cluster() as cluster:
        asked = asked_of(cluster)
        report = await examined(cluster.bootstrap, group_id="billing")
        assert ill(report) == ["group.other_kind"]
        text = only(report, "group.other_kind").text
        assert text == "This is a share group: no consumer can join it; it commits no offsets, so it has no lag"
        assert "OffsetFetch" not in {api for _, api in asked}


async def test_a_group_without_members_and_with_lag() -> None:
    """Nobody has ever joined it: whoever has committed for it may read by assign(), and is well."""
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.append("orders", *[NewRecord(b"x", timestamp=1_000)] * 5)
        await committed(cluster, billing=2)
        report = await examined(cluster.bootstrap, group_id="billing")
        found = only(report, "group.no_members")
        assert found.verdict is Verdict.NOTE
        assert "3 records to read: a consumer with assign() commits for it" in found.text
        lag = only(report, "group.lag")
        assert (lag.details["lag"], lag.details["partitions"]) == (3, 1)
        assert lag.details["oldest_ms"] > 1e12
        options: dict[str, Any] = {"group_id": "billing", "auto_offset_reset": "earliest", "enable_auto_commit": False}
        async with Consumer("orders", bootstrap_servers=cluster.bootstrap, **options) as consumer:
            await consumer.wait_assigned()
        report = await examined(cluster.bootstrap, group_id="billing")
        found = only(report, "group.no_members")
        assert found.verdict is Verdict.WARNING
        assert found.text == "The group has no members, and 3 records to read"


async def test_records_that_retention_has_deleted_unread() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.append("orders", *[b"x"] * 10)
        await committed(cluster, billing=2)
        cluster.trim("orders", to=6)
        report = await examined(cluster.bootstrap, group_id="billing")
        found = only(report, "group.deleted_unread")
        assert "Retention has deleted 4 records of orders-0" in found.text
        assert "auto_offset_reset" in found.advice


async def test_offsets_behind_the_end_of_the_log() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.append("orders", b"x")
        await committed(cluster, billing=9)
        report = await examined(cluster.bootstrap, group_id="billing")
        assert ill(report) == ["group.beyond_end"]


async def test_a_group_that_has_read_records_of_an_open_transaction() -> None:
    """To readers of committed records the log ends before it, and the doctor may be one of them."""
    async with Cluster(topics={"orders": 1}) as cluster:
        cluster.append("orders", b"x")
        options: dict[str, Any] = {"bootstrap_servers": cluster.bootstrap}
        async with Producer(**options, transactional_id="tx") as producer:
            await producer.begin_transaction()
            await producer.send_and_wait("orders", b"open")
            await committed(cluster, billing=2)
            for level in ("read_uncommitted", "read_committed"):
                report = await examined(cluster.bootstrap, group_id="billing", isolation_level=level)
                assert ill(report) == []
            await committed(cluster, billing=3)
            report = await examined(cluster.bootstrap, group_id="billing", isolation_level="read_committed")
            assert ill(report) == ["group.beyond_end"]
            await producer.abort_transaction()


@pytest.mark.parametrize(
    ("code", "finding"),
    [
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "group.denied"),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, "group.no_coordinator"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "group.no_coordinator"),
    ],
)
def test_no_coordinator(code: ErrorCode, finding: str) -> None:
    async def story(cluster: Cluster, loop: VirtualLoop) -> None:
        cluster.intercept(FindCoordinatorRequest, code)
        report = await examined(cluster.bootstrap, group_id="billing")
        assert problems(report) == [finding]
        assert cause(report).step is Step.GROUP

    happen(story)


async def test_a_coordinator_that_comes_with_the_first_group() -> None:
    async with Cluster() as cluster:
        cluster.intercept(FindCoordinatorRequest, ErrorCode.COORDINATOR_NOT_AVAILABLE, times=2)
        report = await examined(cluster.bootstrap, group_id="billing")
        assert ill(report) == ["group.unknown"]


async def test_a_coordinator_that_is_not_among_the_brokers() -> None:
    async def elsewhere(exchange: Exchange) -> FindCoordinatorResponse:
        response = await exchange.handle()
        assert isinstance(response, FindCoordinatorResponse)
        response.coordinators[0].node_id = 9
        return response

    async with Cluster() as cluster:
        cluster.intercept(ApiKey.FIND_COORDINATOR, elsewhere)
        assert problems(await examined(cluster.bootstrap, group_id="billing")) == ["group.coordinator_unreachable"]


async def test_a_coordinator_that_was_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many brokers, the first ones are looked at; the others are reached by the client, as by every consumer."""
    monkeypatch.setattr(login, "MOST_BROKERS", 2)
    async with Cluster(3, topics={"orders": 1}) as cluster:
        group = next(f"g{number}" for number in range(99) if cluster.coordinator(f"g{number}") == 3)
        cluster.append("orders", b"x")
        await committed(cluster, **{group: 1})
        report = await examined(cluster.bootstrap, group_id=group)
        assert ill(report) == []
        assert only(report, "group.not_looked_at").verdict is Verdict.NOTE
        assert "has read all" in only(report, "group.lag").text
        cluster.intercept(ApiKey.DESCRIBE_GROUPS, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        assert problems(await examined(cluster.bootstrap, group_id=group)) == ["group.denied"]


async def test_a_group_that_this_client_may_not_use() -> None:
    acls = [Acl("alice", "Read", topic="orders")]
    async with Cluster(topics={"orders": 1}, sasl={"alice": "alice-secret"}, acls=acls) as cluster:
        report = await examined(cluster.bootstrap, group_id="billing", security_protocol="SASL_PLAINTEXT", **USER)
        assert problems(report) == ["group.denied"]
        assert "grant READ" in cause(report).advice


@pytest.mark.parametrize("version", ["2.8", "4.3"])
async def test_a_group_that_this_client_may_see_and_not_join(version: str) -> None:
    options: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", **USER}
    acls = [Acl("alice", "Read", topic="orders"), Acl("alice", "Read", group="billing")]
    sasl = {"alice": "alice-secret"}
    async with Cluster(topics={"orders": 1}, sasl=sasl, acls=acls, as_version=version) as cluster:
        async with Client(bootstrap_servers=cluster.bootstrap, **options) as client:
            await client.commit("billing", {T0: 0})
        assert ill(await examined(cluster.bootstrap, group_id="billing", **options)) == []
        cluster.revoke("alice", group="billing")
        cluster.grant(Acl("alice", "Describe", group="billing"))
        report = await examined(cluster.bootstrap, group_id="billing", **options)
        assert problems(report) == ["group.no_read"]
        assert "it may: DESCRIBE" in cause(report).text
        assert cause(report).advice == "grant READ for group 'billing'"


@pytest.mark.parametrize("version", ["2.1", "2.8"])
async def test_brokers_of_old(version: str) -> None:
    async with Cluster(2, topics={"orders": 1}, as_version=version) as cluster:
        cluster.append("orders", b"x")
        await committed(cluster, billing=1)
        report = await examined(cluster.bootstrap, group_id="billing")
        assert ill(report) == []
        assert only(report, "group.state").details["state"] == "Empty"


async def test_records_that_retention_will_delete_before_they_are_read() -> None:
    day = 86_400_000  # in words, it may take minutes until the report is there
    async with Cluster() as cluster:
        cluster.create_topic("orders", config={"retention.ms": str(100 * day)})
        now = int(time.time() * 1000)
        cluster.append("orders", NewRecord(b"x", timestamp=now - 90 * day))
        await committed(cluster, billing=0)
        report = await examined(cluster.bootstrap, group_id="billing")
        found = only(report, "group.close_to_retention")
        assert found.verdict is Verdict.WARNING
        assert "90 days old in orders-0, and retention.ms of 'orders' is 100 days" in found.text
        assert "deleted in 10 days" in found.text


async def test_a_coordinator_that_breaks_off() -> None:
    async with Cluster() as cluster:
        cluster.intercept(FindCoordinatorRequest, faults.half_frame())
        assert problems(await examined(cluster.bootstrap, group_id="billing")) == ["group.failed"]
