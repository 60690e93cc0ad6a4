"""Client's calls about groups: every broker asked, three protocols, coordinators that move, answers that are lost."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from aiokc import TopicPartition
from aiokc.admin import GroupDescription, PartialListing
from aiokc.error_codes import ErrorCode
from aiokc.errors import (
    AuthorizationFailed,
    BrokerError,
    ConfigError,
    KafkaError,
    RequestTimedOut,
    UnknownTopic,
    UnsupportedVersion,
)
from aiokc.testing import Acl, Cluster
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import drop
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.group import LeaveGroupRequest
from aiokc.wire.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
)
from aiokc.wire.messages.group_description import (
    Assignment,
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    TopicPartitions,
)
from aiokc.wire.messages.offsets import OffsetFetchRequest
from aiokc.wire.primitives import NO_UUID

from ..virtually import virtually
from .scene import ONE, SECURED, ZERO, as_alice, client_of, member_of

pytestmark = pytest.mark.timeout(30)


def code_of(found: object) -> int | None:
    return found.code if isinstance(found, BrokerError) else None


# Lists


def test_every_broker_lists_its_groups() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            assert await client.list_groups() == []
            for group, broker in (("b", 2), ("a", 1), ("c", 3)):
                cluster.move_coordinator(group, to=broker)
                await client.commit(group, {ZERO: 1})
            async with member_of(cluster, "d"):
                found = await client.list_groups()
                assert [one.group_id for one in found] == ["a", "b", "c", "d"]
                assert [one.coordinator for one in found[:3]] == [1, 2, 3]
                assert [(one.state, one.type, one.protocol_type) for one in found][2:] == [
                    ("Empty", "classic", ""),
                    ("Stable", "classic", "consumer"),
                ]
                assert [one.group_id for one in await client.list_groups(states=["stable"])] == ["d"]
                assert len(await client.list_groups(types=["Classic"], states=["Empty"])) == 3
                assert await client.list_groups(types=["consumer"]) == []

    virtually(story)


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ({"states": ["Stable", "Sable"]}, "no group has the state 'Sable': give some of Stable, Empty, Prep"),
        ({"types": "klassic"}, "no group has the type 'klassic': give some of classic, consumer, share, streams"),
    ],
)
def test_a_state_or_type_that_there_is_not_is_refused(chosen: dict[str, Any], text: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            with pytest.raises(ConfigError, match=text):
                await client.list_groups(**chosen)

    virtually(story)


def test_a_list_that_lacks_a_broker_names_it() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster, request_timeout_ms=1_000) as client:
            for group, broker in (("a", 1), ("b", 2)):
                cluster.move_coordinator(group, to=broker)
                await client.commit(group, {ZERO: 1})
            cluster.intercept(ListGroupsRequest, drop(), where=lambda exchange: exchange.broker == 2)
            with pytest.raises(PartialListing, match=r"lacks those of 1 brokers \(broker 2: .*\)") as raised:
                await client.list_groups(timeout_ms=4_000)
            assert [one.group_id for one in raised.value.groups] == ["a"]
            assert list(raised.value.errors) == [2]
            assert raised.value.retriable

    virtually(story)


def test_the_groups_of_a_broker_that_dies_meanwhile_are_in_the_list() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            cluster.move_coordinator("a", to=2)
            await client.commit("a", {ZERO: 1})

            def die(exchange: Exchange) -> None:
                cluster.take_down(2)

            cluster.intercept(ListGroupsRequest, die, times=1, where=lambda exchange: exchange.broker == 2)
            (found,) = await client.list_groups()
            assert (found.group_id, found.coordinator != 2) == ("a", True)

    virtually(story)


def test_a_coordinator_that_loads_its_groups_is_waited_for() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            await client.commit("a", {ZERO: 1})
            cluster.move_coordinator("a", to=2, loading=3.0)
            assert [one.group_id for one in await client.list_groups()] == ["a"]

    virtually(story)


@pytest.mark.parametrize(("release", "what"), [("2.5", "states"), ("3.7", "types")])
def test_an_old_broker_cannot_select(release: str, what: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            assert await client.list_groups() == []
            with pytest.raises(UnsupportedVersion, match=f"cannot select groups by {what}: that needs Kafka"):
                await (client.list_groups(["Empty"]) if what == "states" else client.list_groups(types=["share"]))

    virtually(story, as_version=release)


# Descriptions


@pytest.mark.parametrize("release", ["2.1", "2.8", "3.8", "4.3"])
def test_a_classic_group_and_one_that_does_not_exist(release: str) -> None:
    async def story(cluster: Cluster) -> None:
        static = {} if release == "2.1" else {"group_instance_id": "place"}
        async with client_of(cluster) as client, member_of(cluster, **static):
            found = await client.describe_groups(["g", "missing"])
            group = found["g"]
            assert isinstance(group, GroupDescription)
            assert (group.type, group.state, group.assignor, group.is_active) == ("classic", "Stable", "range", True)
            (member,) = group.members
            assert (member.client_id, member.group_instance_id) == ("app", static.get("group_instance_id"))
            assert (member.subscription, member.assignment) == (("t",), (ZERO, ONE))
            assert (member.host, group.coordinator) == ("/127.0.0.1", cluster.coordinator("g"))
            assert group.owner(ONE) is member
            assert (group.authorized_operations is not None) == (release != "2.1")
            assert code_of(found["missing"]) == ErrorCode.GROUP_ID_NOT_FOUND

    virtually(story, as_version=release)


def consumer_group(exchange: Exchange) -> ConsumerGroupDescribeResponse:
    """Describe group "new" as a group of the consumer protocol, and no other group."""

    def described(group_id: str) -> DescribedConsumerGroup:
        owned = Assignment(topic_partitions=[TopicPartitions(topic_id=NO_UUID, topic_name="t", partitions=[0])])
        member = ConsumerGroupMember(
            member_id="m",
            member_epoch=3,
            client_id="app",
            client_host="/10.0.0.1",
            subscribed_topic_names=["t"],
            assignment=owned,
            target_assignment=owned,
        )
        is_new = group_id == "new"
        return DescribedConsumerGroup(
            error_code=0 if is_new else ErrorCode.GROUP_ID_NOT_FOUND,
            group_id=group_id,
            group_state="Stable" if is_new else "",
            group_epoch=3,
            assignment_epoch=3,
            assignor_name="uniform",
            members=[member] if is_new else [],
        )

    return ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=list(map(described, exchange.request.group_ids)))


def test_groups_of_both_protocols_at_once() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(ConsumerGroupDescribeRequest, consumer_group)
        asked: list[list[str]] = []
        cluster.intercept(DescribeGroupsRequest, lambda exchange: asked.append(exchange.request.groups))
        async with client_of(cluster) as client:
            await client.commit("old", {ZERO: 1})
            found = await client.describe_groups(["new", "old"])
            assert [(one.group_id, one.type) for one in found.values()] == [("new", "consumer"), ("old", "classic")]  # type: ignore[union-attr]
            assert asked == [["old"]], "a group that was found is not asked for again"

    virtually(story)


def test_a_hundred_groups_of_three_coordinators() -> None:
    async def story(cluster: Cluster) -> None:
        asked: list[tuple[str, int]] = []

        def count(exchange: Exchange) -> None:
            asked.append((type(exchange.request).__name__, exchange.broker))

        for api in (FindCoordinatorRequest, ConsumerGroupDescribeRequest, DescribeGroupsRequest):
            cluster.intercept(api, count)
        groups = [f"g{number}" for number in range(100)]
        async with client_of(cluster) as client:
            for number, group in enumerate(groups):
                cluster.move_coordinator(group, to=1 + number % 3)
            found = await client.describe_groups(groups)
            assert list(found) == groups
            assert len(asked) <= 3 + 6, "all groups are looked up at once, and each broker is asked once for each kind"

    virtually(story)


@pytest.mark.parametrize(
    "trouble", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
)
@pytest.mark.parametrize("api", [FindCoordinatorRequest, ConsumerGroupDescribeRequest, DescribeGroupsRequest])
def test_what_passes_is_tried_again(api: Any, trouble: ErrorCode) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 1})
            caught = cluster.intercept(api, trouble, times=2)
            assert isinstance((await client.describe_groups(["g"]))["g"], GroupDescription)
            assert caught.hits == 2

    virtually(story)


def test_a_coordinator_that_does_not_answer() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster, request_timeout_ms=1_000) as client:
            for group, broker in (("a", 1), ("b", 2)):
                cluster.move_coordinator(group, to=broker)
                await client.commit(group, {ZERO: 1})
            cluster.intercept(ConsumerGroupDescribeRequest, drop(), where=lambda exchange: exchange.broker == 2)
            found = await client.describe_groups(["a", "b"], timeout_ms=4_000)
            assert isinstance(found["a"], GroupDescription)
            assert isinstance(found["b"], RequestTimedOut)
            assert "group 'b': not done within 4 s" in str(found["b"])

    virtually(story)


def test_a_coordinator_that_dies_is_looked_up_anew() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            cluster.move_coordinator("g", to=2)
            await client.commit("g", {ZERO: 1})
            cluster.take_down(2)
            found = (await client.describe_groups(["g"]))["g"]
            assert isinstance(found, GroupDescription)
            assert found.coordinator != 2

    virtually(story)


# Offsets


@pytest.mark.parametrize("release", ["2.1", "2.8", "3.6", "4.3"])
def test_all_offsets_of_a_group(release: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            assert await client.group_offsets("g") == {}
            await client.commit("g", {ONE: 5, TopicPartition("u", 0): 7})
            found = await client.group_offsets("g")
            assert {tp: one.offset for tp, one in found.items()} == {ONE: 5, TopicPartition("u", 0): 7}

    virtually(story, as_version=release, topics={"t": 2, "u": 1})


def test_an_error_of_offsets() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            cluster.intercept(OffsetFetchRequest, ErrorCode.NOT_COORDINATOR, times=1)
            assert await client.group_offsets("g") == {}
            cluster.intercept(OffsetFetchRequest, ErrorCode.GROUP_AUTHORIZATION_FAILED, times=1)
            with pytest.raises(AuthorizationFailed, match="group 'g'"):
                await client.group_offsets("g")

    virtually(story)


# Changes


def test_groups_are_deleted_one_by_one() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client, member_of(cluster, "busy"):
            await client.commit("old", {ZERO: 1})
            cluster.intercept(DeleteGroupsRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
            found = await client.delete_groups(["old", "busy", "missing"])
            assert list(found) == ["old", "busy", "missing"]
            assert found["old"] is None
            assert code_of(found["busy"]) == ErrorCode.NON_EMPTY_GROUP
            assert code_of(found["missing"]) == ErrorCode.GROUP_ID_NOT_FOUND
            assert [one.group_id for one in await client.list_groups()] == ["busy"]

    virtually(story)


def test_what_could_not_be_sent_changed_nothing() -> None:
    """The coordinator refuses two connections. Without the request, what its answer says is what was there."""

    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 1})
            loop = asyncio.get_running_loop()
            assert isinstance(loop, VirtualLoop)
            connect, refused = loop.network.connect, 0
            node_id = cluster.coordinator("g")
            its_port = int(cluster.bootstrap.split(",")[node_id - 1].rpartition(":")[2])

            async def mostly(factory: Callable[[], Any], host: str, port: int) -> Any:
                nonlocal refused
                if port == its_port:
                    refused += 1
                    if refused <= 2:
                        raise ConnectionRefusedError
                return await connect(factory, host, port)

            loop.network.connect = mostly  # type: ignore[method-assign]
            cluster.disconnect(node_id)
            await asyncio.sleep(0.01)
            found = await client.remove_members("g", instances=["nobody"])
            assert code_of(found["nobody"]) == ErrorCode.UNKNOWN_MEMBER_ID
            assert refused == 3

    virtually(story)


def test_offsets_are_deleted_one_by_one() -> None:
    async def story(cluster: Cluster) -> None:
        other, unknown = TopicPartition("u", 0), TopicPartition("u", 9)
        async with client_of(cluster) as client:
            await client.commit("g", {ZERO: 1, other: 2})
            async with member_of(cluster):
                cluster.intercept(OffsetDeleteRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
                found = await client.delete_group_offsets("g", [ZERO, other, unknown])
                assert code_of(found[ZERO]) == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
                assert found[other] is None
                assert isinstance(found[unknown], UnknownTopic)
            assert list(await client.group_offsets("g")) == [ZERO]
            assert await client.delete_group_offsets("g", []) == {}
            missing = await client.delete_group_offsets("missing", [ZERO])
            assert code_of(missing[ZERO]) == ErrorCode.GROUP_ID_NOT_FOUND

    virtually(story, topics={"t": 2, "u": 1})


@pytest.mark.parametrize("release", ["2.4", "4.3"])
def test_members_and_static_places_are_removed(release: str) -> None:
    async def story(cluster: Cluster) -> None:
        async with (
            client_of(cluster) as client,
            member_of(cluster, group_instance_id="place", heartbeat_interval_ms=60_000, session_timeout_ms=300_000),
        ):
            (member_id,) = cluster.members("g")
            cluster.intercept(LeaveGroupRequest, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
            found = await client.remove_members("g", ["nobody"], instances=["place", "empty"], reason="test")
            assert found["place"] is None
            assert [code_of(found[one]) for one in ("nobody", "empty")] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
            assert member_id not in cluster.members("g")
            assert await client.remove_members("g") == {}

    virtually(story, as_version=release, group_max_session_timeout_ms=1_800_000)


def test_a_broker_that_knows_no_static_members() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client, member_of(cluster):
            found = await client.remove_members("g", instances=["place"])
            assert isinstance(found["place"], UnsupportedVersion)
            assert "Kafka 2.4" in str(found["place"])
            (member_id,) = cluster.members("g")
            found = await client.remove_members("g", ["nobody", member_id])
            assert (code_of(found["nobody"]), found[member_id]) == (ErrorCode.UNKNOWN_MEMBER_ID, None)

    virtually(story, as_version="2.3")


def test_an_old_coordinator_that_moves_between_two_removals() -> None:
    """It removes one member for each request: the one that is gone is not asked for again."""

    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client, member_of(cluster), member_of(cluster):
            first, second = cluster.members("g")
            cluster.intercept(
                LeaveGroupRequest,
                ErrorCode.NOT_COORDINATOR,
                times=1,
                where=lambda exchange: exchange.request.member_id == second,
            )
            assert await client.remove_members("g", [first, second]) == {first: None, second: None}

    virtually(story, as_version="2.3")


def test_what_an_old_coordinator_has_answered_outlasts_a_request_without_an_answer() -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client, member_of(cluster), member_of(cluster):
            first, second = cluster.members("g")
            cluster.intercept(LeaveGroupRequest, drop(), where=lambda exchange: exchange.request.member_id == second)
            found = await client.remove_members("g", ["nobody", first, second], timeout_ms=3_000)
            assert isinstance(found["nobody"], BrokerError)
            assert found["nobody"].code == ErrorCode.UNKNOWN_MEMBER_ID
            assert found[first] is None
            assert isinstance(found[second], RequestTimedOut)

    virtually(story, as_version="2.3")


def test_what_a_user_may_not_do() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.grant(Acl("alice", "Describe", group="mine"))
        cluster.grant(Acl("alice", "Describe", topic="t"))
        async with as_alice(cluster) as client:
            assert await client.list_groups() == []
            assert code_of((await client.describe_groups(["mine"]))["mine"]) == ErrorCode.GROUP_ID_NOT_FOUND
            refused: list[KafkaError | None] = [
                (await client.describe_groups(["theirs"]))["theirs"],  # type: ignore[list-item]
                (await client.group_lag(["theirs"]))["theirs"],  # type: ignore[list-item]
                (await client.delete_groups(["mine"]))["mine"],
                (await client.delete_group_offsets("mine", [ZERO]))[ZERO],
                (await client.remove_members("mine", ["m"]))["m"],
            ]
            assert [code_of(one) for one in refused] == [ErrorCode.GROUP_AUTHORIZATION_FAILED] * 5
            with pytest.raises(AuthorizationFailed):
                await client.group_offsets("theirs")

    virtually(story, acls=[], **SECURED)


@pytest.mark.parametrize("wrong", ["", 5, None, "g" * 40_000, [""], [5], [None]])
def test_what_is_no_group(wrong: Any) -> None:
    async def story(cluster: Cluster) -> None:
        async with client_of(cluster) as client:
            groups = wrong if isinstance(wrong, list) else [wrong]
            for call in (client.describe_groups, client.delete_groups, client.group_lag):
                with pytest.raises(ConfigError):
                    await call(groups)
            with pytest.raises(ConfigError):
                await client.group_offsets(groups[0])
            with pytest.raises(ConfigError):
                await client.remove_members(groups[0], ["m"])
            with pytest.raises(ConfigError):
                await client.describe_groups(5)  # type: ignore[arg-type]

    virtually(story, brokers=1)
