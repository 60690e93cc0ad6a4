"""Producers and their transactions: InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn."""

from __future__ import annotations

from typing import Final

from ..error_codes import ErrorCode
from .call import Call
from .messages.producing import InitProducerIdRequest, InitProducerIdResponse
from .messages.txn import (
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
)
from .refusal import Refusal
from .transaction_states import Place

#: The versions that know PRODUCER_FENCED (KIP-588); older ones hear INVALID_PRODUCER_EPOCH.
_INIT_FENCED_FROM: Final = 4
_FENCED_FROM: Final = 2


def _code(refusal: Refusal, version: int, fenced_from: int) -> ErrorCode:
    if refusal.code == ErrorCode.PRODUCER_FENCED and version < fenced_from:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return refusal.code


async def init_producer_id(call: Call[InitProducerIdRequest]) -> InitProducerIdResponse:
    request, cluster = call.request, call.cluster
    if request.transactional_id is None:
        return InitProducerIdResponse(error_code=0, producer_id=next(cluster.producer_ids), producer_epoch=0)
    try:
        if not request.transactional_id:
            raise Refusal(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        cluster.check_coordinator(request.transactional_id, call.node.node_id)
        if not 0 < request.transaction_timeout_ms <= cluster.settings.transaction_max_timeout_ms:
            raise Refusal(ErrorCode.INVALID_TRANSACTION_TIMEOUT)
        transaction = cluster.transactions.begin_producer(
            request.transactional_id,
            request.transaction_timeout_ms / 1000,
            request.producer_id,
            request.producer_epoch,
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
    """All partitions become part of the transaction, or none."""
    cluster = call.cluster
    places = [(topic.name, index) for topic in asked.topics for index in topic.partitions]
    try:
        cluster.check_coordinator(asked.transactional_id, call.node.node_id)
        transaction = cluster.transactions.of(asked.transactional_id, asked.producer_id, asked.producer_epoch)
    except Refusal as refusal:
        return _results(asked.topics, dict.fromkeys(places, _code(refusal, call.version, _FENCED_FROM)))
    codes = {place: _existence(call, place) for place in places}
    if any(codes.values()):
        attempted = {place: code or ErrorCode.OPERATION_NOT_ATTEMPTED for place, code in codes.items()}
        return _results(asked.topics, attempted)
    cluster.transactions.add(transaction, cluster.now(), partitions=places)
    cluster.timers_changed()
    return _results(asked.topics, codes)


def _existence(call: Call[AddPartitionsToTxnRequest], place: Place) -> ErrorCode:
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
        if not request.group_id:
            raise Refusal(ErrorCode.INVALID_GROUP_ID)
        cluster.check_coordinator(request.transactional_id, call.node.node_id)
        transaction = cluster.transactions.of(request.transactional_id, request.producer_id, request.producer_epoch)
    except Refusal as refusal:
        return AddOffsetsToTxnResponse(error_code=_code(refusal, call.version, _FENCED_FROM))
    cluster.transactions.add(transaction, cluster.now(), group=request.group_id)
    cluster.timers_changed()
    return AddOffsetsToTxnResponse(error_code=0)


async def end_txn(call: Call[EndTxnRequest]) -> EndTxnResponse:
    request, cluster = call.request, call.cluster
    try:
        cluster.check_coordinator(request.transactional_id, call.node.node_id)
        transaction = cluster.transactions.of(request.transactional_id, request.producer_id, request.producer_epoch)
        cluster.transactions.end(transaction, committed=request.committed)
    except Refusal as refusal:
        return EndTxnResponse(error_code=_code(refusal, call.version, _FENCED_FROM))
    cluster.timers_changed()
    return EndTxnResponse(error_code=0)
