"""Produce requests from batches, and the parts of their responses by batch (KIP-98, KIP-467, KIP-951, KIP-516)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from ...error_codes import ErrorCode
from ...types import Broker, TopicPartition
from ...wire.lone_batch import LoneBatch
from ...wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ...wire.primitives import NO_UUID
from ..cluster.snapshot import NewLeader
from ..one_line import one_line
from .batch import ProducerBatch
from .settling import PartitionAnswer

#: The first version that names topics by their ids (KIP-516).
IDS_FROM: Final = 13


class Asked(NamedTuple):
    """One Produce request: its batches, and the ids of their topics where it names topics by id."""

    batches: Sequence[ProducerBatch]
    topic_ids: Mapping[str, UUID]
    version: int


class Answered(NamedTuple):
    """A response: what it says of each batch, and the leaders that it names for those that have moved (KIP-951)."""

    answers: list[tuple[ProducerBatch, PartitionAnswer]]
    leaders: dict[TopicPartition, NewLeader]
    brokers: dict[int, Broker]


def _frame(batch: ProducerBatch) -> memoryview:
    return memoryview(batch.frame())


def _nothing(_batch: ProducerBatch) -> memoryview:
    return memoryview(b"")


def lone_batch(asked: Asked, *, acks: int, timeout_ms: int, transactional_id: str | None) -> LoneBatch:
    """Return what the requests are made of that have one batch of this partition, and nothing else."""
    request = produce_request(
        asked, acks=acks, timeout_ms=timeout_ms, transactional_id=transactional_id, records=_nothing
    )
    return LoneBatch(request, asked.version)


def produce_request(
    asked: Asked,
    *,
    acks: int,
    timeout_ms: int,
    transactional_id: str | None,
    records: Callable[[ProducerBatch], memoryview] = _frame,
) -> ProduceRequest:
    """Return the request for these batches, of which each partition has one."""
    topics: dict[str, list[PartitionProduceData]] = {}
    for batch in asked.batches:
        data = PartitionProduceData(index=batch.tp.partition, records=records(batch))
        topics.setdefault(batch.tp.topic, []).append(data)
    by_id = asked.version >= IDS_FROM
    return ProduceRequest(
        transactional_id=transactional_id,
        acks=acks,
        timeout_ms=timeout_ms,
        topic_data=[
            TopicProduceData(topic_id=asked.topic_ids[name], partition_data=partitions)
            if by_id
            else TopicProduceData(name=name, partition_data=partitions)
            for name, partitions in topics.items()
        ],
    )


def read_response(asked: Asked, response: ProduceResponse) -> Answered:
    """Return what a response says of each batch of its request.

    A batch that it leaves out counts as not answered: the broker has to name each.
    """
    names = {topic_id: name for name, topic_id in asked.topic_ids.items()}
    found: dict[tuple[str, int], PartitionProduceResponse] = {}
    for topic in response.responses:
        name = topic.name if topic.topic_id == NO_UUID else names.get(topic.topic_id, "")
        for partition in topic.partition_responses:
            found[name, partition.index] = partition
    leaders: dict[TopicPartition, NewLeader] = {}
    answers: list[tuple[ProducerBatch, PartitionAnswer]] = []
    for batch in asked.batches:
        one = found.get(batch.tp)
        if one is None:
            missing = "the response does not name the partition"
            answers.append((batch, PartitionAnswer(ErrorCode.NETWORK_EXCEPTION, text=missing)))
        elif not one.error_code:
            answers.append((batch, PartitionAnswer(ErrorCode.NONE, one.base_offset, one.log_append_time_ms)))
        else:
            answers.append((batch, _refusal(one)))
            hint = one.current_leader
            if hint is not None and hint.leader_id >= 0:
                leaders[batch.tp] = NewLeader(hint.leader_id, hint.leader_epoch, asked.topic_ids.get(batch.tp.topic))
    brokers = {node.node_id: Broker(node.node_id, node.host, node.port, node.rack) for node in response.node_endpoints}
    return Answered(answers, leaders, brokers)


def _refusal(one: PartitionProduceResponse) -> PartitionAnswer:
    return PartitionAnswer(
        one.error_code,
        one.base_offset,
        one.log_append_time_ms,
        one.log_start_offset,
        one_line(one.error_message),
        {error.batch_index: one_line(error.batch_index_error_message) for error in one.record_errors},
    )
