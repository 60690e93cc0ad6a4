"""Handles InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn: what a producer asks."""

from __future__ import annotations

from typing import Any, Final

from ....error_codes import ErrorCode
from ....wire import Response
from ....wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from ....wire.messages.txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ...groups.committing import TXN_TOPIC_IDS_FROM
from ...log.transaction_states import Place
from ...refusal import Refusal
from ..call import Call
from .groups import ask_coordinator

#: The first versions that know PRODUCER_FENCED (KIP-588); older ones are answered INVALID_PRODUCER_EPOCH.
_INIT_FENCED_FROM: Final = 4
_FENCED_FROM: Final = 2
#: The versions of EndTxn and TxnOffsetCommit that came with KIP-890.
_RAISES_EPOCH_FROM: Final = 5
_ABORTABLE_FROM: Final = 4
_OFFSETS_BEGIN_FROM: Final = 5


def _code(refusal: Refusal, version: int, fenced_from: int) -> ErrorCode:
    if refusal.code == ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refusal.code


def _check_id(call: Call[Any], transactional_id: str) -> None:
    """Raise Refusal where the transactional id is empty, or another broker coordinates it."""
    if not transactional_id:
        raise Refusal(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    call.cluster.check_coordinator(transactional_id, call.node.node_id)


async def init_producer_id(call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request, cluster = call.request, call.cluster
    if request.transactional_id is None:
        return InitProducerIdResponse(error_code=0, producer_id=next(cluster.producer_ids), producer_epoch=0)
    try:
        if not request.transactional_id:
            raise Refusal(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        cluster.check_coordinator(request.transactional_id, call.node.node_id)
        if (request.producer_id < 0) != (request.producer_epoch < 0):
            raise Refusal(ErrorCode.INVALID_REQUEST, "a producer id and an epoch, or neither")
        if not 0 < request.transaction_timeout_ms <= cluster.settings.transaction_max_timeout_ms:
            raise Refusal(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = cluster.transactions.begin_producer(
            request.transactional_id,
            request.transaction_timeout_ms / 1000,
            request.producer_id,
            request.producer_epoch,
            now=cluster.now(),
        )
    except Refusal as refusal:
        code = _code(refusal, call.version, _INIT_FENCED_FROM)
        return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    finally:
        cluster.timers_changed()
    return InitProducerIdResponse(error_code=0, producer_id=transaction.producer_id, producer_epoch=transaction.epoch)


async def add_partitions_to_txn(call: Call[AddPartitionsToTxnRequest]) -> AddPartitionsToTxnResponse:
    request = call.request
    if call.version >= 4:
        return AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(transactional_id=one.transactional_id, topic_results=_add(call, one))
                for one in request.transactions
            ]
        )
    only = AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=_add(call, only))


def _add(
    call: Call[AddPartitionsToTxnRequest], asked: AddPartitionsToTxnTransaction
) -> list[AddPartitionsToTxnTopicResult]:
    """Add all partitions to the transaction, or none of them if one does not exist."""
    cluster = call.cluster
    places = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
    try:
        _check_id(call, asked.transactional_id)
        transaction = cluster.transactions.of(asked.transactional_id, asked.producer_id, asked.producer_epoch)
        transaction.check_complete()
    except Refusal as refusal:
        return _results(asked.topics, dict.fromkeys(places, _code(refusal, call.version, _FENCED_FROM)))
    codes = {place: _existence(call, place) for place in places}
    if any(codes.values()):
        attempted = {place: code or ErrorCode.OPERATION_NOT_ATTEMPTED for place, code in codes.items()}
        return _results(asked.topics, attempted)
    cluster.transactions.add(transaction, cluster.now(), partitions=places)
    cluster.timers_changed()
    return _results(asked.topics, codes)


def _existence(call: Call[Any], place: Place) -> ErrorCode:
    try:
        call.cluster.topics.partition(*place)
    except Refusal as refusal:
        return refusal.code
    return ErrorCode.NONE


def _results(
    topics: list[AddPartitionsToTxnTopic], codes: dict[Place, ErrorCode]
) -> list[AddPartitionsToTxnTopicResult]:
    return [
        AddPartitionsToTxnTopicResult(
            name=topic.name,
            results_by_partition=[
                AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=codes[topic.name, index])
                for index in topic.partitions
            ],
        )
        for topic in topics
    ]


async def add_offsets_to_txn(call: Call[AddOffsetsToTxnRequest]) -> AddOffsetsToTxnResponse:
    request, cluster = call.request, call.cluster
    try:
        _check_id(call, request.transactional_id)
        transaction = cluster.transactions.of(request.transactional_id, request.producer_id, request.producer_epoch)
        cluster.transactions.add(transaction, cluster.now(), group=request.group_id)
    except Refusal as refusal:
        return AddOffsetsToTxnResponse(error_code=_code(refusal, call.version, _FENCED_FROM))
    cluster.timers_changed()
    return AddOffsetsToTxnResponse(error_code=0)


async def end_txn(call: Call[EndTxnRequest]) -> EndTxnResponse:
    request, cluster = call.request, call.cluster
    try:
        _check_id(call, request.transactional_id)
        transaction = cluster.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            committed=request.committed,
            raises_epoch=call.version >= _RAISES_EPOCH_FROM,
            now=cluster.now(),
        )
    except Refusal as refusal:
        return EndTxnResponse(error_code=_code(refusal, call.version, _FENCED_FROM))
    cluster.timers_changed()
    if call.version < _RAISES_EPOCH_FROM:
        return EndTxnResponse(error_code=0)
    return EndTxnResponse(error_code=0, producer_id=transaction.producer_id, producer_epoch=transaction.epoch)


async def txn_offset_commit(call: Call[TxnOffsetCommitRequest]) -> Response:
    """Check that the group is part of the transaction (KIP-890); then the group's coordinator keeps the offsets."""
    request, cluster = call.request, call.cluster
    if not request.group_id or cluster.coordinator_of(request.group_id) != call.node.node_id:
        return await ask_coordinator(call)  # its answer has the right error
    begins = call.version >= _OFFSETS_BEGIN_FROM
    try:
        cluster.transactions.check_group(
            request.transactional_id,
            (request.producer_id, request.producer_epoch),
            request.group_id,
            cluster.now() if begins else None,
        )
    except Refusal as refusal:
        return _refused_offsets(call, _code_of_offsets(refusal, call.version))
    cluster.timers_changed()
    return await ask_coordinator(call)


def _code_of_offsets(refusal: Refusal, version: int) -> ErrorCode:
    is_abortable = refusal.code == ErrorCode.INVALID_TXN_STATE and version >= _ABORTABLE_FROM
    return ErrorCode.TRANSACTION_ABORTABLE if is_abortable else refusal.code


def _unknown(call: Call[TxnOffsetCommitRequest], topic: TxnOffsetCommitRequestTopic, index: int) -> ErrorCode:
    by_id = call.version >= TXN_TOPIC_IDS_FROM
    name = call.cluster.topics.name_of(topic.topic_id) if by_id else topic.name
    return ErrorCode.UNKNOWN_TOPIC_ID if name is None else _existence(call, (name, index))


def _refused_offsets(call: Call[TxnOffsetCommitRequest], code: ErrorCode) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[
            TxnOffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    TxnOffsetCommitResponsePartition(
                        partition_index=one.partition_index,
                        error_code=_unknown(call, topic, one.partition_index) or code,
                    )
                    for one in topic.partitions
                ],
            )
            for topic in call.request.topics
        ]
    )
