"""Capture the golden bytes anew: requests in each version of each API, and what a real Apache Kafka answers.

python -m tests.wire.capture_golden

It starts a broker (aiokc.testing.kafka), talks to it over blocking sockets, and writes golden.txt beside this file.
Embedded messages come from the Java client's own serializer. The bytes differ from run to run in ids, ports and times.
"""

from __future__ import annotations

import socket
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeVar
from uuid import UUID, uuid4

from aiokc.records import NewRecord, encode_batch
from aiokc.testing.kafka import LocalKafka
from aiokc.testing.kafka.jars import KAFKA_VERSION, run_tool
from aiokc.wire import Request, Response, decode, encode_request, read_response_header
from aiokc.wire.messages.describing import (
    DescribableLogDirTopic,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeLogDirsRequest,
)
from aiokc.wire.messages.discovery import (
    ApiVersionsRequest,
    FindCoordinatorRequest,
    MetadataRequest,
    MetadataRequestTopic,
)
from aiokc.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from aiokc.wire.messages.group import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
    LeaveGroupRequest,
    MemberIdentity,
    SyncGroupRequest,
    SyncGroupRequestAssignment,
)
from aiokc.wire.messages.group_admin import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    ListGroupsRequest,
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from aiokc.wire.messages.group_description import ConsumerGroupDescribeRequest, ShareGroupDescribeRequest
from aiokc.wire.messages.offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from aiokc.wire.messages.produce import InitProducerIdRequest, PartitionProduceData, ProduceRequest, TopicProduceData
from aiokc.wire.messages.sasl import SaslAuthenticateRequest, SaslHandshakeRequest
from aiokc.wire.messages.txn import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from ..producing import Message, produce, produce_in_transaction

R = TypeVar("R", bound=Response)

GOLDEN: Final = Path(__file__).with_name("golden.txt")
TOPIC: Final = "golden"
_TIMEOUT_SECONDS: Final = 20.0
_UNSUPPORTED_VERSION: Final = 35
_NEWEST_INIT_PRODUCER_ID: Final = 5  # version 6 is not released (KIP-939)
_NEWEST_API_VERSIONS: Final = 4  # of the released broker; it answers a newer one with error 35, in version 0

_SASL: Final = {
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.secure.plain.sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'user_alice="password-of-a-test";',
}

_HEADER: Final = f"""\
# What Apache Kafka {KAFKA_VERSION} answered, taken by capture_golden.py: do not edit, run it again.
# API, version asked, version of the answer's body, request frame and response frame without their lengths, in hex;
# or an embedded message, its version, and its bytes as the Java client of that release writes them.
"""

_PRINT_EMBEDDED: Final = """\
import java.nio.ByteBuffer;
import java.util.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.TopicPartition;

class PrintEmbedded {
    static void print(String name, int version, ByteBuffer bytes) {
        byte[] copy = new byte[bytes.remaining()];
        bytes.get(copy);
        System.out.println(name + " " + version + " " + HexFormat.of().formatHex(copy));
    }

    public static void main(String[] args) {
        List<TopicPartition> owned = List.of(new TopicPartition("golden", 0), new TopicPartition("golden", 1));
        ByteBuffer data = ByteBuffer.wrap(new byte[] {1, 2, 3});
        Subscription some =
            new Subscription(List.of("golden", "other"), data, owned, 7, Optional.of("rack-1"));
        Assignment none = new Assignment(owned, null);
        for (short version = 0; version <= 3; version++) {
            print("ConsumerProtocolSubscription", version, ConsumerProtocol.serializeSubscription(some, version));
            print("ConsumerProtocolAssignment", version, ConsumerProtocol.serializeAssignment(none, version));
        }
    }
}
"""


class Conversation:
    """Sends requests to one broker, one after the other, and keeps requests and answers as lines of the golden file."""

    def __init__(self, address: str, lines: list[str]) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), _TIMEOUT_SECONDS)
        self._file = self._socket.makefile("rb")
        self._lines = lines
        self._asked = 0

    def __enter__(self) -> Conversation:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()

    def ask(self, request: Request[Any], version: int, *, answered_in: int | None = None) -> Any:
        """Send a request, keep both frames, and return the response."""
        self._asked += 1
        asked = encode_request(request, version=version, correlation_id=self._asked, client_id="golden")[4:]
        self._socket.sendall(len(asked).to_bytes(4, "big") + asked)
        answer = self._file.read(int.from_bytes(self._file.read(4), "big"))
        body_version = version if answered_in is None else answered_in
        correlation_id, start = read_response_header(memoryview(answer), type(request), version)
        assert correlation_id == self._asked
        response = decode(type(request).response, answer[start:], body_version)
        name = type(request).__name__.removesuffix("Request")
        self._lines.append(f"{name} {version} {body_version} {asked.hex()} {answer.hex()}")
        return response

    def ask_and_forget(self, request: Request[R]) -> R:
        """Send a request in its newest version, and return the response; the frames are not kept."""
        response: R = self.ask(request, request.max_version)
        self._lines.pop()
        return response

    def coordinator_is_ready(self, transactional_id: str) -> None:
        """Return once the coordinator of a transactional id is known."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        request = FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id])
        while self.ask_and_forget(request).coordinators[0].error_code:
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def ask_until_ready(self, request: Request[Any], version: int) -> Any:
        """Ask again, keeping the last answer only, while the coordinator is being created or loaded (14, 15, 16)."""
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while True:
            response = self.ask(request, version)
            codes = {response.error_code, *(item.error_code for item in getattr(response, "coordinators", ()))}
            if not codes & {14, 15, 16}:
                return response
            assert time.monotonic() < deadline, response
            self._lines.pop()
            time.sleep(0.1)


def versions(request: type[Request[Any]]) -> Iterable[int]:
    return range(request.min_version, request.max_version + 1)


def discovery(broker: Conversation) -> UUID:
    """Ask for versions, topics and coordinators; return the id of the topic."""
    hello = ApiVersionsRequest(client_software_name="golden", client_software_version="1")
    for version in range(_NEWEST_API_VERSIONS + 1):
        broker.ask(hello, version)
    refused = broker.ask(hello, ApiVersionsRequest.max_version, answered_in=0)
    assert refused.error_code == _UNSUPPORTED_VERSION, refused
    for version in versions(MetadataRequest):
        names = [MetadataRequestTopic(name=TOPIC), MetadataRequestTopic(name="missing")]
        metadata = broker.ask(
            MetadataRequest(
                topics=names,
                allow_auto_topic_creation=version < 4,
                include_topic_authorized_operations=version >= 8,
                include_cluster_authorized_operations=version in (8, 9, 10),
            ),
            version,
        )
    for version in versions(FindCoordinatorRequest):
        one = version < 4
        broker.ask_until_ready(
            FindCoordinatorRequest(
                key="golden-1" if one else "", coordinator_keys=[] if one else ["golden-1", "other"]
            ),
            version,
        )
    topic_id: UUID = next(topic.topic_id for topic in metadata.topics if topic.name == TOPIC)
    return topic_id


def positions(broker: Conversation, topic_id: UUID) -> None:
    """Offsets by time, by epoch, and of a group."""
    for version in versions(ListOffsetsRequest):
        special = -3 if version >= 7 else -2
        wanted = [
            ListOffsetsPartition(partition_index=0, timestamp=-1),
            ListOffsetsPartition(partition_index=1, timestamp=special),
        ]
        broker.ask(ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=TOPIC, partitions=wanted)]), version)
    for version in versions(OffsetForLeaderEpochRequest):
        epoch = OffsetForLeaderPartition(partition=0, leader_epoch=0)
        topics = [OffsetForLeaderTopic(topic=TOPIC, partitions=[epoch])]
        broker.ask(OffsetForLeaderEpochRequest(replica_id=-1, topics=topics), version)
    for version in versions(OffsetCommitRequest):
        commit = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=version, committed_metadata=f"note {version}"
        )
        topic = OffsetCommitRequestTopic(name=TOPIC, topic_id=topic_id, partitions=[commit])
        broker.ask(OffsetCommitRequest(group_id="golden-1", member_id="", topics=[topic]), version)
    for version in versions(OffsetFetchRequest):
        broker.ask(_offset_fetch(version, topic_id), version)


def _offset_fetch(version: int, topic_id: UUID) -> OffsetFetchRequest:
    if version < 8:
        old = OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0, 1])
        return OffsetFetchRequest(group_id="golden-1", topics=[old])
    topic = OffsetFetchRequestTopics(name=TOPIC, topic_id=topic_id, partition_indexes=[0, 1])
    groups = [OffsetFetchRequestGroup(group_id=name, topics=[topic]) for name in ("golden-1", "missing")]
    return OffsetFetchRequest(groups=groups, require_stable=True)


def records(broker: Conversation, topic_id: UUID) -> None:
    """Records with an aborted transaction among them. One partition's offset is too high, and from v12 on diverges."""
    for version in versions(FetchRequest):
        diverging = 0 if version >= 12 else -1
        wanted = [
            FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20),
            FetchPartition(partition=1, fetch_offset=999, last_fetched_epoch=diverging, partition_max_bytes=1 << 20),
        ]
        topic = FetchTopic(topic=TOPIC, topic_id=topic_id, partitions=wanted)
        broker.ask(FetchRequest(max_wait_ms=0, min_bytes=1, isolation_level=1, topics=[topic]), version)


def classic_group(broker: Conversation, embedded: dict[str, bytes]) -> None:
    """A member of the classic protocol for each version of JoinGroup; the newest of the other APIs at most."""
    subscription, assignment = embedded["ConsumerProtocolSubscription"], embedded["ConsumerProtocolAssignment"]
    for version in versions(JoinGroupRequest):
        group = f"golden-join-{version}"
        joined = _join(broker, group, version, subscription)
        sync = SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[SyncGroupRequestAssignment(member_id=joined.member_id, assignment=assignment)],
        )
        broker.ask(sync, min(version, SyncGroupRequest.max_version))
        beat = HeartbeatRequest(group_id=group, generation_id=joined.generation_id, member_id=joined.member_id)
        broker.ask(beat, min(version, HeartbeatRequest.max_version))
        if version <= DescribeGroupsRequest.max_version:
            wanted = DescribeGroupsRequest(groups=[group, "missing"], include_authorized_operations=version >= 3)
            broker.ask(wanted, version)
        _leave(broker, group, joined.member_id, min(version, LeaveGroupRequest.max_version))


def _join(broker: Conversation, group: str, version: int, subscription: bytes) -> JoinGroupResponse:
    member_id = ""
    for _ in range(2):  # KIP-394: the first answer may only be the member's id
        join = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            member_id=member_id,
            group_instance_id="golden-instance" if version in (5, 9) else None,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=subscription)],
            reason="golden",
        )
        joined: JoinGroupResponse = broker.ask_until_ready(join, version)
        if joined.error_code == 0:
            return joined
        member_id = joined.member_id
    raise AssertionError(joined)


def _leave(broker: Conversation, group: str, member_id: str, version: int) -> None:
    if version < 3:
        broker.ask(LeaveGroupRequest(group_id=group, member_id=member_id), version)
    else:
        members = [MemberIdentity(member_id=member_id, reason="golden"), MemberIdentity(member_id="missing")]
        broker.ask(LeaveGroupRequest(group_id=group, members=members), version)


def consumer_group(broker: Conversation) -> None:
    """A member of KIP-848 for each version of its heartbeat: joining, with its assignment, and leaving."""
    for version in versions(ConsumerGroupHeartbeatRequest):
        group, member_id = f"golden-848-{version}", "" if version == 0 else str(uuid4())
        join = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=0,
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=[TOPIC],
            topic_partitions=[],
        )
        answer = broker.ask_until_ready(join, version)
        deadline = time.monotonic() + _TIMEOUT_SECONDS
        while answer.assignment is None or not answer.assignment.topic_partitions:
            assert time.monotonic() < deadline, answer
            time.sleep(0.2)
            member_id, epoch = answer.member_id, answer.member_epoch
            beat = ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id, member_epoch=epoch)
            answer = broker.ask(beat, version)
        described = ConsumerGroupDescribeRequest(group_ids=[group, "missing"], include_authorized_operations=True)
        broker.ask(described, version)
        broker.ask(
            ConsumerGroupHeartbeatRequest(group_id=group, member_id=member_id or answer.member_id, member_epoch=-1),
            version,
        )


def administration(broker: Conversation) -> None:
    """What an administrator asks of brokers and topics; then a group loses its offsets, and others are deleted."""
    for version in versions(DescribeClusterRequest):
        broker.ask(DescribeClusterRequest(include_cluster_authorized_operations=True), version)
    for version in versions(DescribeConfigsRequest):
        resources = [
            DescribeConfigsResource(resource_type=2, resource_name=TOPIC, configuration_keys=["max.message.bytes"]),
            DescribeConfigsResource(resource_type=2, resource_name="missing", configuration_keys=None),
        ]
        broker.ask(DescribeConfigsRequest(resources=resources, include_synonyms=True), version)
    for version in versions(DescribeLogDirsRequest):
        sizes = [DescribableLogDirTopic(topic=TOPIC, partitions=[0, 1])]
        broker.ask(DescribeLogDirsRequest(topics=sizes), version)
    for version in versions(ListGroupsRequest):
        broker.ask(ListGroupsRequest(states_filter=["Empty"] if version >= 4 else []), version)
    broker.ask(ShareGroupDescribeRequest(group_ids=["golden-1", "missing"], include_authorized_operations=True), 1)
    offsets = OffsetDeleteRequestTopic(name=TOPIC, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    broker.ask(OffsetDeleteRequest(group_id="golden-1", topics=[offsets]), 0)
    for version in versions(DeleteGroupsRequest):
        broker.ask(DeleteGroupsRequest(groups_names=[f"golden-join-{version}", "missing"]), version)


def producing(broker: Conversation, kafka: LocalKafka) -> None:
    """A batch that is appended and one with a record to blame, from a producer of each version; then transactions."""
    kafka.create_topic("produced")
    kafka.create_topic("compacted", config={"cleanup.policy": "compact"})
    names = [MetadataRequestTopic(name=name) for name in ("produced", "compacted")]
    found = broker.ask_and_forget(MetadataRequest(topics=names)).topics
    ids = {topic.name: topic.topic_id for topic in found if topic.name is not None}
    for version in versions(InitProducerIdRequest):
        if version <= _NEWEST_INIT_PRODUCER_ID:
            request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            broker.ask_until_ready(request, version)
    batch = memoryview(encode_batch([NewRecord(b"value", timestamp=int(time.time() * 1000))]))
    for version in versions(ProduceRequest):
        data = [PartitionProduceData(index=0, records=batch)]
        topics = [TopicProduceData(name=name, topic_id=topic_id, partition_data=data) for name, topic_id in ids.items()]
        broker.ask(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics), version)
    for version in versions(EndTxnRequest):
        _transaction(broker, f"golden-transaction-{version}", version)


def _transaction(broker: Conversation, name: str, version: int) -> None:
    """A transaction that has a partition and a group's offset, with each API in this version, or in its newest."""
    broker.coordinator_is_ready(name)
    init = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
    found = broker.ask_until_ready(init, _NEWEST_INIT_PRODUCER_ID)
    mine: dict[str, Any] = {
        "transactional_id": name,
        "producer_id": found.producer_id,
        "producer_epoch": found.producer_epoch,
    }
    topics = [AddPartitionsToTxnTopic(name="produced", partitions=[0])]
    old = {f"v3_and_below_{field}": value for field, value in mine.items()}
    broker.ask(
        AddPartitionsToTxnRequest(transactions=[AddPartitionsToTxnTransaction(topics=topics, **mine)])
        if version >= 4
        else AddPartitionsToTxnRequest(v3_and_below_topics=topics, **old),
        version,
    )
    broker.ask(AddOffsetsToTxnRequest(group_id="golden-1", **mine), min(version, AddOffsetsToTxnRequest.max_version))
    one = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="note")
    offsets = [TxnOffsetCommitRequestTopic(name="produced", partitions=[one])]
    broker.ask(TxnOffsetCommitRequest(group_id="golden-1", topics=offsets, **mine), version)
    broker.ask(EndTxnRequest(committed=True, **mine), version)


def authentication(address: str, lines: list[str]) -> None:
    """SASL PLAIN in each version, with a wrong password, and with an unknown mechanism."""
    right, wrong = b"\0alice\0password-of-a-test", b"\0alice\0wrong"
    for version, token in ((0, right), (1, right), (2, right), (2, wrong)):
        with Conversation(address, lines) as broker:
            broker.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            broker.ask(SaslAuthenticateRequest(auth_bytes=token), version)
    for version, mechanism in ((0, "PLAIN"), (1, "UNKNOWN")):
        with Conversation(address, lines) as broker:
            broker.ask(SaslHandshakeRequest(mechanism=mechanism), version)


def embedded_messages(lines: list[str]) -> dict[str, bytes]:
    """Keep what the Java client writes; return the newest version of each."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder, "PrintEmbedded.java")
        program.write_text(_PRINT_EMBEDDED)
        printed = run_tool(str(program)).splitlines()
    lines += printed
    return {name: bytes.fromhex(data) for name, _, data in map(str.split, printed)}


def main() -> None:
    lines: list[str] = []
    embedded = embedded_messages(lines)
    with LocalKafka(listeners={"SECURE": "SASL_PLAINTEXT"}, config=_SASL) as kafka:
        kafka.create_topic(TOPIC, partitions=2)
        produce(
            kafka.bootstrap,
            TOPIC,
            [Message(b"value", b"key", [("header", b"content"), ("empty", None)], partition=0)],
        )
        produce_in_transaction(kafka.bootstrap, TOPIC, [Message(b"aborted", partition=0)], commit=False)
        with Conversation(kafka.bootstrap, lines) as broker:
            topic_id = discovery(broker)
            positions(broker, topic_id)
            records(broker, topic_id)
            classic_group(broker, embedded)
            consumer_group(broker)
            producing(broker, kafka)
            administration(broker)
        authentication(kafka.bootstrap_of("SECURE"), lines)
    GOLDEN.write_text(_HEADER + "".join(f"{line}\n" for line in lines))
    print(f"{len(lines)} messages in {GOLDEN}")


if __name__ == "__main__":
    main()
