"""The coordinator's answers to OffsetCommit, TxnOffsetCommit and OffsetDelete: which member may change offsets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final
from uuid import UUID

from ...error_codes import ErrorCode
from ...wire.messages.group_admin import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ...wire.messages.offsets import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ...wire.messages.txn import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ..refusal import Refusal
from .classic.group import CONSUMER, ClassicGroup, GroupState
from .consumer.group import ConsumerGroup
from .loaded_groups import Group, GroupCall, LoadedGroups
from .offsets_store import GroupOffsets, Place
from .settings import ReleaseRules
from .topic_lookup import TopicLookup

_TOPIC_IDS_FROM: Final = 10  # KIP-848
_GROUP_ID_NOT_FOUND_FROM: Final = 9
_STALE_FROM: Final = 6  # KIP-1319: TxnOffsetCommit tells a stale epoch,
TXN_TOPIC_IDS_FROM: Final = 6  # and names topics by id


class Committing:
    """Answers OffsetCommit, TxnOffsetCommit and OffsetDelete."""

    def __init__(self, groups: LoadedGroups, offsets: GroupOffsets, topics: TopicLookup, rules: ReleaseRules) -> None:
        self._groups = groups
        self._rules = rules
        self._offsets = offsets
        self._topics = topics

    # OffsetCommit

    def commit(self, call: GroupCall[OffsetCommitRequest]) -> None:
        request = call.request
        partitions = {}
        codes: dict[tuple[str, UUID, int], ErrorCode] = {}
        for topic in request.topics:
            name = self._topics.name_of(topic.topic_id) if call.version >= _TOPIC_IDS_FROM else topic.name
            for one in topic.partitions:
                key = (topic.name, topic.topic_id, one.partition_index)
                codes[key] = self._existence(name, one.partition_index)
                if name is not None and codes[key] is ErrorCode.NONE:
                    partitions[key] = ((name, one.partition_index), one)
        if partitions:
            try:
                self._check_commit(call, [place for place, _ in partitions.values()])
                for key, (place, one) in partitions.items():
                    codes[key] = self._store(request.group_id, place, one)
            except Refusal as refusal:
                codes |= dict.fromkeys(partitions, refusal.code)
        call.reply(
            OffsetCommitResponse(
                topics=[
                    OffsetCommitResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            OffsetCommitResponsePartition(
                                partition_index=one.partition_index,
                                error_code=codes[topic.name, topic.topic_id, one.partition_index],
                            )
                            for one in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        )

    def _existence(self, name: str | None, index: int) -> ErrorCode:
        if name is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        known = self._topics.has_partition(name, index)
        return ErrorCode.NONE if known else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _check_commit(self, call: GroupCall[OffsetCommitRequest], places: Iterable[Place]) -> None:
        """Raise Refusal where the member may not commit. In a classic group a commit renews the session."""
        request = call.request
        generation = request.generation_id_or_member_epoch
        not_found = ErrorCode.GROUP_ID_NOT_FOUND
        if call.version < _GROUP_ID_NOT_FOUND_FROM:
            not_found = ErrorCode.ILLEGAL_GENERATION
        group = self._group(request.group_id, generation, not_found)
        if isinstance(group, ConsumerGroup):
            partitions = [(self._topics.id_of(name), index) for name, index in places]
            group.check_commit(request.member_id, generation, partitions, version=call.version, rules=self._rules)
            return
        _check_member(group, request.member_id, request.group_instance_id, generation, is_transactional=False)
        member = group.members.get(request.member_id)
        if member is not None and group.state in (GroupState.STABLE, GroupState.PREPARING_REBALANCE):
            self._groups.rebalances.renew_session(group, member)

    def _group(self, group_id: str, generation: int, not_found: ErrorCode) -> Group:
        """Return the group. A commit without a generation creates the group; with one, Refusal if there is no group."""
        if generation < 0:
            return self._groups.create(group_id)
        group = self._groups.find(group_id)
        if group is None:
            raise Refusal(not_found, f"there is no group {group_id!r}")
        return group

    def _store(
        self,
        group_id: str,
        place: Place,
        one: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
        producer_id: int | None = None,
    ) -> ErrorCode:
        if _java_length(one.committed_metadata or "") > self._groups.settings.offset_metadata_max_bytes:
            return ErrorCode.OFFSET_METADATA_TOO_LARGE
        epoch, metadata = one.committed_leader_epoch, one.committed_metadata
        self._offsets.commit(group_id, place, one.committed_offset, epoch, metadata, producer_id=producer_id)
        return ErrorCode.NONE

    # TxnOffsetCommit

    def commit_transactional(self, call: GroupCall[TxnOffsetCommitRequest]) -> None:
        """Keep offsets pending until the transaction ends: the transaction coordinator calls ``end_transaction``."""
        request = call.request
        partitions = {}
        codes: dict[tuple[str, UUID, int], ErrorCode] = {}
        for topic in request.topics:
            name = self._topics.name_of(topic.topic_id) if call.version >= TXN_TOPIC_IDS_FROM else topic.name
            for one in topic.partitions:
                key = (topic.name, topic.topic_id, one.partition_index)
                codes[key] = self._existence(name, one.partition_index)
                partitions[key] = ((name or "", one.partition_index), one)
        try:
            self._check_transactional(request, call.version, [place for place, _ in partitions.values()])
            for key, (place, one) in partitions.items():
                codes[key] = codes[key] or self._store(request.group_id, place, one, request.producer_id)
        except Refusal as refusal:
            codes = {key: code or refusal.code for key, code in codes.items()}
        call.reply(
            TxnOffsetCommitResponse(
                topics=[
                    TxnOffsetCommitResponseTopic(
                        name=topic.name,
                        topic_id=topic.topic_id,
                        partitions=[
                            TxnOffsetCommitResponsePartition(
                                partition_index=one.partition_index,
                                error_code=codes[topic.name, topic.topic_id, one.partition_index],
                            )
                            for one in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )
        )

    def _check_transactional(self, request: TxnOffsetCommitRequest, version: int, places: list[Place]) -> None:
        if not request.group_id:
            raise Refusal(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        group = self._group(request.group_id, request.generation_id_or_member_epoch, ErrorCode.ILLEGAL_GENERATION)
        instance_id, generation = request.group_instance_id, request.generation_id_or_member_epoch
        if isinstance(group, ClassicGroup):
            _check_member(group, request.member_id, instance_id, generation, is_transactional=True)
            return
        partitions = [(self._topics.id_of(name), index) for name, index in places]
        try:
            group.check_commit(
                request.member_id, generation, partitions, version=version, rules=self._rules, is_transactional=True
            )
        except Refusal as refusal:
            if refusal.code is ErrorCode.STALE_MEMBER_EPOCH and version < _STALE_FROM:
                raise Refusal(ErrorCode.ILLEGAL_GENERATION, refusal.why or "") from refusal
            raise

    # OffsetDelete

    def delete(self, call: GroupCall[OffsetDeleteRequest]) -> None:
        """Delete offsets of topics to which no member is subscribed (KIP-496)."""
        request = call.request
        try:
            group = self._groups.find(request.group_id)
            if group is None:
                raise Refusal(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {request.group_id!r}")
            if not group.is_empty and group.protocol_type != CONSUMER:
                raise Refusal(ErrorCode.NON_EMPTY_GROUP)
        except Refusal as refusal:
            call.reply(OffsetDeleteResponse(error_code=refusal.code, topics=[]))
            return
        call.reply(
            OffsetDeleteResponse(
                error_code=0,
                topics=[
                    OffsetDeleteResponseTopic(
                        name=topic.name,
                        partitions=self._delete(group, topic.name, [one.partition_index for one in topic.partitions]),
                    )
                    for topic in request.topics
                ],
            )
        )

    def _delete(self, group: Group, topic: str, indexes: Iterable[int]) -> list[OffsetDeleteResponsePartition]:
        answers = []
        for index in indexes:
            code = self._existence(topic, index)
            if code is ErrorCode.NONE and group.is_subscribed_to(topic):
                code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            if code is ErrorCode.NONE:
                self._offsets.forget(group.group_id, (topic, index))
            answers.append(OffsetDeleteResponsePartition(partition_index=index, error_code=code))
        return answers


def _java_length(text: str) -> int:
    """Return how long Java finds the text, and so the broker, whatever "max.bytes" says: its chars are of UTF-16."""
    return len(text.encode("utf-16-le")) // 2


def _check_member(
    group: ClassicGroup, member_id: str, group_instance_id: str | None, generation: int, *, is_transactional: bool
) -> None:
    """Raise Refusal where this member may not commit. An empty group accepts any commit without a generation."""
    if generation < 0 and group.state is GroupState.EMPTY:
        return
    if generation >= 0 or member_id or group_instance_id is not None:
        group.check_member(member_id, group_instance_id)
        if generation != group.generation:
            raise Refusal(ErrorCode.ILLEGAL_GENERATION, f"{generation}, the group's is {group.generation}")
    elif not is_transactional:
        raise Refusal(ErrorCode.UNKNOWN_MEMBER_ID, "the group has members, and the request names none")
    if group.state is GroupState.COMPLETING_REBALANCE and not is_transactional:
        raise Refusal(ErrorCode.REBALANCE_IN_PROGRESS)
