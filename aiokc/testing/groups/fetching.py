"""The coordinator's answer to OffsetFetch: the committed offsets of one group, or of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from uuid import UUID

from ...error_codes import ErrorCode
from ...wire.messages.offsets import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ...wire.primitives import NO_UUID
from ..refusal import Refusal
from .consumer.group import ConsumerGroup
from .loaded_groups import GroupCall, LoadedGroups
from .offsets_store import CommittedOffset, GroupOffsets
from .topic_lookup import TopicLookup

_CODE_OF_ALL_FROM: Final = 2
_MANY_GROUPS_FROM: Final = 8  # KIP-709
_TOPIC_IDS_FROM: Final = 10  # KIP-848

_NOTHING: Final = CommittedOffset(-1, -1, "", -1)


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The requested partitions of one topic; ``name`` is None where no topic has the id."""

    name: str | None
    topic_id: UUID
    indexes: list[int]


@dataclass(frozen=True, slots=True)
class _Found:
    index: int
    committed: CommittedOffset
    code: ErrorCode


class Fetching:
    """Answers OffsetFetch."""

    def __init__(self, groups: LoadedGroups, offsets: GroupOffsets, topics: TopicLookup) -> None:
        self._groups = groups
        self._offsets = offsets
        self._topics = topics

    def fetch(self, call: GroupCall[OffsetFetchRequest]) -> None:
        if call.version < _MANY_GROUPS_FROM:
            call.reply(self._fetch_one(call))
            return
        stable = call.request.require_stable
        call.reply(
            OffsetFetchResponse(groups=[self._fetch_group(one, call.version, stable) for one in call.request.groups])
        )

    def _fetch_one(self, call: GroupCall[OffsetFetchRequest]) -> OffsetFetchResponse:
        request, group_id = call.request, call.request.group_id
        wanted = (
            self._all_of(group_id)
            if request.topics is None
            else [_Wanted(topic.name, NO_UUID, list(topic.partition_indexes)) for topic in request.topics]
        )
        code = self._availability(group_id)
        if code and call.version >= _CODE_OF_ALL_FROM:
            return OffsetFetchResponse(error_code=code)
        topics = [
            OffsetFetchResponseTopic(
                name=one.name or "",
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=found.index,
                        committed_offset=found.committed.offset,
                        committed_leader_epoch=found.committed.leader_epoch,
                        metadata=found.committed.metadata,
                        error_code=code or found.code,
                    )
                    for found in self._find(group_id, one, request.require_stable)
                ],
            )
            for one in wanted
        ]
        return OffsetFetchResponse(topics=topics)

    def _fetch_group(self, request: OffsetFetchRequestGroup, version: int, stable: bool) -> OffsetFetchResponseGroup:
        group_id = request.group_id
        try:
            group = self._groups.find(group_id)
            if isinstance(group, ConsumerGroup):
                group.check_fetch(request.member_id, request.member_epoch)
        except Refusal as refusal:
            return OffsetFetchResponseGroup(group_id=group_id, error_code=refusal.code)
        by_id = version >= _TOPIC_IDS_FROM
        wanted = (
            self._all_of(group_id)
            if request.topics is None
            else [
                _Wanted(
                    self._topics.name_of(one.topic_id) if by_id else one.name, one.topic_id, list(one.partition_indexes)
                )
                for one in request.topics
            ]
        )
        topics = [
            OffsetFetchResponseTopics(
                name=one.name or "",
                topic_id=one.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=found.index,
                        committed_offset=found.committed.offset,
                        committed_leader_epoch=found.committed.leader_epoch,
                        metadata=found.committed.metadata,
                        error_code=found.code,
                    )
                    for found in self._find(group_id, one, stable)
                ],
            )
            for one in wanted
        ]
        return OffsetFetchResponseGroup(group_id=group_id, topics=topics)

    def _availability(self, group_id: str) -> ErrorCode:
        try:
            self._groups.check(group_id)
        except Refusal as refusal:
            return refusal.code
        return ErrorCode.NONE

    def _all_of(self, group_id: str) -> list[_Wanted]:
        indexes: dict[str, list[int]] = {}
        for name, index in self._offsets.of(group_id):
            indexes.setdefault(name, []).append(index)
        return [_Wanted(name, self._topics.id_of(name), found) for name, found in indexes.items()]

    def _find(self, group_id: str, wanted: _Wanted, require_stable: bool) -> list[_Found]:
        if wanted.name is None:
            return [_Found(index, _NOTHING, ErrorCode.UNKNOWN_TOPIC_ID) for index in wanted.indexes]
        committed = self._offsets.of(group_id)
        found = []
        for index in wanted.indexes:
            place = (wanted.name, index)
            if require_stable and self._offsets.is_unstable(group_id, place):
                found.append(_Found(index, _NOTHING, ErrorCode.UNSTABLE_OFFSET_COMMIT))
            else:
                found.append(_Found(index, committed.get(place, _NOTHING), ErrorCode.NONE))
        return found
