"""A broker's incremental fetch sessions (KIP-227): which partitions a client fetches, and the last answer for each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from copy import copy
from dataclasses import dataclass, field
from random import Random
from typing import Final, TypeAlias
from uuid import UUID

from ...error_codes import ErrorCode
from ...wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from ..refusal import Refusal

NO_SESSION: Final = 0
_FIRST_EPOCH: Final = 0
_FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 0x7FFF_FFFF

#: A topic as the request names it: by name up to version 12, by id from version 13 on.
TopicKey: TypeAlias = str | UUID
PartitionKey: TypeAlias = tuple[TopicKey, int]


@dataclass
class FetchSession:
    """One client's session. ``partitions`` are in the order of serving: one that got records moves to the end."""

    session_id: int
    next_epoch: int = 1
    partitions: dict[PartitionKey, FetchPartition] = field(default_factory=dict)
    told: dict[PartitionKey, tuple[int, int]] = field(default_factory=dict)  # high watermark, log start offset

    def news(self, answers: Iterable[tuple[PartitionKey, PartitionData]]) -> list[tuple[PartitionKey, PartitionData]]:
        """Return the answers to send: those with records, an error or a hint, or with an offset that has changed."""
        fresh = []
        for key, data in answers:
            offsets = (data.high_watermark, data.log_start_offset)
            changed = self.told.get(key) != offsets
            self.told[key] = offsets if not data.error_code else (-1, data.log_start_offset)
            is_special = data.error_code or data.diverging_epoch is not None or data.preferred_read_replica != -1
            if changed or data.records or is_special:
                fresh.append((key, data))
            if data.records and key in self.partitions:
                self.partitions[key] = self.partitions.pop(key)
        return fresh


class FetchSessions:
    """The sessions of one broker."""

    def __init__(self, random: Random, slots: int) -> None:
        self._random = random
        self._slots = slots
        self._sessions: dict[int, FetchSession] = {}

    def clear(self) -> None:
        """Forget all sessions, as a broker does that restarts, or needs the room."""
        self._sessions.clear()

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, topic_key: Callable[[object], TopicKey]) -> tuple[FetchSession | None, bool]:
        """Return the request's session, if any, and whether the request continues it (else it is new).

        Raises Refusal where the session id or the session epoch is wrong.
        """
        if request.session_epoch in (_FIRST_EPOCH, _FINAL_EPOCH):
            self._sessions.pop(request.session_id, None)
            if request.session_epoch == _FINAL_EPOCH or len(self._sessions) >= self._slots:
                return None, False
            session = FetchSession(self._unused_id())
            self._sessions[session.session_id] = session
            _update(session, request, topic_key)
            return session, False
        found = self._sessions.get(request.session_id)
        if found is None:
            raise Refusal(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if request.session_epoch != found.next_epoch:
            raise Refusal(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"the next one is {found.next_epoch}")
        _check_naming(found, request, topic_key)
        _update(found, request, topic_key)
        if not found.partitions:
            del self._sessions[found.session_id]
            return None, False
        found.next_epoch = found.next_epoch % _MAX_EPOCH + 1
        return found, True

    def in_full(self, request: FetchRequest, topic_key: Callable[[object], TopicKey]) -> FetchRequest:
        """Return the request as it reads without a session: it names also those partitions that its session has."""
        found = self._sessions.get(request.session_id)
        if found is None or request.session_epoch in (_FIRST_EPOCH, _FINAL_EPOCH):
            return request
        whole = FetchSession(found.session_id, partitions=dict(found.partitions))
        _update(whole, request, topic_key)
        topics: dict[TopicKey, FetchTopic] = {}
        for (key, _), partition in whole.partitions.items():
            named = {"topic_id": key} if isinstance(key, UUID) else {"topic": key}
            topics.setdefault(key, FetchTopic(**named, partitions=[])).partitions.append(partition)
        in_full = copy(request)
        in_full.topics, in_full.forgotten_topics_data = list(topics.values()), []
        return in_full

    def _unused_id(self) -> int:
        while (session_id := self._random.randint(1, _MAX_EPOCH)) in self._sessions:
            pass
        return session_id


def _check_naming(session: FetchSession, request: FetchRequest, topic_key: Callable[[object], TopicKey]) -> None:
    """Raise Refusal where a session would name some topics by name and others by id."""
    named = {type(topic_key(topic)) for topic in request.topics}
    if session.partitions and named - {type(key) for key, _ in session.partitions}:
        raise Refusal(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)


def _update(session: FetchSession, request: FetchRequest, topic_key: Callable[[object], TopicKey]) -> None:
    for topic in request.topics:
        for partition in topic.partitions:
            session.partitions[topic_key(topic), partition.partition] = partition
    for forgotten in request.forgotten_topics_data:
        for index in forgotten.partitions:
            session.partitions.pop((topic_key(forgotten), index), None)
            session.told.pop((topic_key(forgotten), index), None)


def refused_session(code: ErrorCode) -> FetchResponse:
    """Return the answer to a fetch whose session is refused."""
    return FetchResponse(error_code=code, session_id=NO_SESSION, responses=[])
