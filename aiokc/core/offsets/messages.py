"""Builds OffsetCommit and OffsetFetch requests and reads their responses: topics by name or id, one group or a list."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias, TypeVar
from uuid import UUID

from ...errors import BrokerError, MalformedResponse
from ...types import OffsetAndMetadata, TopicPartition, named
from ...wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from ...wire.primitives import NO_UUID
from ..by_topic import by_topic
from ..group.events import MemberToken

#: The versions from which both requests name topics by id only (KIP-848); up to the one before, by name only.
TOPIC_IDS: Final = 10
_REQUIRE_STABLE: Final = 7  # KIP-447: no offset that an open transaction is about to replace
_MANY_GROUPS: Final = 8  # KIP-709

T = TypeVar("T")
TopicIds: TypeAlias = Mapping[str, UUID]


def commit_request(
    group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], member: MemberToken | None
) -> OffsetCommitRequest:
    """Return an OffsetCommit that names each topic by its name and, for versions from TOPIC_IDS on, by the offsets' id.

    All offsets of a topic name must have the same topic id. Without ``member``, the group must have no members.
    """
    token = member or MemberToken()
    topics: dict[str, OffsetCommitRequestTopic] = {}
    for tp in sorted(offsets):
        name, number = tp
        offset = offsets[tp]
        topic = topics.get(name)
        if topic is None:
            topic_id = offset.topic_id or NO_UUID
            topic = topics[name] = OffsetCommitRequestTopic(name=name, topic_id=topic_id, partitions=[])
        topic.partitions.append(_commit_partition(number, offset))
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=token.generation_id,
        member_id=token.member_id,
        group_instance_id=token.group_instance_id,
        topics=list(topics.values()),
    )


def _commit_partition(number: int, offset: OffsetAndMetadata) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(
        partition_index=number,
        committed_offset=offset.offset,
        committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
        committed_metadata=offset.metadata,
    )


def commit_codes(
    response: OffsetCommitResponse, asked: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, int]:
    """Return the error code of each partition asked for. Raises MalformedResponse if one is missing."""
    names = {offset.topic_id: tp.topic for tp, offset in asked.items() if offset.topic_id is not None}
    codes = {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), partition.partition_index): partition.error_code
        for topic in response.topics
        for partition in topic.partitions
    }
    return _complete(codes, asked, "OffsetCommit")


@dataclass(frozen=True, slots=True)
class FetchedOffset:
    """The offset that a group has committed for one partition (None: none), or the error code why it is not known."""

    offset: OffsetAndMetadata | None
    error_code: int


#: An error, and the partitions that have it.
PartitionsError: TypeAlias = tuple[BrokerError, Collection[TopicPartition]]


@dataclass(frozen=True, slots=True)
class Committed:
    """Committed offsets (None: the partition has none), and the errors of the partitions that are not among them."""

    offsets: dict[TopicPartition, OffsetAndMetadata | None]
    errors: Sequence[PartitionsError] = ()


def fetch_request(
    group_id: str,
    partitions: Iterable[TopicPartition],
    topic_ids: TopicIds,
    version: int,
) -> OffsetFetchRequest:
    """Return an OffsetFetch that asks for stable offsets only, from version 7 on (KIP-447).

    It names no member: then a coordinator checks no epoch (KIP-848), and what it returns is what the group has stored.
    """
    wanted = by_topic(partitions).items()
    if version < _MANY_GROUPS:
        return OffsetFetchRequest(
            group_id=group_id,
            topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=numbers) for topic, numbers in wanted],
            require_stable=version >= _REQUIRE_STABLE,
        )
    topics = [
        OffsetFetchRequestTopics(name=topic, topic_id=topic_ids.get(topic, NO_UUID), partition_indexes=numbers)
        for topic, numbers in wanted
    ]
    return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=topics)], require_stable=True)


def fetch_code(response: OffsetFetchResponse) -> int:
    """Return the error code of the group as a whole."""
    return response.groups[0].error_code if response.groups else response.error_code


def fetched_offsets(
    response: OffsetFetchResponse, asked: Collection[TopicPartition], topic_ids: TopicIds
) -> dict[TopicPartition, FetchedOffset]:
    """Return what is known of each partition asked for. Raises MalformedResponse if one is missing.

    Each offset belongs to the topic id in ``topic_ids``, so that it is never taken for one of a recreated topic.
    """
    names = {topic_id: name for name, topic_id in topic_ids.items()}
    return _complete(dict(_fetched(response, names, topic_ids)), asked, "OffsetFetch")


def _fetched(
    response: OffsetFetchResponse, names: Mapping[UUID, str], topic_ids: TopicIds
) -> Iterator[tuple[TopicPartition, FetchedOffset]]:
    for old in response.topics:
        for p in old.partitions:
            offset = _offset(p.committed_offset, p.metadata, p.committed_leader_epoch, topic_ids.get(old.name))
            yield TopicPartition(old.name, p.partition_index), FetchedOffset(offset, p.error_code)
    for group in response.groups[:1]:
        for topic in group.topics:
            name = topic.name or names.get(topic.topic_id, "")
            for q in topic.partitions:
                offset = _offset(q.committed_offset, q.metadata, q.committed_leader_epoch, topic_ids.get(name))
                yield TopicPartition(name, q.partition_index), FetchedOffset(offset, q.error_code)


def _complete(
    found: Mapping[TopicPartition, T], asked: Collection[TopicPartition], api: str
) -> dict[TopicPartition, T]:
    missing = [tp for tp in asked if tp not in found]
    if missing:
        raise MalformedResponse(f"the answer to {api} says nothing about {named(missing)}")
    return {tp: found[tp] for tp in asked}


def _offset(offset: int, metadata: str | None, leader_epoch: int, topic_id: UUID | None) -> OffsetAndMetadata | None:
    if offset < 0:
        return None
    return OffsetAndMetadata(offset, metadata or "", leader_epoch if leader_epoch >= 0 else None, topic_id=topic_id)
