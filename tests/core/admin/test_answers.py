"""What is read from answers: bit fields, numbers of newer brokers, members of other protocols, names of APIs."""

from __future__ import annotations

import re
import zipfile

import pytest

from aiokc import TopicPartition
from aiokc.admin import (
    AclOperation,
    ConfigSource,
    ConfigType,
    GroupDescription,
    Lag,
    LogDir,
    MemberDescription,
    ReplicaSize,
    partition_sizes,
)
from aiokc.client.admin.asking import passes
from aiokc.core.admin.api_names import API_NAMES
from aiokc.core.admin.cluster_answers import described_configs, described_log_dirs, operations
from aiokc.core.admin.first_record import first_record
from aiokc.core.admin.group_answers import (
    described_classic_groups,
    described_consumer_groups,
    described_share_groups,
)
from aiokc.core.admin.offset_answers import Leaving, deleted_groups, left_members
from aiokc.error_codes import ErrorCode
from aiokc.errors import AuthorizationFailed, BrokerError, MalformedResponse, RequestTimedOut
from aiokc.records import NewRecord, encode_batch, encode_control_batch
from aiokc.records.transactions import ControlType
from aiokc.testing.kafka.jars import KAFKA_VERSION, libs
from aiokc.types import OffsetAndMetadata
from aiokc.wire.messages.describing import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from aiokc.wire.messages.fetch import AbortedTransaction, PartitionData
from aiokc.wire.messages.group import LeaveGroupResponse, MemberResponse
from aiokc.wire.messages.group_admin import (
    DeletableGroupResult,
    DeleteGroupsResponse,
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsResponse,
)
from aiokc.wire.messages.group_description import (
    Assignment,
    ConsumerGroupDescribeResponse,
    ConsumerGroupMember,
    DescribedConsumerGroup,
    DescribedShareGroup,
    ShareGroupDescribeResponse,
    ShareGroupMember,
    TopicPartitions,
)
from aiokc.wire.primitives import NO_UUID


def test_operations_are_bits() -> None:
    assert operations(-(1 << 31)) is None, "the broker does not say"
    assert operations(0) == frozenset()
    assert operations(1 << 3 | 1 << 8 | 1 << 30) == frozenset({AclOperation.READ, AclOperation.DESCRIBE})


def test_numbers_that_a_newer_broker_has() -> None:
    entry = DescribeConfigsResourceResult(
        name="x", value="1", read_only=False, config_source=99, is_sensitive=False, config_type=99
    )
    result = DescribeConfigsResult(
        error_code=0, error_message=None, resource_type=2, resource_name="t", configs=[entry]
    )
    found = described_configs(DescribeConfigsResponse(results=[result]))["t"]
    assert isinstance(found, dict)
    assert (found["x"].source, found["x"].type) == (ConfigSource.UNKNOWN, ConfigType.UNKNOWN)


def test_an_old_broker_refuses_its_log_dirs_by_naming_none() -> None:
    with pytest.raises(AuthorizationFailed, match="log directories of broker 7"):
        described_log_dirs(DescribeLogDirsResponse(results=[]), 7)


def test_a_directory_that_takes_no_new_replicas_says_so() -> None:
    results = [
        DescribeLogDirsResult(error_code=0, log_dir=path, topics=[], is_cordoned=path == "/full")
        for path in ("/full", "/free")
    ]
    found = described_log_dirs(DescribeLogDirsResponse(error_code=0, results=results), 7)
    assert {path: log_dir.is_cordoned for path, log_dir in found.items()} == {"/full": True, "/free": False}


def test_why_a_group_was_not_deleted() -> None:
    """KIP-1331."""
    refused = DeletableGroupResult(
        group_id="g", error_code=ErrorCode.GROUP_DELETION_FAILED, error_message="its\ntopology is kept"
    )
    error = deleted_groups(DeleteGroupsResponse(results=[refused]))["g"]
    assert isinstance(error, BrokerError)
    assert (error.code, error.retriable) == (134, False)
    assert r"group 'g': its\ntopology is kept" in str(error)
    assert not passes(error)


def test_the_names_of_all_apis() -> None:
    with zipfile.ZipFile(libs() / f"kafka-clients-{KAFKA_VERSION}.jar") as jar:
        for path in jar.namelist():
            if found := re.fullmatch(r"common/message/(\w+)Request\.json", path):
                (key,) = re.findall(r'"apiKey": *(\d+)', jar.read(path).decode())
                assert API_NAMES[int(key)] == found[1]
    assert (API_NAMES[93], API_NAMES[94]) == ("StreamsGroupTopologyDescriptionUpdate", "UnregisterController")  # of 4.4


# Groups


def test_a_share_group_is_described_as_far_as_its_coordinator_tells() -> None:
    member = ShareGroupMember(
        member_id="m",
        rack_id="r1",
        member_epoch=3,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["u", "t"],
        assignment=Assignment(topic_partitions=[TopicPartitions(topic_id=NO_UUID, topic_name="t", partitions=[1, 0])]),
    )
    group = DescribedShareGroup(
        error_code=0,
        group_id="s",
        group_state="Stable",
        group_epoch=3,
        assignment_epoch=2,
        assignor_name="simple",
        members=[member],
    )
    (found,) = described_share_groups(ShareGroupDescribeResponse(throttle_time_ms=0, groups=[group]), 1).values()
    assert found == GroupDescription(
        group_id="s",
        type="share",
        state="Stable",
        coordinator=1,
        members=(
            MemberDescription(
                member_id="m",
                client_id="c",
                host="/h",
                rack="r1",
                subscription=("t", "u"),
                assignment=(TopicPartition("t", 0), TopicPartition("t", 1)),
                epoch=3,
            ),
        ),
        assignor="simple",
        protocol_type="share",
        epoch=3,
        assignment_epoch=2,
    )


def classic_member(metadata: bytes, assignment: bytes) -> DescribedGroupMember:
    return DescribedGroupMember(
        member_id="m", client_id="c", client_host="/h", member_metadata=metadata, member_assignment=assignment
    )


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\xff", b"\0\1\0\0\0\5not a subscription"])
def test_a_member_whose_bytes_are_no_subscription(data: bytes) -> None:
    group = DescribedGroup(
        error_code=0,
        group_id="g",
        group_state="Stable",
        protocol_type="consumer",
        protocol_data="range",
        members=[classic_member(data, data)],
    )
    found = described_classic_groups(DescribeGroupsResponse(groups=[group]), 1)["g"]
    assert not isinstance(found, Exception)
    (member,) = found.members
    assert (member.member_id, member.subscription, member.assignment) == ("m", (), ())


def test_a_dead_group_of_an_old_broker_does_not_exist() -> None:
    dead = DescribedGroup(
        error_code=0, group_id="g", group_state="Dead", protocol_type="", protocol_data="", members=[]
    )
    found = described_classic_groups(DescribeGroupsResponse(groups=[dead]), 1)["g"]
    assert isinstance(found, BrokerError)
    assert found.code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_group_of_the_consumer_protocol_in_a_rebalance() -> None:
    def assigned(*numbers: int) -> Assignment:
        return Assignment(
            topic_partitions=[TopicPartitions(topic_id=NO_UUID, topic_name="t", partitions=list(numbers))]
        )

    member = ConsumerGroupMember(
        member_id="m",
        member_epoch=3,
        client_id="c",
        client_host="/h",
        subscribed_topic_names=["t"],
        subscribed_topic_regex="",
        assignment=assigned(2, 0),
        target_assignment=assigned(0),
        member_type=0,
    )
    group = DescribedConsumerGroup(
        error_code=0,
        group_id="g",
        group_state="Reconciling",
        group_epoch=4,
        assignment_epoch=4,
        assignor_name="uniform",
        members=[member],
        authorized_operations=1 << 3,
    )
    found = described_consumer_groups(ConsumerGroupDescribeResponse(throttle_time_ms=0, groups=[group]), 5)["g"]
    assert not isinstance(found, Exception)
    assert (found.type, found.state, found.coordinator, found.epoch) == ("consumer", "Reconciling", 5, 4)
    (described,) = found.members
    assert described.assignment == (TopicPartition("t", 0), TopicPartition("t", 2))
    assert (described.target, described.epoch, described.is_classic) == ((TopicPartition("t", 0),), 3, True)
    assert described.subscription_pattern is None
    assert found.owner(TopicPartition("t", 2)) is described
    assert found.owner(TopicPartition("t", 1)) is None


def test_members_that_leave() -> None:
    leaving = [Leaving("m", False), Leaving("i", True)]
    answered = [
        MemberResponse(member_id="", group_instance_id="i", error_code=0),
        MemberResponse(member_id="m", group_instance_id=None, error_code=25),
    ]
    assert left_members(LeaveGroupResponse(error_code=0, members=answered), leaving, 5) == {
        leaving[0]: 25,
        leaving[1]: 0,
    }
    refused = LeaveGroupResponse(error_code=16)
    assert left_members(refused, leaving, 5) == dict.fromkeys(leaving, 16)
    with pytest.raises(MalformedResponse, match="says nothing about m"):
        left_members(LeaveGroupResponse(error_code=0, members=answered[:1]), leaving, 5)


# Lag, sizes, the record to read next


def test_lag() -> None:
    behind = Lag(OffsetAndMetadata(3), 0, 10, timestamp=1_000)
    assert (behind.lag, behind.age_ms(5_000), behind.age_ms(500)) == (7, 4_000, 0)
    assert (Lag(OffsetAndMetadata(12), 0, 10).lag, Lag(OffsetAndMetadata(10), 0, 10).age_ms(9)) == (0, 0)
    assert (Lag(None, 0, 10).lag, Lag(OffsetAndMetadata(3), 0, None).lag, Lag(None, 0, 10).age_ms(9)) == (None,) * 3


def test_sizes_by_broker() -> None:
    tp = TopicPartition("t", 0)
    dirs = {"/a": LogDir("/a", {tp: ReplicaSize(5, 0)}), "/b": LogDir("/b", {tp: ReplicaSize(9, 0, is_future=True)})}
    assert partition_sizes({1: dirs, 2: RequestTimedOut("too late")}) == {tp: {1: 5}}


def batch(offset: int, *times: int, producer_id: int = -1) -> bytes:
    records = [NewRecord(b"v" * 50, timestamp=time) for time in times]
    return encode_batch(records, base_offset=offset, producer_id=producer_id, transactional=producer_id >= 0)


def look(records: bytes, offset: int, *aborted: AbortedTransaction) -> tuple[object, ...]:
    data = PartitionData(
        partition_index=0,
        error_code=0,
        high_watermark=99,
        aborted_transactions=list(aborted),
        records=memoryview(records),
    )
    return first_record(data, offset, topic="t", check_crcs=True, max_decompressed_bytes=1 << 20)


def test_the_first_record_at_or_behind_an_offset() -> None:
    head = batch(0, 100, 101, 102)
    log = head + batch(3, 103)
    assert look(log, 0) == (100, 0)
    assert look(log, 2) == (102, 2)
    assert look(log, 3) == (103, 3)
    assert look(log, 4) == (None, 4)
    assert look(log[: len(head) + 20], 3) == (None, 3), "a batch that came in part"
    assert look(b"", 3) == (None, 3)


def test_compaction_and_aborted_transactions_leave_no_record() -> None:
    compacted = encode_batch([NewRecord(b"v", timestamp=100)], last_offset_delta=4)
    assert look(compacted + batch(5, 105), 1) == (105, 5)
    assert look(compacted, 1) == (None, 5)
    aborted = batch(0, 100, producer_id=7) + encode_control_batch(
        ControlType.ABORT, producer_id=7, producer_epoch=0, base_offset=1
    )
    assert look(aborted + batch(2, 102), 0, AbortedTransaction(producer_id=7, first_offset=0)) == (102, 2)
    assert look(aborted + batch(2, 102), 0) == (100, 0), "read_uncommitted: the broker names no aborted ones"
