"""Bytes of a real broker and of the Java client, read and written back; capture_golden.py captures them."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from aiokc.wire import decode, decode_in_slices, decode_request_header, encode, read_response_header
from aiokc.wire.messages.describing import DescribeClusterResponse, DescribeConfigsResponse, DescribeLogDirsResponse
from aiokc.wire.messages.discovery import ApiVersionsResponse, FindCoordinatorResponse, MetadataResponse
from aiokc.wire.messages.embedded import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from aiokc.wire.messages.fetch import AbortedTransaction, EpochEndOffset, FetchResponse
from aiokc.wire.messages.group import ConsumerGroupHeartbeatResponse, JoinGroupResponse, SyncGroupResponse
from aiokc.wire.messages.group_admin import (
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    ListGroupsResponse,
    OffsetDeleteResponse,
)
from aiokc.wire.messages.group_description import ConsumerGroupDescribeResponse, ShareGroupDescribeResponse
from aiokc.wire.messages.offsets import ListOffsetsResponse, OffsetFetchResponse, OffsetForLeaderEpochResponse
from aiokc.wire.messages.produce import InitProducerIdResponse, ProduceResponse
from aiokc.wire.messages.sasl import SaslAuthenticateResponse, SaslHandshakeResponse
from aiokc.wire.messages.txn import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    TxnOffsetCommitResponse,
)
from aiokc.wire.schema import Message, Request, Response

from .capture_golden import GOLDEN, TOPIC
from .messages import all_messages

CLASSES: dict[str, Any] = {cls.__name__: cls for cls in all_messages()}
FLEXIBLE_FROM = {cls.api_key: cls.flexible_from for cls in all_messages()}


@dataclass(frozen=True)
class Exchange:
    """A line of the golden file: the request, and the answer in ``body_version``."""

    api: str
    version: int
    body_version: int
    asked: bytes
    answer: bytes

    @property
    def request_type(self) -> type[Request[Any]]:
        found: type[Request[Any]] = CLASSES[f"{self.api}Request"]
        return found

    def body(self) -> bytes:
        correlation_id, start = read_response_header(memoryview(self.answer), self.request_type, self.version)
        assert correlation_id == int.from_bytes(self.asked[4:8], "big")
        return self.answer[start:]

    def response(self) -> Response:
        return decode(self.request_type.response, self.body(), self.body_version)


def _lines() -> Iterator[list[str]]:
    for line in GOLDEN.read_text().splitlines():
        if not line.startswith("#"):
            yield line.split()


EXCHANGES = [
    Exchange(api, int(version), int(body_version), bytes.fromhex(asked), bytes.fromhex(answer))
    for api, version, body_version, asked, answer in (line for line in _lines() if len(line) == 5)
]
EMBEDDED = {(name, int(version)): bytes.fromhex(data) for name, version, data in (x for x in _lines() if len(x) == 3)}


def answers(response: type[Response]) -> list[tuple[int, Any]]:
    api = response.__name__.removesuffix("Response")
    found = [(exchange.version, exchange.response()) for exchange in EXCHANGES if exchange.api == api]
    assert found
    return found


# Bytes


def finished(steps: Generator[None, None, Message]) -> Message:
    while True:
        try:
            next(steps)
        except StopIteration as end:
            message: Message = end.value
            return message


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: f"{exchange.api}-v{exchange.version}")
def test_what_was_said_is_written_back_to_the_byte(exchange: Exchange) -> None:
    header = decode_request_header(memoryview(exchange.asked), FLEXIBLE_FROM)
    assert header[:2] == (exchange.request_type.api_key, exchange.version)
    request = decode(exchange.request_type, header.body, exchange.version)
    assert encode(request, exchange.version) == header.body
    assert encode(exchange.response(), exchange.body_version) == exchange.body()


@pytest.mark.parametrize("exchange", EXCHANGES, ids=lambda exchange: f"{exchange.api}-v{exchange.version}")
def test_slices_read_the_same(exchange: Exchange) -> None:
    steps = decode_in_slices(exchange.request_type.response, exchange.body(), exchange.body_version, 1)
    assert finished(steps) == exchange.response()


#: Versions that the broker does not speak: InitProducerId 6 is not released (KIP-939).
UNRELEASED = {("InitProducerIdRequest", 6), ("DeleteGroupsRequest", 3), ("TxnOffsetCommitRequest", 6)}


def test_every_version_of_every_api_was_taken() -> None:
    taken = {(f"{exchange.api}Request", exchange.version) for exchange in EXCHANGES} | EMBEDDED.keys()
    wanted = {
        (cls.__name__, version)
        for cls in all_messages()
        if not issubclass(cls, Response)
        for version in range(cls.min_version, cls.max_version + 1)
    }
    assert wanted - UNRELEASED == taken


# Meanings


def test_api_versions_and_its_refusal() -> None:
    for version, response in answers(ApiVersionsResponse):
        offered = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        if version == 5:  # newer than that broker: error 35, in version 0, with what it does speak (KIP-511)
            assert (response.error_code, offered) == (35, {18: (0, 4)})
            continue
        assert response.error_code == 0
        assert offered[1] == (4, 18)
        features = {feature.name: feature.max_version_level for feature in response.finalized_features}
        assert features.get("group.version") == (1 if version >= 3 else None)


def test_metadata() -> None:
    for version, response in answers(MetadataResponse):
        (broker,) = response.brokers
        assert (broker.node_id, broker.host) == (1, "127.0.0.1")
        topics = {topic.name: topic for topic in response.topics}
        assert topics["missing"].error_code == 3
        golden = topics[TOPIC]
        assert sorted(item.partition_index for item in golden.partitions) == [0, 1]
        assert {item.leader_epoch for item in golden.partitions} == ({0} if version >= 7 else {-1})
        assert {tuple(item.replica_nodes) for item in golden.partitions} == {(1,)}
        assert (golden.topic_id.int != 0) == (version >= 10)


def test_coordinators() -> None:
    for version, response in answers(FindCoordinatorResponse):
        found = response.coordinators if version >= 4 else [response]
        assert [item.node_id for item in found] == [1] * len(found)
        assert [item.key for item in response.coordinators] == (["golden-1", "other"] if version >= 4 else [])


def test_fetch() -> None:
    for version, response in answers(FetchResponse):
        (topic,) = response.responses
        assert (topic.topic == TOPIC) == (version < 13)
        assert (topic.topic_id.int != 0) == (version >= 13)
        first, second = topic.partitions
        assert (first.partition_index, first.error_code, first.high_watermark) == (0, 0, 3)
        (aborted,) = first.aborted_transactions
        assert isinstance(aborted, AbortedTransaction)
        assert aborted.first_offset == 1
        assert b"value" in bytes(first.records)
        assert first.records[16] == 2, "the magic of the first batch"
        diverging = EpochEndOffset(epoch=0, end_offset=0) if version >= 12 else None
        assert (second.error_code, second.diverging_epoch) == (0 if version >= 12 else 1, diverging)
        assert second.aborted_transactions is None
        assert bytes(second.records) == b""


def test_list_offsets_and_epochs() -> None:
    for version, response in answers(ListOffsetsResponse):
        last, other = sorted(response.topics[0].partitions, key=lambda item: item.partition_index)
        assert (last.partition_index, last.error_code, last.offset) == (0, 0, 3)
        assert other.offset == (-1 if version >= 7 else 0), "of an empty partition: by maximum timestamp, or earliest"
    for _, response in answers(OffsetForLeaderEpochResponse):
        (epoch,) = response.topics[0].partitions
        assert (epoch.error_code, epoch.leader_epoch, epoch.end_offset) == (0, 0, 3)


def test_committed_offsets() -> None:
    for version, response in answers(OffsetFetchResponse):
        topics = response.topics if version < 8 else response.groups[0].topics
        first, second = topics[0].partitions
        assert (first.committed_offset, first.metadata, first.error_code) == (10, "note 10", 0)
        assert (second.committed_offset, second.metadata) == (-1, "")


def test_the_classic_group() -> None:
    joined = answers(JoinGroupResponse)
    assert [version for version, response in joined if response.error_code == 79] == [4, 6, 7, 8]
    for version, response in joined:
        if response.error_code != 0:
            continue
        assert response.leader == response.member_id
        (member,) = response.members
        assert member.metadata == EMBEDDED["ConsumerProtocolSubscription", 3]
        assert member.group_instance_id == ("golden-instance" if version in (5, 9) else None)
    for _, response in answers(SyncGroupResponse):
        assert response.assignment == EMBEDDED["ConsumerProtocolAssignment", 3]


def test_the_consumer_group() -> None:
    for version in (0, 1):
        beats = [response for asked, response in answers(ConsumerGroupHeartbeatResponse) if asked == version]
        assert {beat.error_code for beat in beats} == {0}
        assigned = [beat.assignment for beat in beats if beat.assignment is not None]
        assert [sorted(part.partitions) for part in assigned[-1].topic_partitions] == [[0, 1]]
        assert beats[-1].assignment is None, "the member has left"


def test_the_cluster_its_configurations_and_its_disks() -> None:
    for _, cluster in answers(DescribeClusterResponse):
        (broker,) = cluster.brokers
        assert (broker.broker_id, broker.host, cluster.error_code) == (1, "127.0.0.1", 0)
        assert cluster.cluster_authorized_operations > 0
    for version, configs in answers(DescribeConfigsResponse):
        golden, missing = sorted(configs.results, key=lambda result: result.error_code)
        (entry,) = golden.configs
        assert (entry.name, entry.value, entry.config_source) == ("max.message.bytes", "1048588", 5)
        assert entry.config_type == (3 if version >= 3 else 0), "INT"
        assert [synonym.name for synonym in entry.synonyms] == ["message.max.bytes"]
        assert (missing.resource_name, missing.error_code) == ("missing", 3)
    for version, sizes in answers(DescribeLogDirsResponse):
        (log_dir,) = sizes.results
        (topic,) = log_dir.topics
        first, second = sorted(topic.partitions, key=lambda item: item.partition_index)
        assert first.partition_size > second.partition_size == 0
        assert (log_dir.total_bytes > 0) == (version >= 4)


def test_producers() -> None:
    ids = {found.producer_id for _, found in answers(InitProducerIdResponse) if found.error_code == 0}
    assert len(ids) == len(answers(InitProducerIdResponse)), "each producer has an id of its own"
    for version, response in answers(ProduceResponse):
        found = [topic.partition_responses[0] for topic in response.responses]
        appended, refused = sorted(found, key=lambda partition: partition.error_code)
        assert (appended.error_code, appended.base_offset, appended.log_append_time_ms) == (0, version - 3, -1)
        assert appended.log_start_offset == (0 if version >= 5 else -1)
        assert (refused.error_code, refused.base_offset) == (87, -1)
        blamed = [(one.batch_index, bool(one.batch_index_error_message)) for one in refused.record_errors]
        assert (blamed, bool(refused.error_message)) == (([(0, True)], True) if version >= 8 else ([], False))


def test_transactions() -> None:
    for version, added in answers(AddPartitionsToTxnResponse):
        results = added.results_by_transaction[0].topic_results if version >= 4 else added.results_by_topic_v3_and_below
        assert [one.partition_error_code for one in results[0].results_by_partition] == [0]
    assert {response.error_code for _, response in answers(AddOffsetsToTxnResponse)} == {0}
    for _, response in answers(TxnOffsetCommitResponse):
        assert [one.error_code for one in response.topics[0].partitions] == [0]
    ended = {version: (response.error_code, response.producer_epoch) for version, response in answers(EndTxnResponse)}
    assert ended == {**dict.fromkeys(range(5), (0, -1)), 5: (0, 1)}, "version 5 tells the next epoch"


def test_groups_from_outside() -> None:
    for version, listed in answers(ListGroupsResponse):
        groups = {group.group_id: group for group in listed.groups}
        assert groups["golden-join-9"].group_state == ("Empty" if version >= 4 else "")
        assert groups["golden-join-9"].group_type == ("classic" if version >= 5 else "")
    for version, described in answers(DescribeGroupsResponse):
        stable, missing = sorted(described.groups, key=lambda group: group.group_id)
        (member,) = stable.members
        assert (stable.group_state, stable.protocol_data) == ("Stable", "range")
        assert member.member_assignment == EMBEDDED["ConsumerProtocolAssignment", 3]
        assert (missing.group_state, missing.error_code) == ("Dead", 69 if version >= 6 else 0)
    for version, described in answers(ConsumerGroupDescribeResponse):
        group, missing = sorted(described.groups, key=lambda group: group.group_id)
        (member,) = group.members
        assert [sorted(part.partitions) for part in member.assignment.topic_partitions] == [[0, 1]]
        assert (member.member_type, missing.error_code) == (1 if version >= 1 else -1, 69)
    for _, described in answers(ShareGroupDescribeResponse):
        assert [group.error_code for group in described.groups] == [69, 69], "neither is a share group"
    for _, deleted in answers(OffsetDeleteResponse):
        assert deleted.topics[0].partitions[0].error_code == 0
    for _, gone in answers(DeleteGroupsResponse):
        assert {result.group_id[:6]: result.error_code for result in gone.results} == {"golden": 0, "missin": 69}


def test_authentication() -> None:
    handshakes = [(response.error_code, response.mechanisms) for _, response in answers(SaslHandshakeResponse)]
    assert set(map(str, handshakes)) == {str((0, ["PLAIN"])), str((33, ["PLAIN"]))}
    verdicts = [(version, response.error_code) for version, response in answers(SaslAuthenticateResponse)]
    assert verdicts == [(0, 0), (1, 0), (2, 0), (2, 58)]


@pytest.mark.parametrize(("name", "version"), EMBEDDED)
def test_what_the_java_client_embeds(name: str, version: int) -> None:
    data = EMBEDDED[name, version]
    assert int.from_bytes(data[:2], "big") == version
    cls: type[Message] = CLASSES[name]
    message: Any = decode(cls, data[2:], version)
    assert encode(message, version) == data[2:]
    if isinstance(message, ConsumerProtocolAssignment):
        (topic,) = message.assigned_partitions
        assert (topic.topic, topic.partitions, message.user_data) == (TOPIC, [0, 1], None)
        return
    assert isinstance(message, ConsumerProtocolSubscription)
    assert (message.topics, message.user_data) == ([TOPIC, "other"], b"\1\2\3")
    assert [owned.partitions for owned in message.owned_partitions] == ([[0, 1]] if version >= 1 else [])
    assert message.generation_id == (7 if version >= 2 else -1)
    assert message.rack_id == ("rack-1" if version >= 3 else None)
