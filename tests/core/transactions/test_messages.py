"""What the control requests of a transaction look like on the wire, and what their answers are read as."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiokc.core.produce.identity import NOBODY, ProducerIdentity
from aiokc.core.transactions.events import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    ControlRequest,
    EndTxn,
    InitProducerId,
    TxnOffsetCommit,
)
from aiokc.core.transactions.messages import answer, wording
from aiokc.core.transactions.verdicts import Verdict, verdict
from aiokc.core.versions import VersionRange
from aiokc.error_codes import ErrorCode
from aiokc.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from aiokc.wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from aiokc.wire.messages.txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

from .one_producer import OFFSETS, T0, T1, U0

ME = ProducerIdentity(7, 3)
GROUP = GroupMetadata("g", 5, "m", "i")


def versions(sent: ControlRequest) -> VersionRange:
    return wording(sent, "orders", 60_000).versions


def test_the_versions_are_one_set_for_a_whole_transaction() -> None:
    assert versions(TxnOffsetCommit(ME, GROUP, OFFSETS, False)) == (3, 4)
    assert versions(TxnOffsetCommit(ME, GROUP, OFFSETS, True)) == (5, 5)
    assert versions(TxnOffsetCommit(ME, GroupMetadata("g"), OFFSETS, True)) == (5, 5)
    assert versions(EndTxn(ME, True, False)) == (0, 4)
    assert versions(EndTxn(ME, True, True)) == (5, 5)
    assert versions(AddPartitionsToTxn(ME, (T0,))) == (0, 3)
    assert versions(InitProducerId(NOBODY)) == (0, 5)
    assert versions(InitProducerId(ME)) == (3, 5)


def test_each_request_names_the_producer() -> None:
    init = wording(InitProducerId(ME), "orders", 60_000).request
    assert init == InitProducerIdRequest(
        transactional_id="orders", transaction_timeout_ms=60_000, producer_id=7, producer_epoch=3
    )
    add = wording(AddPartitionsToTxn(ME, (T1, U0, T0)), "orders", 1).request
    assert isinstance(add, AddPartitionsToTxnRequest)
    assert add.v3_and_below_transactional_id == "orders"
    assert (add.v3_and_below_producer_id, add.v3_and_below_producer_epoch) == ME
    assert {topic.name: sorted(topic.partitions) for topic in add.v3_and_below_topics} == {"t": [0, 1], "u": [0]}
    assert wording(AddOffsetsToTxn(ME, "g"), "orders", 1).request == AddOffsetsToTxnRequest(
        transactional_id="orders", producer_id=7, producer_epoch=3, group_id="g"
    )
    assert wording(EndTxn(ME, False, True), "orders", 1).request == EndTxnRequest(
        transactional_id="orders", producer_id=7, producer_epoch=3, committed=False
    )


def test_a_coordinator_that_takes_no_identity_is_asked_as_by_a_new_producer() -> None:
    """Before Kafka 2.5 (KIP-360)."""
    assert wording(InitProducerId(ME), "orders", 1).older == wording(InitProducerId(NOBODY), "orders", 1).request
    for sent in (InitProducerId(NOBODY), EndTxn(ME, True, True), TxnOffsetCommit(ME, GROUP, OFFSETS, False)):
        assert wording(sent, "orders", 1).older is None


@pytest.mark.parametrize("group", [GroupMetadata("g", 5), GroupMetadata("g", -1, "m"), GroupMetadata("g", -1, "", "i")])
def test_only_offsets_that_name_no_member_go_to_a_coordinator_that_takes_none(group: GroupMetadata) -> None:
    """Before Kafka 2.5 (KIP-447). Without the member, the offsets of a zombie would be taken."""
    assert versions(TxnOffsetCommit(ME, GroupMetadata("g"), OFFSETS, False)) == (0, 4)
    assert versions(TxnOffsetCommit(ME, group, OFFSETS, False)) == (3, 4)


def test_offsets_name_the_member_by_which_the_group_knows_a_zombie() -> None:
    offsets = {T0: OffsetAndMetadata(9, "note", 4), U0: OffsetAndMetadata(1)}
    commit = wording(TxnOffsetCommit(ME, GROUP, offsets, True), "orders", 1).request
    assert isinstance(commit, TxnOffsetCommitRequest)
    assert (commit.group_id, commit.generation_id_or_member_epoch) == ("g", 5)
    assert (commit.member_id, commit.group_instance_id) == ("m", "i")
    assert (commit.transactional_id, commit.producer_id, commit.producer_epoch) == ("orders", 7, 3)
    told = {
        (topic.name, one.partition_index): (one.committed_offset, one.committed_metadata, one.committed_leader_epoch)
        for topic in commit.topics
        for one in topic.partitions
    }
    assert told == {("t", 0): (9, "note", 4), ("u", 0): (1, "", -1)}


def test_answers_that_renew_the_identity() -> None:
    init = answer(InitProducerId(NOBODY), InitProducerIdResponse(error_code=0, producer_id=7, producer_epoch=4), 2)
    assert (init.code, init.identity, init.transaction_version) == (0, ProducerIdentity(7, 4), 2)
    end = EndTxn(ME, True, True)
    assert answer(end, EndTxnResponse(error_code=0, producer_id=8, producer_epoch=0), 2).identity == (8, 0)
    assert answer(end, EndTxnResponse(error_code=0), 2).identity is None
    assert answer(AddOffsetsToTxn(ME, "g"), AddOffsetsToTxnResponse(error_code=30), 1).code == 30


def test_of_many_partitions_the_worst_code_counts() -> None:
    sent = AddPartitionsToTxn(ME, (T0, T1))

    def of(*codes: int) -> tuple[int, str]:
        results = [
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index, code in enumerate(codes)
        ]
        topic = AddPartitionsToTxnTopicResult(name="t", results_by_partition=results)
        told = answer(sent, AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[topic]), 1)
        return told.code, told.what

    not_attempted, unknown = ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    denied, fenced = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.PRODUCER_FENCED
    assert of(0, 0) == (0, "")
    assert of(not_attempted, unknown) == (unknown, "t-1")
    assert of(unknown, denied, not_attempted) == (denied, "t-1")
    assert of(denied, fenced) == (fenced, "t-1")


def test_offsets_are_stored_only_if_those_of_all_partitions_are() -> None:
    topic = TxnOffsetCommitResponseTopic(
        name="t",
        partitions=[
            TxnOffsetCommitResponsePartition(partition_index=0, error_code=0),
            TxnOffsetCommitResponsePartition(partition_index=1, error_code=ErrorCode.NOT_COORDINATOR),
        ],
    )
    told = answer(TxnOffsetCommit(ME, GROUP, OFFSETS, True), TxnOffsetCommitResponse(topics=[topic]), 2)
    assert (told.code, told.what) == (ErrorCode.NOT_COORDINATOR, "t-1")


def test_offsets_name_topics_by_id_where_each_has_one() -> None:
    """KIP-1319. An offset that the application has made up may have none, and a name stands for one topic only."""
    mine, other = UUID(int=1), UUID(int=2)

    def sent(*offsets: UUID | None, uses_v2: bool = True) -> TxnOffsetCommit:
        given = {
            tp: OffsetAndMetadata(1, topic_id=topic_id) for tp, topic_id in zip((T0, T1, U0), offsets, strict=False)
        }
        return TxnOffsetCommit(ME, GROUP, given, uses_v2)

    assert versions(sent(mine, mine, other)) == (5, 6)
    assert versions(sent(mine, mine, None)) == versions(sent(None, None)) == versions(sent(mine, other)) == (5, 5)
    assert versions(sent(mine, mine, uses_v2=False)) == (3, 4)
    commit = sent(mine, mine, other)
    request = wording(commit, "orders", 1).request
    assert isinstance(request, TxnOffsetCommitRequest)
    assert [(topic.name, topic.topic_id, len(topic.partitions)) for topic in request.topics] == [
        ("t", mine, 2),
        ("u", other, 1),
    ]
    topics = [
        TxnOffsetCommitResponseTopic(
            topic_id=topic.topic_id,
            partitions=[
                TxnOffsetCommitResponsePartition(
                    partition_index=one.partition_index,
                    error_code=ErrorCode.UNKNOWN_TOPIC_ID if topic.topic_id == other else 0,
                )
                for one in topic.partitions
            ],
        )
        for topic in request.topics
    ]
    told = answer(commit, TxnOffsetCommitResponse(topics=topics), 2)
    assert (told.code, told.what) == (ErrorCode.UNKNOWN_TOPIC_ID, "u-0")


@pytest.mark.parametrize("codes", [[0, ErrorCode.ILLEGAL_GENERATION], [ErrorCode.ILLEGAL_GENERATION, 0]])
def test_of_two_answers_for_a_partition_the_worse_one_counts(codes: list[int]) -> None:
    partitions = [TxnOffsetCommitResponsePartition(partition_index=0, error_code=code) for code in codes]
    response = TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name="t", partitions=partitions)])
    told = answer(TxnOffsetCommit(ME, GROUP, {T0: OffsetAndMetadata(1)}, True), response, 2)
    assert (told.code, told.what) == (ErrorCode.ILLEGAL_GENERATION, "t-0")


@pytest.mark.parametrize("code", [0, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.PRODUCER_FENCED])
@pytest.mark.parametrize("partitions", [[], [0]])
def test_a_partition_that_an_answer_leaves_out_is_asked_for_again(partitions: list[int], code: int) -> None:
    """Only what was said to be part of the transaction is. What was refused of the others, says more."""
    add = AddPartitionsToTxnTopicResult(
        name="t",
        results_by_partition=[
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code) for index in partitions
        ],
    )
    store = TxnOffsetCommitResponseTopic(
        name="t",
        partitions=[TxnOffsetCommitResponsePartition(partition_index=index, error_code=code) for index in partitions],
    )
    offsets = dict.fromkeys((T0, T1), OffsetAndMetadata(1))
    for told in (
        answer(AddPartitionsToTxn(ME, (T0, T1)), AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[add]), 1),
        answer(TxnOffsetCommit(ME, GROUP, offsets, True), TxnOffsetCommitResponse(topics=[store]), 2),
    ):
        if partitions and code:
            assert (told.code, told.what) == (code, "t-0")
        else:
            assert told.code == ErrorCode.NETWORK_EXCEPTION
            assert "leaves out" in told.what
            assert verdict(told.sent, told.code) is Verdict.RETRY


def test_of_an_answer_without_errors_no_partition_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand names take as long as the rest of the answer."""
    topic = TxnOffsetCommitResponseTopic(
        name="t", partitions=[TxnOffsetCommitResponsePartition(partition_index=0, error_code=0)]
    )
    monkeypatch.setattr(TopicPartition, "__str__", lambda _: pytest.fail("a name that nobody reads"))
    sent = TxnOffsetCommit(ME, GROUP, {T0: OffsetAndMetadata(1)}, True)
    assert answer(sent, TxnOffsetCommitResponse(topics=[topic]), 2).code == 0
