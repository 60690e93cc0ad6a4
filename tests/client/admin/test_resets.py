"""Plans of a reset, and what applying them writes: never to an active group, never from an outdated plan."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import anyio
import pytest

from aiokc import OffsetAndMetadata, TopicPartition
from aiokc.admin import (
    Back,
    GroupIsActive,
    LikeGroup,
    PlanIsOutdated,
    ResetPlan,
    ResetReason,
    ResetTarget,
    Shift,
    ToCommitted,
    ToEarliest,
    ToLatest,
    ToOffset,
    ToOffsets,
    ToTime,
)
from aiokc.client.admin import resets
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthorizationFailed,
    BrokerError,
    CommitFailed,
    ConfigError,
    RequestTimedOut,
    UnknownTopic,
)
from aiokc.records import NewRecord
from aiokc.testing import Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import Hold, drop, lose_answer
from aiokc.wire.messages.group_admin import DescribeGroupsRequest
from aiokc.wire.messages.offsets import ListOffsetsRequest, OffsetCommitRequest, OffsetFetchRequest

from ..virtually import virtually
from .scene import ONE, ZERO, client_of, member_of

pytestmark = pytest.mark.timeout(30)

OTHER = TopicPartition("u", 0)


def fill(cluster: Cluster) -> None:
    """Ten records in each partition of t, one a second; u is empty."""
    for partition in (0, 1):
        for number in range(10):
            cluster.append("t", NewRecord(b"v", timestamp=1_000 * (1 + number)), partition=partition)


def told(plan: ResetPlan) -> dict[TopicPartition, tuple[int | None, int | None, str]]:
    return {row.partition: (row.committed, row.new, row.reason.value) for row in plan.rows}


@pytest.mark.parametrize(
    ("target", "zero", "one"),
    [
        (ToEarliest(), (4, 2, ""), (None, 2, "")),
        (ToLatest(), (4, 10, ""), (None, 10, "")),
        (ToTime(8_000), (4, 7, ""), (None, 7, "")),
        (ToTime(99_000), (4, 10, "no record that young: end"), (None, 10, "no record that young: end")),
        (Back(1_000), (4, 10, "no record that young: end"), (None, 10, "no record that young: end")),
        (ToOffset(0), (4, 2, "clamped"), (None, 2, "clamped")),
        (ToCommitted(), (4, 4, "unchanged"), (None, 10, "nothing committed")),
        (Shift(-1), (4, 3, ""), (None, None, "nothing committed")),
        (LikeGroup("other"), (4, 6, ""), (None, None, "the other group has committed nothing")),
        (ToOffsets({ONE: 5}), (4, None, "no offset is given for it"), (None, 5, "")),
    ],
    ids=str,
)
def test_a_plan_for_each_target(
    target: ResetTarget, zero: tuple[int | None, int | None, str], one: tuple[int | None, int | None, str]
) -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        for partition in (0, 1):
            cluster.trim("t", partition, to=2)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 4})
            await client.commit("other", {ZERO: 6})
            plan = await client.plan_reset("g", target, topics=["t"])
            assert told(plan) == {ZERO: zero, ONE: one}
            assert cluster.committed("g") == {ZERO: 4}, "a plan writes nothing"

    virtually(story)


@pytest.mark.parametrize("release", ["2.1", "4.3"])
def test_a_plan_is_applied_and_undone(release: str, tmp_path: Path) -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: OffsetAndMetadata(4, "note")})
            plan = await client.plan_reset("g", ToTime(8_000), topics="t", partitions=[TopicPartition("t", 9)])
            assert told(plan)[TopicPartition("t", 9)] == (None, None, "no such partition")
            plan.save_undo(tmp_path / "undo.csv")
            assert await client.apply_reset(plan) == {ZERO: None, ONE: None}
            assert cluster.committed("g") == {ZERO: 7, ONE: 7}
            undo = await client.plan_reset("g", ToOffsets.load(tmp_path / "undo.csv"))
            assert await client.apply_reset(undo) == {ZERO: None}
            assert await client.delete_group_offsets("g", plan.first_commits) == {ONE: None}
            assert cluster.committed("g") == {ZERO: 4}

    # Kafka 2.4 was the first with OffsetDelete.
    virtually(story, as_version=release if release != "2.1" else "2.4")


@pytest.mark.parametrize("count", [20, 300])
async def test_long_plans_are_made_and_looked_at_beside_the_loop(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step over all partitions of a plan runs in a thread: together they would hold the loop for long."""
    loops, beside = threading.get_ident(), dict[str, bool]()

    def noted(name: str) -> None:
        step = getattr(resets, name)

        def run(*given: Any) -> Any:
            beside[name] = threading.get_ident() != loops
            return step(*given)

        monkeypatch.setattr(resets, name, run)

    for name in ("raised", "reset_rows", "_portions", "checked_offsets", "_changed"):
        noted(name)
    async with Cluster(1, topics={"t": count}) as cluster, client_of(cluster) as client:
        plan = await client.plan_reset("new", ToEarliest(), topics="t")
        assert beside.pop("raised") == (count > 200)
        assert len(await client.apply_reset(plan)) == count
    del beside["raised"]
    assert beside == dict.fromkeys(["reset_rows", "checked_offsets", "_portions", "_changed"], count > 200)


def test_without_topics_a_plan_has_what_is_committed_or_named() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 4, OTHER: 0})
            await client.commit("other", {ONE: 6})
            assert list(told(await client.plan_reset("g", ToEarliest()))) == [ZERO, OTHER]
            assert told(await client.plan_reset("g", LikeGroup("other"))) == {ONE: (None, 6, "")}
            assert told(await client.plan_reset("g", ToOffsets({ONE: 3}))) == {ONE: (None, 3, "")}
            with pytest.raises(BrokerError, match="typo") as unknown:
                await client.plan_reset("typo", ToEarliest())
            assert unknown.value.code == ErrorCode.GROUP_ID_NOT_FOUND
            async with member_of(cluster, group_id="nothing"):
                empty = await client.plan_reset("nothing", ToEarliest())
            assert empty.rows == ()
            assert await client.apply_reset(empty) == {}

    virtually(story, topics={"t": 2, "u": 1})


def test_a_group_that_does_not_exist_gets_its_first_offsets() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster) as client:
            plan = await client.plan_reset("new", ToOffset(3), partitions=[ZERO])
            assert await client.apply_reset(plan) == {ZERO: None}
            assert cluster.committed("new") == {ZERO: 3}

    virtually(story)


def test_an_active_group_is_refused_with_its_members_and_their_hosts() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 4})
            async with member_of(cluster, group_instance_id="place"):
                plan = await client.plan_reset("g", ToEarliest())
                with pytest.raises(GroupIsActive, match=r"client app, instance place, on /127\.0\.0\.1") as raised:
                    await client.apply_reset(plan)
                assert [one.member_id for one in raised.value.members] == cluster.members("g")
                assert cluster.committed("g") == {ZERO: 4}

    virtually(story)


def test_a_member_that_joins_after_the_look_has_the_broker_refuse() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 4})
            plan = await client.plan_reset("g", ToEarliest())
            hold = Hold()
            held = cluster.intercept(OffsetCommitRequest, hold, where=lambda exchange: exchange.request.group_id == "g")
            async with anyio.create_task_group() as tasks:

                async def join() -> None:
                    await hold.arrived()
                    async with member_of(cluster):
                        hold.release()
                        await held.caught()

                tasks.start_soon(join)
                found = await client.apply_reset(plan)
            assert isinstance(found[ZERO], CommitFailed)
            assert "the group has members" in str(found[ZERO])
            assert cluster.committed("g") == {ZERO: 4}

    virtually(story)


def test_an_outdated_plan_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 4, ONE: 4})
            plan = await client.plan_reset("g", ToEarliest())
            await client.commit("g", {ONE: 5})
            with pytest.raises(PlanIsOutdated, match="t-1 from 4 to 5") as raised:
                await client.apply_reset(plan)
            assert raised.value.changed == {ONE: (4, 5)}
            assert cluster.committed("g") == {ZERO: 4, ONE: 5}

    virtually(story)


def test_a_commit_where_the_plan_changes_nothing_outdates_it_too() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 8, ONE: 3})
            plan = await client.plan_reset("g", ToOffsets({ZERO: 3, ONE: 3}))
            assert told(plan)[ONE] == (3, 3, "unchanged")
            await client.commit("g", {ONE: 9})
            with pytest.raises(PlanIsOutdated, match="t-1 from 3 to 9"):
                await client.apply_reset(plan)
            assert cluster.committed("g") == {ZERO: 8, ONE: 9}

    virtually(story)


def test_a_commit_to_a_partition_for_which_the_plan_has_no_offset_does_not() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 8})
            plan = await client.plan_reset("g", Shift(-1), partitions=[ZERO, ONE])
            assert told(plan)[ONE] == (None, None, "nothing committed")
            await client.commit("g", {ONE: 9})
            assert await client.apply_reset(plan) == {ZERO: None}

    virtually(story)


@pytest.mark.parametrize("fault", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, lose_answer()])
def test_what_passes_is_tried_again(fault: Any) -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 4})
            plan = await client.plan_reset("g", ToEarliest())
            cluster.intercept(OffsetCommitRequest, fault, times=1)
            assert await client.apply_reset(plan) == {ZERO: None}
            assert cluster.committed("g") == {ZERO: 0}

    virtually(story)


def test_each_partition_has_its_own_result() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 4, OTHER: 0})
            cluster.append("u", b"v")
            plan = await client.plan_reset("g", ToLatest())

            def delete(exchange: Exchange) -> None:
                cluster.delete_topic("u")

            cluster.intercept(OffsetCommitRequest, delete, times=1)
            found = await client.apply_reset(plan)
            assert found[ZERO] is None
            assert isinstance(found[OTHER], UnknownTopic)

    virtually(story, topics={"t": 2, "u": 1})


def test_a_coordinator_that_hangs() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)
        async with client_of(cluster, request_timeout_ms=1_000) as client:
            await client.commit("g", {ZERO: 4})
            plan = await client.plan_reset("g", ToEarliest())
            cluster.intercept(OffsetCommitRequest, drop())
            found = await client.apply_reset(plan, timeout_ms=4_000)
            assert isinstance(found[ZERO], RequestTimedOut)
            cluster.intercept(DescribeGroupsRequest, drop())
            with pytest.raises(RequestTimedOut, match="group 'g'"):
                await client.apply_reset(plan, timeout_ms=4_000)

    virtually(story)


def test_an_open_transaction_is_waited_for() -> None:
    async def story(cluster: Cluster) -> None:
        fill(cluster)

        async def unstable(exchange: Exchange) -> Any:
            answer: Any = await exchange.handle()
            answer.groups[0].topics[0].partitions[0].error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
            return answer

        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 4})
            caught = cluster.intercept(OffsetFetchRequest, unstable, times=2)
            assert told(await client.plan_reset("g", ToEarliest())) == {ZERO: (4, 0, "")}
            assert caught.hits == 2

    virtually(story)


def test_what_cannot_be_planned() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            with pytest.raises(UnknownTopic, match="missing"):
                await client.plan_reset("g", ToEarliest(), topics=["missing"])
            with pytest.raises(ConfigError, match="is no target of a reset: give one of"):
                await client.plan_reset("g", "earliest", topics=["t"])  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="is no partition"):
                await client.plan_reset("g", ToEarliest(), partitions=["t"])  # type: ignore[list-item]
            for wrong in ({"t": 5}, {TopicPartition("t", -1): 5}, {("t", "0"): 5}):
                with pytest.raises(ConfigError, match="is no partition"):
                    await client.plan_reset("g", ToOffsets(wrong))  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="are no offsets: give a mapping"):
                ToOffsets([5])  # type: ignore[arg-type]
            with pytest.raises(ConfigError, match="is no group"):
                await client.plan_reset("g", LikeGroup(5), topics=["t"])  # type: ignore[arg-type]
            plan = await client.plan_reset("g", ToOffsets({("t", 0): 0}))  # type: ignore[dict-item]
            assert plan.rows[0].partition.topic == "t"
            cluster.intercept(ListOffsetsRequest, ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=2)
            with pytest.raises(AuthorizationFailed):
                await client.plan_reset("g", ToEarliest(), topics=["t"])
            cluster.intercept(DescribeGroupsRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)
            with pytest.raises(BrokerError, match="group 'g'"):
                await client.plan_reset("g", ToEarliest(), topics=["t"])
            assert (await client.plan_reset("g", ToOffset(5), topics=["t"])).rows[0].reason is ResetReason.CLAMPED

    virtually(story)
