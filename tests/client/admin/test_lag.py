"""How far groups are behind: ends by isolation level, the age of the next record, partitions without an answer."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest

from aiokc import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from aiokc.admin import EARLIEST, Lag, ToEarliest
from aiokc.client.admin import cluster as admin_cluster
from aiokc.client.admin import lag, leaders
from aiokc.client.admin.asking import Asking
from aiokc.client.admin.lag import _fact, _rounds
from aiokc.core.admin.first_record import Look, first_record
from aiokc.core.admin.group_answers import described_share_groups
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthenticationFailed,
    BrokerError,
    ClientClosed,
    ConfigError,
    MalformedResponse,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
    UsageError,
)
from aiokc.records import Codec, NewRecord
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import disconnect, drop
from aiokc.wire.messages.discovery import MetadataRequest
from aiokc.wire.messages.fetch import FetchRequest, FetchResponse, PartitionData
from aiokc.wire.messages.group_admin import DescribeGroupsRequest
from aiokc.wire.messages.group_description import (
    DescribedShareGroup,
    ShareGroupDescribeResponse,
)
from aiokc.wire.messages.offsets import ListOffsetsRequest, ListOffsetsResponse, OffsetFetchRequest

from ..virtually import virtually
from .scene import ONE, SECURED, ZERO, as_alice, client_of, member_of

pytestmark = pytest.mark.timeout(30)


def write(cluster: Cluster, partition: int, *times: int, size: int = 10) -> None:
    for time in times:
        cluster.append("t", NewRecord(b"v" * size, timestamp=time), partition=partition)


def lags(found: object) -> dict[TopicPartition, Lag]:
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("release", ["2.1", "2.8", "4.3"])
def test_lag_with_the_age_of_the_next_record(release: str) -> None:
    async def story(cluster: Cluster) -> None:
        write(cluster, 0, 1_000, 2_000, 3_000)
        write(cluster, 1, 4_000)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 1, ONE: 1})
            await client.commit("h", {ZERO: 2})
            await client.commit("i", {ZERO: 1})
            found = await client.group_lag(["g", "h", "i"], with_time=True)
            g = lags(found["g"])
            assert g[ZERO] == Lag(OffsetAndMetadata(1), 0, 3, timestamp=2_000)
            assert (g[ZERO].lag, g[ZERO].age_ms(10_000)) == (2, 8_000)
            assert g[ONE] == Lag(OffsetAndMetadata(1), 0, 1)
            assert (g[ONE].lag, g[ONE].age_ms(10_000)) == (0, 0)
            assert [lags(found[one])[ZERO].timestamp for one in ("h", "i")] == [3_000, 2_000]
            fetches: list[object] = []
            cluster.intercept(FetchRequest, lambda exchange: fetches.append(exchange.request))
            assert lags((await client.group_lag(["g"]))["g"])[ZERO].timestamp is None
            assert fetches == [], "without with_time nothing is fetched"
            await client.group_lag(["g", "i"], with_time=True)
            assert len(fetches) == 1, "groups that are at one offset share the look at it"

    virtually(story, as_version=release, auto_create_topics_enable=False)


class Counted(TopicPartition):
    """A partition that counts how often a dict looks for one."""

    looks = 0

    def __hash__(self) -> int:
        Counted.looks += 1
        return super().__hash__()


@pytest.mark.parametrize("groups", [10, 100])
def test_the_rounds_of_many_groups_cost_as_much_for_each(groups: int) -> None:
    """Each of them has read another part of one topic: there are as many rounds as groups."""
    partitions: list[TopicPartition] = [Counted("t", number) for number in range(10)]
    wanted = [dict.fromkeys(partitions, (group, 1000)) for group in range(groups)]
    Counted.looks = 0
    rounds = _rounds(wanted)
    assert Counted.looks <= 6 * groups * len(partitions)
    assert rounds == wanted


def test_an_offset_of_two_groups_is_looked_at_once() -> None:
    assert _rounds([{ZERO: (1, 9), ONE: (1, 9)}, {ZERO: (2, 9), ONE: (1, 9)}, {ZERO: (1, 9), ONE: (3, 9)}]) == [
        {ZERO: (1, 9), ONE: (1, 9)},
        {ZERO: (2, 9), ONE: (3, 9)},
    ]


@pytest.mark.parametrize("count", [20, 300])
async def test_large_answers_are_read_beside_the_loop(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step over all partitions of all groups runs in a thread: together they would hold the loop for long."""
    steps = ["_facts_of", "_lags", "_all_unread", "_rounds", "_all_timed"]
    beside: dict[str, bool] = {}  # some of them are called for few partitions, too
    loops = threading.get_ident()

    def noted(module: Any, name: str) -> None:
        step = getattr(module, name)

        def run(*given: Any) -> Any:
            beside[name] = beside.get(name, False) or threading.get_ident() != loops
            return step(*given)

        monkeypatch.setattr(module, name, run)

    for name in steps:
        noted(lag, name)
    noted(leaders, "_by_leader")
    noted(admin_cluster, "described_topics")
    async with Cluster(1, topics={"t": count, **{f"t{number}": 1 for number in range(count)}}) as cluster:
        write(cluster, 0, 1_000)
        async with client_of(cluster) as client:
            await client.commit("g", {TopicPartition("t", number): 0 for number in range(count)})
            found = lags((await client.group_lag(["g"], with_time=True))["g"])
            assert (len(found), found[ZERO].timestamp) == (count, 1_000)
            await client.describe_topics()
    assert beside == dict.fromkeys([*steps, "_by_leader", "described_topics"], count > 200)


def test_what_a_member_owns_without_a_commit() -> None:
    async def story(cluster: Cluster) -> None:
        write(cluster, 0, 1_000)
        async with client_of(cluster) as client, member_of(cluster) as member:
            await member.commit({ZERO: 0})
            found = lags((await client.group_lag(["g"], with_time=True))["g"])
            assert list(found) == [ZERO, ONE]
            assert (found[ZERO].lag, found[ONE]) == (1, Lag(None, 0, 0))

    virtually(story)


def test_records_that_retention_has_deleted() -> None:
    async def story(cluster: Cluster) -> None:
        write(cluster, 0, 1_000, 2_000, 3_000)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 0})
            cluster.trim("t", to=2)
            found = lags((await client.group_lag(["g"], with_time=True))["g"])[ZERO]
            assert (found.start, found.lag, found.timestamp) == (2, 3, 3_000)

    virtually(story)


@pytest.mark.parametrize(("deleted", "timestamp"), [(200, 1_200), (300, None)])
def test_records_that_retention_deletes_meanwhile(deleted: int, timestamp: int | None) -> None:
    """They are deleted between the look at the log's start and the Fetch."""

    async def story(cluster: Cluster) -> None:
        write(cluster, 0, *range(1_000, 1_300))
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 0})
            cluster.intercept(FetchRequest, lambda exchange: cluster.trim("t", to=deleted), times=1)
            found = lags((await client.group_lag(["g"], with_time=True))["g"])[ZERO]
            assert (found.timestamp, found.error) == (timestamp, None)

    virtually(story)


@pytest.mark.parametrize("code", [ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED])
def test_an_offset_that_is_out_of_range_for_another_reason_is_an_error(code: ErrorCode) -> None:
    """The log's start is no reason; or the leader does not tell it, which says more."""

    async def story(cluster: Cluster) -> None:
        write(cluster, 0, 1_000)

        def out_of_range(exchange: Exchange) -> ErrorCode:
            if code != ErrorCode.NONE:
                cluster.intercept(ListOffsetsRequest, code)
            return ErrorCode.OFFSET_OUT_OF_RANGE

        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 0})
            cluster.intercept(FetchRequest, out_of_range)
            error = lags((await client.group_lag(["g"], with_time=True))["g"])[ZERO].error
        assert isinstance(error, BrokerError)
        assert error.code == (code or ErrorCode.OFFSET_OUT_OF_RANGE)

    virtually(story)


def test_large_batches_take_some_rounds() -> None:
    """The broker sends the first partition's batch, however large; of the others only what they may have."""

    async def story(cluster: Cluster) -> None:
        for partition in range(5):
            write(cluster, partition, 1_000 + partition, size=200_000)
        async with client_of(cluster) as client:
            await client.commit("g", {TopicPartition("t", partition): 0 for partition in range(5)})
            fetches: list[object] = []
            cluster.intercept(FetchRequest, lambda exchange: fetches.append(exchange.request))
            found = lags((await client.group_lag(["g"], with_time=True))["g"])
            assert [one.timestamp for one in found.values()] == [1_000, 1_001, 1_002, 1_003, 1_004]
            assert len(fetches) == 2

    virtually(story, brokers=1, topics={"t": 5})


def test_leaders_are_asked_for_no_more_than_a_response_may_hold() -> None:
    """All partitions together have twice as much."""

    async def story(cluster: Cluster) -> None:
        times = {TopicPartition("t", partition): 1_000 + partition for partition in range(8)}
        for tp, time in times.items():
            write(cluster, tp.partition, *[time] * 3, size=20_000)
        async with client_of(cluster, max_response_bytes=200_000) as client:
            await client.commit("g", dict.fromkeys(times, 0))
            found = lags((await client.group_lag(["g"], with_time=True))["g"])
            assert {tp: one.timestamp for tp, one in found.items()} == times

    virtually(story, brokers=1, topics={"t": 8})


def test_a_log_that_was_truncated_meanwhile_is_given_up() -> None:
    async def story(cluster: Cluster) -> None:
        write(cluster, 0, 1_000, 2_000)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 1})

            def truncate(exchange: Exchange) -> None:
                cluster.truncate("t", to=1)

            cluster.intercept(FetchRequest, truncate, times=1)
            found = lags((await client.group_lag(["g"], with_time=True, timeout_ms=4_000))["g"])[ZERO]
            assert isinstance(found.error, RequestTimedOut)
            assert "sent no record of t-0" in str(found.error)

    virtually(story)


def test_the_end_by_isolation_level() -> None:
    """The broker is asked for what the caller wants, whatever the client's own level is."""

    async def story(cluster: Cluster) -> None:
        levels: list[int] = []
        cluster.intercept(ListOffsetsRequest, lambda exchange: levels.append(exchange.request.isolation_level))
        async with client_of(cluster, isolation_level="read_committed") as client:
            await client.commit("g", {ZERO: 0})
            await client.group_lag(["g"])
            await client.group_lag(["g"], isolation_level="read_uncommitted")
            assert levels == [1, 1, 0, 0]
            for level in ("none", ""):
                with pytest.raises(ConfigError, match="isolation_level"):
                    await client.group_lag(["g"], isolation_level=level)  # type: ignore[arg-type]

    virtually(story)


def test_a_topic_that_is_gone() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 0})

            def delete(exchange: Exchange) -> None:
                cluster.delete_topic("t")

            cluster.intercept(ListOffsetsRequest, delete, times=1)
            found = lags((await client.group_lag(["g"], timeout_ms=3_000))["g"])[ZERO]
            assert isinstance(found.error, UnknownTopic)
            assert (found.end, found.lag) == (None, None)

    virtually(story)


def test_a_group_that_does_not_exist() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            found = (await client.group_lag(["missing"]))["missing"]
            assert isinstance(found, BrokerError)
            assert found.code == ErrorCode.GROUP_ID_NOT_FOUND

    virtually(story)


HIDEABLE = (ApiKey.DESCRIBE_GROUPS, ApiKey.CONSUMER_GROUP_DESCRIBE)


@pytest.mark.parametrize("hidden", [HIDEABLE, HIDEABLE[:1]], ids=["all", "DescribeGroups"])
def test_a_cluster_that_describes_no_groups(hidden: tuple[ApiKey, ...]) -> None:
    """A proxy hides it, say: what the group has committed is known all the same."""

    async def story(cluster: Cluster) -> None:
        for api in hidden:
            cluster._state.versions.pop(api, None)  # type: ignore[attr-defined]
        write(cluster, 0, 1_000, 2_000)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 1})
            found = await client.group_lag(["g", "nobody"])
            assert lags(found["g"])[ZERO] == Lag(OffsetAndMetadata(1), 0, 2)
            described = await client.describe_groups(["g"])
            for error in (found["nobody"], described["g"]):
                assert isinstance(error, UnsupportedVersion)
                assert "DescribeGroups" in str(error)
            with pytest.raises(UnsupportedVersion):  # the group may have members
                await client.plan_reset("g", ToEarliest())

    virtually(story)


def test_a_group_of_another_kind() -> None:
    """A group with offsets that no protocol describes has a lag, as those of Kafka Streams do."""

    async def story(cluster: Cluster) -> None:
        cluster.intercept(DescribeGroupsRequest, ErrorCode.GROUP_ID_NOT_FOUND)
        async with client_of(cluster) as client:
            await client.commit("streams", {ZERO: 0})
            assert list(lags((await client.group_lag(["streams"]))["streams"])) == [ZERO]

    virtually(story)


def test_a_share_group() -> None:
    group = DescribedShareGroup(
        error_code=0,
        group_id="s",
        group_state="Empty",
        group_epoch=1,
        assignment_epoch=1,
        assignor_name="simple",
        members=[],
    )
    described = described_share_groups(ShareGroupDescribeResponse(throttle_time_ms=0, groups=[group]), 1)["s"]
    assert described.type == "share"  # type: ignore[union-attr]
    assert isinstance(_fact("s", {}, described), UsageError)


def test_a_coordinator_that_hangs_leaves_the_other_groups_their_lag() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster, request_timeout_ms=1_000) as client:
            for group, broker in (("a", 1), ("b", 2)):
                cluster.move_coordinator(group, to=broker)
                await client.commit(group, {ZERO: 0})
            cluster.intercept(OffsetFetchRequest, drop(), where=lambda exchange: exchange.broker == 2)
            found = await client.group_lag(["a", "b"], with_time=True, timeout_ms=8_000)
            assert lags(found["a"])[ZERO].lag == 0
            assert isinstance(found["b"], RequestTimedOut)

    virtually(story)


def test_a_leader_that_hangs_leaves_the_other_partitions_their_lag() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster, request_timeout_ms=1_000) as client:
            await client.commit("g", {ZERO: 0, ONE: 0})
            write(cluster, 0, 1_000)
            write(cluster, 1, 2_000)
            hung = cluster.leader("t", 1)
            cluster.intercept(ListOffsetsRequest, drop(), where=lambda exchange: exchange.broker == hung)
            found = lags((await client.group_lag(["g"], with_time=True, timeout_ms=8_000))["g"])
            assert (found[ZERO].lag, found[ZERO].timestamp, found[ZERO].error) == (1, 1_000, None)
            assert isinstance(found[ONE].error, RequestTimedOut)

    virtually(story)


@pytest.mark.parametrize("call", ["group_lag", "plan_reset"])
def test_a_partition_that_a_leader_leaves_out_is_asked_for_again_with_pauses(call: str) -> None:
    async def story(cluster: Cluster) -> None:
        asked = 0

        async def without_one(exchange: Exchange) -> ListOffsetsResponse:
            nonlocal asked
            asked += 1
            response = await exchange.handle()
            assert isinstance(response, ListOffsetsResponse)
            for topic in response.topics if asked < 200 else ():  # without pauses the time would stand still
                topic.partitions = [one for one in topic.partitions if one.partition_index != ONE.partition]
            return response

        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 0, ONE: 0})
            cluster.intercept(ListOffsetsRequest, without_one)
            error: BaseException | None
            if call == "group_lag":
                found = lags((await client.group_lag(["g"], timeout_ms=5_000))["g"])
                assert (found[ZERO].lag, found[ZERO].error) == (0, None)
                error = found[ONE].error
            else:
                with pytest.raises(RequestTimedOut) as raised:
                    await client.plan_reset("g", ToEarliest(), timeout_ms=5_000)
                error = raised.value
        assert isinstance(error, RequestTimedOut)
        assert isinstance(error.__cause__, MalformedResponse)
        assert str(error).endswith("has neither an offset nor an error for t-1")
        assert asked < 40

    virtually(story)


def test_an_answer_counts_though_the_attempt_before_had_an_error() -> None:
    """First both partitions have to wait for a leader, then one, then the metadata fail for good."""
    snapshot = Asking.snapshot
    asked = 0

    async def refused_in_the_end(self: Asking, topics: Any) -> Any:
        if asked == 2:
            raise AuthenticationFailed("no")
        return await snapshot(self, topics)

    async def story(cluster: Cluster) -> None:
        async def without_leaders(exchange: Exchange) -> ListOffsetsResponse:
            nonlocal asked
            response = await exchange.handle()
            assert isinstance(response, ListOffsetsResponse)
            for one in response.topics[0].partitions:
                if asked == 0 or one.partition_index == ONE.partition:
                    one.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            asked += 1
            return response

        cluster.intercept(ListOffsetsRequest, without_leaders)
        async with client_of(cluster) as client, client._asking(5_000) as asking:
            with patch.object(Asking, "snapshot", refused_in_the_end):
                found = await leaders.list_each(asking, {ZERO: EARLIEST, ONE: EARLIEST}, "read_uncommitted")
        assert isinstance(found[ZERO], OffsetAndTimestamp)
        assert isinstance(found[ONE], AuthenticationFailed)

    virtually(story, brokers=1)


def test_a_lag_that_is_half_known_ends_with_the_client() -> None:
    """One partition has its answer. The other one needs newer metadata, and waits for a connection as the client stops.

    The attempts to connect are given up before the call is ended, so its request fails by that.
    """

    async def story(cluster: Cluster) -> None:
        async def without_a_leader(exchange: Exchange) -> ListOffsetsResponse:
            response = await exchange.handle()
            assert isinstance(response, ListOffsetsResponse)
            for one in response.topics[0].partitions:
                if one.partition_index == ONE.partition:
                    one.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return response

        looked = cluster.intercept(ListOffsetsRequest, without_a_leader)
        cluster.intercept(MetadataRequest, disconnect(), where=lambda _: looked.hits == 2)  # for both ends of the log
        async with as_alice(cluster) as client:
            await client.commit("g", {ZERO: 0, ONE: 0})
            call = asyncio.create_task(client.group_lag(["g"]))
            await looked.caught(2)
            cluster.slow_login(60)
            await asyncio.sleep(1)  # of virtual time: no connection is left
            await client.stop()
            with pytest.raises(ClientClosed):
                await call

    virtually(story, brokers=1, **SECURED)


def test_a_partition_that_was_not_asked_for_is_passed_over() -> None:
    empty: dict[str, Any] = {"error_code": 0, "high_watermark": 0, "aborted_transactions": None}

    async def with_another(exchange: Exchange) -> FetchResponse:
        response = await exchange.handle()
        assert isinstance(response, FetchResponse)
        for topic in response.responses:
            another = PartitionData(partition_index=77, records=memoryview(b""), **empty)
            topic.partitions = [another, *topic.partitions]
        return response

    async def story(cluster: Cluster) -> None:
        write(cluster, 0, 1_000)
        cluster.intercept(FetchRequest, with_another)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 0})
            found = lags((await client.group_lag(["g"], with_time=True))["g"])
            assert found == {ZERO: Lag(OffsetAndMetadata(0), 0, 1, timestamp=1_000)}

    virtually(story)


def test_leaders_that_move_are_followed() -> None:
    async def story(cluster: Cluster) -> None:
        write(cluster, 0, 1_000)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 0})
            cluster.intercept(ListOffsetsRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
            cluster.intercept(FetchRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=1)
            found = lags((await client.group_lag(["g"], with_time=True))["g"])[ZERO]
            assert (found.lag, found.timestamp, found.error) == (1, 1_000, None)

    virtually(story)


def test_a_batch_of_a_few_kb_that_is_many_mb_is_opened_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[int] = []

    def noted(data: PartitionData, offset: int, **options: Any) -> Look:
        limits.append(options["max_decompressed_bytes"])
        return first_record(data, offset, **options)

    monkeypatch.setattr(leaders, "first_record", noted)

    async def story(cluster: Cluster) -> None:
        cluster.append("t", NewRecord(bytes(8 << 20), timestamp=1_000), codec=Codec.GZIP)
        write(cluster, 1, 2_000)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 0, ONE: 0})
            found = lags((await client.group_lag(["g"], with_time=True))["g"])
            assert (found[ZERO].timestamp, found[ONE].timestamp) == (1_000, 2_000)

    virtually(story)
    assert sorted(limits) == [512 << 10, 512 << 10, 128 << 20], "the loop gives up; the thread does not"


def elect(cluster: Cluster) -> None:
    cluster.move_leader("t", 0)


def create_again(cluster: Cluster) -> None:
    cluster.delete_topic("t")
    cluster.create_topic("t", 2)
    write(cluster, 0, 1_000)


@pytest.mark.parametrize("pause", [10, 700], ids=["metadata known", "metadata expired"])
@pytest.mark.parametrize("change", [elect, create_again])
def test_leader_epochs_of_a_topic_that_the_client_no_longer_follows(
    change: Callable[[Cluster], None], pause: int
) -> None:
    """The client's own metadata keep what was true when it last looked: no broker takes an epoch from there."""

    async def story(cluster: Cluster) -> None:
        write(cluster, 0, 1_000)
        cluster.move_leader("t", 0)
        loop = asyncio.get_running_loop()
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 1})
            await asyncio.sleep(pause)
            change(cluster)
            if change is create_again:
                async with client_of(cluster) as another:
                    await another.commit("g", {ZERO: 1})
            for _ in range(2):
                began = loop.time()
                found = lags((await client.group_lag(["g"], with_time=True))["g"])[ZERO]
                assert (found.end, found.lag, found.error) == (1, 0, None)
                plan = await client.plan_reset("g", ToEarliest())
                assert plan.new_offsets == {ZERO: 0}
                assert loop.time() - began < 1

    virtually(story)
