"""Handles Fetch: reads from the leader or a follower, waits for ``min_bytes``, obeys the limits and fetch sessions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ....error_codes import ErrorCode
from ....wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from ...log.fetch_sessions import NO_SESSION, PartitionKey, TopicKey, refused_session
from ...log.leader_epochs import UNDEFINED
from ...log.topics import Partition, Topic
from ...refusal import Refusal
from ...security.authorizer import Operation
from ..call import Call

READ_COMMITTED: Final = 1
_IDS_FROM: Final = 13  # the version that names topics by id
_FOLLOWERS_FROM: Final = 11  # the version in which a replica may answer (KIP-392)

Answers = list[tuple[PartitionKey, PartitionData]]


async def fetch(call: Call[FetchRequest]) -> FetchResponse:
    """Answer as soon as there are ``min_bytes``, an error or a hint, and at ``max_wait_ms`` in any case."""
    request = call.request
    try:
        session, goes_on = call.node.sessions.open(request, lambda topic: topic_key(topic, call.version))
    except Refusal as refusal:
        return refused_session(refusal.code)
    wanted = dict(session.partitions) if session else _wanted(request, call.version)
    forbidden = _forbidden(call, wanted)
    deadline = call.cluster.now() + request.max_wait_ms / 1000
    while True:
        answers = _read_all(call, wanted, forbidden)
        if not wanted or _is_enough(answers, request.min_bytes):
            break
        if not await _woken(call, wanted, deadline):
            answers = _read_all(call, wanted, forbidden)
            break
    if session:
        news = session.news(answers)
        answers = news if goes_on else answers
    return FetchResponse(
        session_id=session.session_id if session else NO_SESSION,
        responses=_by_topic(answers, call.version),
        node_endpoints=_endpoints(call, answers),
    )


def topic_key(topic: object, version: int) -> TopicKey:
    """Return how a Fetch of this version names the topic."""
    assert isinstance(topic, FetchTopic | ForgottenTopic)
    return topic.topic_id if version >= _IDS_FROM else topic.topic


def _wanted(request: FetchRequest, version: int) -> dict[PartitionKey, FetchPartition]:
    return {
        (topic_key(topic, version), partition.partition): partition
        for topic in request.topics
        for partition in topic.partitions
    }


def _forbidden(call: Call[FetchRequest], wanted: Iterable[PartitionKey]) -> set[TopicKey]:
    """Return the topics that the user may not read. A broker decides this once, when the request arrives."""
    names = {topic: topic if isinstance(topic, str) else call.cluster.topics.name_of(topic) for topic, _ in wanted}
    return {
        topic for topic, name in names.items() if name is not None and not call.allows(Operation.READ, "topic", name)
    }


def _is_enough(answers: Answers, min_bytes: int) -> bool:
    size = 0
    for _, data in answers:
        if data.error_code or data.diverging_epoch is not None or data.preferred_read_replica != -1:
            return True
        size += len(data.records or b"")
    return size >= min_bytes


async def _woken(call: Call[FetchRequest], wanted: Iterable[PartitionKey], deadline: float) -> bool:
    """Wait until one of the partitions changes; return False where the deadline comes first."""
    loop = asyncio.get_running_loop()
    if loop.time() >= deadline:
        return False
    woken: asyncio.Future[None] = loop.create_future()
    partitions = [_find(call, key)[1] for key in wanted]
    timer = loop.call_at(deadline, lambda: woken.done() or woken.cancel())
    for partition in partitions:
        partition.add_waiter(woken)
    try:
        await asyncio.wait([woken])
        return not woken.cancelled()
    finally:
        timer.cancel()
        for partition in partitions:
            partition.remove_waiter(woken)


def _find(call: Call[FetchRequest], key: PartitionKey) -> tuple[Topic, Partition]:
    """Return the topic and partition of a key. Raises Refusal."""
    topics = call.cluster.topics
    name, index = key
    topic = topics.of_id(name) if isinstance(name, UUID) else topics.named(name)
    return topic, topics.partition(topic.name, index)


def _read_all(
    call: Call[FetchRequest], wanted: dict[PartitionKey, FetchPartition], forbidden: set[TopicKey]
) -> Answers:
    answers: Answers = []
    room = min(call.request.max_bytes, call.cluster.settings.fetch_max_bytes)
    at_least_one = True
    for key, partition in wanted.items():
        if key[0] in forbidden:
            answers.append((key, _no_records(partition.partition, ErrorCode.TOPIC_AUTHORIZATION_FAILED)))
            continue
        data = _read(call, key, partition, room, at_least_one)
        size = len(data.records or b"")
        at_least_one = at_least_one and not size
        room = max(0, room - size)
        answers.append((key, data))
    return answers


def _read(
    call: Call[FetchRequest], key: PartitionKey, wanted: FetchPartition, room: int, at_least_one: bool
) -> PartitionData:
    partition = None
    try:
        _, partition = _find(call, key)
        return _read_partition(call, partition, wanted, room, at_least_one)
    except Refusal as refusal:
        data = _no_records(wanted.partition, refusal.code)
        stale = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        if partition is not None and refusal.code in stale and call.version >= 16:
            leader = -1 if partition.leader is None else partition.leader
            data.current_leader = LeaderIdAndEpoch(leader_id=leader, leader_epoch=partition.leader_epoch)
        return data


def _no_records(index: int, code: int = 0) -> PartitionData:
    empty = memoryview(b"")
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None, records=empty
    )


def _read_partition(
    call: Call[FetchRequest], partition: Partition, wanted: FetchPartition, room: int, at_least_one: bool
) -> PartitionData:
    _check_replica(call, partition, wanted.current_leader_epoch)
    log, offset = partition.log, wanted.fetch_offset
    data = _no_records(partition.index)
    data.high_watermark = log.end_offset
    data.last_stable_offset = log.last_stable_offset
    data.log_start_offset = log.start_offset
    is_in_log = log.start_offset <= offset <= log.end_offset
    replica = _closer_replica(call, partition) if is_in_log else None  # whose log has the same range
    if replica is not None:
        data.preferred_read_replica = replica
        return data
    diverging = _diverging(partition, wanted)
    if diverging is not None:
        data.diverging_epoch = diverging
        return data
    if not is_in_log:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    committed = call.request.isolation_level == READ_COMMITTED
    until = log.last_stable_offset if committed else log.end_offset
    records = log.read(offset, until, min(wanted.partition_max_bytes, room), at_least_one=at_least_one)
    data.records = memoryview(records)
    if committed:
        data.aborted_transactions = [
            AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
            for aborted in log.aborted_between(offset, log.offset_behind(records, offset))
        ]
    return data


def _check_replica(call: Call[FetchRequest], partition: Partition, epoch: int) -> None:
    """Raise Refusal unless this broker leads or, since KIP-392, is an in-sync replica, and the epoch is right."""
    may_follow = call.version >= _FOLLOWERS_FROM and call.node.node_id in partition.in_sync
    if partition.leader is not None and may_follow:
        partition.check_epoch(epoch)
    else:
        partition.check_leader(call.node.node_id, epoch)


def _closer_replica(call: Call[FetchRequest], partition: Partition) -> int | None:
    """Return the replica in the client's rack from which the client should fetch, if there is one and we lead."""
    rack = call.request.rack_id
    if not rack or partition.leader != call.node.node_id or call.node.rack == rack or call.version < _FOLLOWERS_FROM:
        return None
    nodes = call.cluster.nodes
    return next((id_ for id_ in partition.in_sync if nodes[id_].rack == rack and nodes[id_].alive), None)


def _diverging(partition: Partition, wanted: FetchPartition) -> EpochEndOffset | None:
    """Return where this log diverges from the client's fetched records, None if it does not (KIP-595)."""
    if wanted.last_fetched_epoch == UNDEFINED:
        return None
    log = partition.log
    end = log.epochs.end_of(wanted.last_fetched_epoch, log.end_offset)
    if end.epoch == UNDEFINED or wanted.fetch_offset < log.start_offset:
        raise Refusal(ErrorCode.OFFSET_OUT_OF_RANGE)
    if end.epoch < wanted.last_fetched_epoch or end.end_offset < wanted.fetch_offset:
        return EpochEndOffset(epoch=end.epoch, end_offset=end.end_offset)
    return None


def _by_topic(answers: Answers, version: int) -> list[FetchableTopicResponse]:
    topics: dict[TopicKey, FetchableTopicResponse] = {}
    for (key, _), data in answers:
        if key not in topics:
            naming = {"topic_id": key} if isinstance(key, UUID) else {"topic": key}
            topics[key] = FetchableTopicResponse(partitions=[], **naming)
        topics[key].partitions.append(data)
    return list(topics.values())


def _endpoints(call: Call[FetchRequest], answers: Answers) -> list[NodeEndpoint]:
    """Return the addresses of the new leaders that the answers name (KIP-951)."""
    if call.version < 16:
        return []
    leaders = {data.current_leader.leader_id for _, data in answers if data.current_leader is not None}
    nodes = (call.cluster.nodes[leader] for leader in sorted(leaders) if leader in call.cluster.nodes)
    return [
        NodeEndpoint(node_id=node.node_id, host=at.host, port=at.port, rack=node.rack)
        for node, at in ((node, call.endpoint_of(node)) for node in nodes)
    ]
