"""Incremental fetch sessions (KIP-227): what a broker was asked for, and what the next Fetch has to change about it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple, TypeAlias
from uuid import UUID

from ...config import ClientConfig, isolation_code
from ...error_codes import ErrorCode
from ...native import untrack
from ...types import TopicPartition
from ...wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
)

#: No session. In a request: the client has none. In a response: the broker gave none.
NO_SESSION: Final = 0
#: The epoch of a full request, which opens a session and closes the one whose id it carries.
FIRST_EPOCH: Final = 0
#: The epoch of a request that ends a session, or (without a session id) of a full request that opens none.
FINAL_EPOCH: Final = -1
_MAX_EPOCH: Final = 0x7FFF_FFFF

#: The last Fetch version that names topics; from 13 on only their ids travel (KIP-516).
LAST_VERSION_WITH_NAMES: Final = 12
#: The first Fetch version that carries the epoch of the last record fetched (KIP-595).
_FIRST_VERSION_WITH_LAST_EPOCH: Final = 12

# To make a request for so many partitions takes one or two milliseconds; for ten thousand, tens of milliseconds.
_MOST_ASKED: Final = 250
# If more than this may have changed, a full request begins anew, portion by portion: to list which of ten thousand
# partitions the broker has to forget would take as long. The same is done where so many names of topics are out of use.
_MOST_CHANGED: Final = 4 * _MOST_ASKED

_NO_ID: Final = UUID(int=0)


class FetchTarget(NamedTuple):
    """One partition of a Fetch: from which offset to fetch, and the token of the position that this is for.

    ``last_epoch`` is the leader epoch of the last record before ``offset``, -1 if it is not known: with it, the broker
    says where its log diverges (KIP-320, KIP-595). ``topic_id`` is None where the cluster has no topic ids.
    """

    tp: TopicPartition
    token: int
    offset: int
    leader_epoch: int
    last_epoch: int = -1
    topic_id: UUID | None = None


#: All that a broker is to be asked for.
Wanted: TypeAlias = Mapping[TopicPartition, FetchTarget]

#: What a broker last said of a partition: high watermark, last stable offset and log start offset. A plain tuple, which
#: Python's garbage collector stops tracking: there is one for each partition.
Marks: TypeAlias = tuple[int, int, int]


class SessionRequest(NamedTuple):
    """What a Fetch tells the broker. ``more``: not all of it fits, so another request should follow at once.

    ``replaced`` are the former targets of partitions that ``asked`` names by another topic id.
    """

    session_id: int
    epoch: int
    asked: list[FetchTarget]
    forgotten: list[FetchTarget]
    replaced: list[FetchTarget]
    by_id: bool
    more: bool

    @property
    def max_version(self) -> int | None:
        """The highest Fetch version that can carry this; None: any."""
        return None if self.by_id else LAST_VERSION_WITH_NAMES

    def topics(self, version: int, partition_max_bytes: int) -> list[FetchTopic]:
        """Return what is asked for, by topic and in order, as a Fetch of ``version`` carries it."""
        with_last_epoch = version >= _FIRST_VERSION_WITH_LAST_EPOCH
        topics: dict[str, FetchTopic] = {}
        for target in self.asked:
            topic = topics.get(target.tp.topic)
            if topic is None:
                topic_id = target.topic_id if self.by_id and target.topic_id is not None else _NO_ID
                topic = topics[target.tp.topic] = FetchTopic(topic=target.tp.topic, topic_id=topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=target.tp.partition,
                    current_leader_epoch=target.leader_epoch,
                    fetch_offset=target.offset,
                    last_fetched_epoch=target.last_epoch if with_last_epoch else -1,
                    partition_max_bytes=partition_max_bytes,
                )
            )
        for topic in topics.values():
            untrack(topic.partitions)
        return list(topics.values())

    def forgotten_topics(self, version: int) -> list[ForgottenTopic]:
        """Return what the broker has to forget, as a Fetch of ``version`` carries it.

        A version that names topics must not forget ``replaced``: it asks for the same names.
        """
        topics: dict[tuple[str, UUID | None], list[int]] = {}
        for target in self.forgotten + (self.replaced if version > LAST_VERSION_WITH_NAMES else []):
            topics.setdefault((target.tp.topic, target.topic_id), []).append(target.tp.partition)
        return [
            ForgottenTopic(topic=topic, topic_id=topic_id if self.by_id and topic_id else _NO_ID, partitions=partitions)
            for (topic, topic_id), partitions in topics.items()
        ]


@dataclass(frozen=True, slots=True)
class FetchPlan:
    """One Fetch request to one broker.

    ``with_rack``: it names the client's rack, so that a leader may name a closer replica instead of sending records.
    ``is_beside``: it is in no session, beside a Fetch that the broker parks. ``planned_at`` is when, by the loop's
    time. ``is_confined``: the buffer is full, and it leaves out what the application does not wait for.
    """

    node_id: int
    session: SessionRequest
    max_bytes: int
    max_wait_ms: int
    with_rack: bool = True
    is_beside: bool = False
    planned_at: float = 0.0
    is_confined: bool = False

    @property
    def is_of_some(self) -> bool:
        """Whether its answer says nothing of the other partitions that its broker is to be asked for."""
        return self.is_beside or self.is_confined

    def request(self, version: int, config: ClientConfig) -> FetchRequest:
        """Return the Fetch request for the version that it is sent in."""
        session = self.session
        return FetchRequest(
            max_wait_ms=self.max_wait_ms,
            min_bytes=config.fetch_min_bytes,
            max_bytes=self.max_bytes,
            isolation_level=isolation_code(config.isolation_level),
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=session.topics(version, config.max_partition_fetch_bytes),
            forgotten_topics_data=session.forgotten_topics(version),
            rack_id=config.client_rack if self.with_rack else "",
        )


class FetchSession:
    """The session with one broker. One request is in flight at a time; ``answered`` or ``failed`` follows each.

    A broker that gives no session (id 0) gets full requests for ever. So does one that is asked for no session (not
    ``wished``): a broker has room for few sessions, and keeps each for two minutes. ``known`` is what the broker was
    last asked for, by partition; ``marks`` is what it last said of each partition. ``heard_at`` is when a response was
    last accepted, in seconds since the epoch: a known partition that it left out had not changed by then.
    """

    def __init__(self, *, wished: bool = True) -> None:
        self.known: dict[tuple[str, int], FetchTarget] = {}
        self._full_epoch = FIRST_EPOCH if wished else FINAL_EPOCH
        self._session_id = NO_SESSION
        self._epoch = FIRST_EPOCH
        self.marks: dict[TopicPartition, Marks] = {}
        self.heard_at: float | None = None
        self._by_id = True
        self._nameless = 0  # how many known partitions have no topic id
        self._names: dict[UUID, str] = {}  # of known partitions, and of some that were known in this session
        self._last_named: UUID | None = None  # in _names
        self._last_name = ""  # that topic's
        self._altered: dict[TopicPartition, None] = {}  # known partitions that may be wanted differently, or no more
        self._added: dict[TopicPartition, None] = {}  # partitions that may be wanted and are not known
        self._sessionless = not wished
        self._refused = False

    @property
    def is_full(self) -> bool:
        """Whether the next request is a full one."""
        return self._epoch == FIRST_EPOCH

    @property
    def session_id(self) -> int:
        return self._session_id

    def changed(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that these may be wanted from now on, or differently, or no more."""
        for tp in partitions:
            self.change(tp)

    def change(self, tp: TopicPartition) -> None:
        """Note that ``tp`` may be wanted from now on, or differently, or no more."""
        (self._altered if tp in self.known else self._added)[tp] = None

    def request(self, wanted: Wanted) -> SessionRequest:
        """Return the request that makes the broker send what is ``wanted``, and count it as sent."""
        if max(len(self._altered), len(self._names) - len(self.known)) > _MOST_CHANGED:
            self._epoch = FIRST_EPOCH
        if self.is_full:
            return self._full(wanted)
        asked: list[FetchTarget] = []
        forgotten: list[FetchTarget] = []
        replaced: list[FetchTarget] = []
        altered, self._altered = self._altered, {}
        for tp in altered:
            target, known = wanted.get(tp), self.known.get(tp)
            if known is None:
                self._added[tp] = None
            elif target is None:
                forgotten.append(known)
                self._forget(known)
            elif target == known:
                continue
            elif len(asked) == _MOST_ASKED:  # or the broker would send again what lies behind the old offset
                forgotten.append(known)
                self._forget(known)
                self._added[tp] = None
            else:
                if known.topic_id is not target.topic_id and known.topic_id not in (None, target.topic_id):
                    replaced.append(known)
                    self.marks.pop(tp, None)
                asked.append(target)
                self._learn(target, known)
        self._ask_for_added(wanted, asked)
        untrack(asked)
        if self._by_id != (self._nameless == 0):
            # A broker refuses names and ids of topics in the same session (FETCH_SESSION_TOPIC_ID_ERROR).
            self._epoch = FIRST_EPOCH
            return self._full(wanted)
        return SessionRequest(self._session_id, self._epoch, asked, forgotten, replaced, self._by_id, bool(self._added))

    def _ask_for_added(self, wanted: Wanted, asked: list[FetchTarget]) -> None:
        """Fill ``asked`` up with partitions that the broker was not asked for yet."""
        while self._added and len(asked) < _MOST_ASKED:
            for tp in list(islice(self._added, _MOST_ASKED - len(asked))):
                del self._added[tp]
                target = wanted.get(tp)
                if target is not None and tp not in self.known:
                    asked.append(target)
                    self._learn(target)

    def _full(self, wanted: Wanted) -> SessionRequest:
        self.known, self._names, self._nameless, self._last_named = {}, {}, 0, None
        self._altered, self._added = {}, {}
        self.marks.clear()
        for tp, target in wanted.items():
            if len(self.known) < _MOST_ASKED or self._sessionless:
                self._learn(target)
            else:
                self._added[tp] = None
        self._by_id = self._nameless == 0
        more = bool(self._added)
        asked = list(self.known.values())
        untrack(asked)
        return SessionRequest(self._session_id, self._full_epoch, asked, [], [], self._by_id, more)

    def _learn(self, target: FetchTarget, known: FetchTarget | None = None) -> None:
        """Note that the broker is asked for ``target``, in the place of what it was asked for before (``known``)."""
        if known is not None and known.topic_id is None:
            self._nameless -= 1
        self.known[target.tp] = target
        topic_id = target.topic_id
        if topic_id is None:
            self._nameless += 1
        elif topic_id is not self._last_named:  # the hash of a UUID is a call of Python, and most targets share one
            self._names[topic_id] = self._last_name = target.tp.topic
            self._last_named = topic_id

    def _forget(self, known: FetchTarget) -> None:
        self.known.pop(known.tp, None)
        self.marks.pop(known.tp, None)
        if known.topic_id is None:
            self._nameless -= 1

    # Answers

    def answered(self, response: FetchResponse) -> list[tuple[FetchTarget, PartitionData]] | None:
        """Take a response in and return its partitions, each with its target; an empty list if it was throttled.

        None: the response is not accepted, because the broker does not know the session, or means another one. The
        next request opens a new session. If the response to that is not accepted either, the session ``is_refused``,
        and the next request should wait.
        """
        if response.error_code != ErrorCode.NONE:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self._session_id = NO_SESSION
            self._restart()
            return None
        is_full = self.is_full
        if is_full and self._is_throttled(response):
            self._session_id, self._refused = NO_SESSION, False
            return []
        answers = self._read(response)
        is_complete = answers is not None and (not is_full or len(answers) == len(self.known))
        is_this_one = is_full or response.session_id in (NO_SESSION, self._session_id)
        if answers is None or not is_complete or not is_this_one:
            self._restart()
            return None
        self._refused = False
        self._sessionless = is_full and response.session_id == NO_SESSION
        if response.session_id == NO_SESSION:
            self._session_id, self._epoch = NO_SESSION, FIRST_EPOCH
        else:
            self._session_id = response.session_id
            self._epoch = self._epoch % _MAX_EPOCH + 1
        return answers

    @property
    def is_refused(self) -> bool:
        """Whether even the response to a full request was not accepted."""
        return self._refused

    def failed(self) -> None:
        """Note that no response came. What the broker made of the request is not known, so the next is a full one."""
        self._epoch = FIRST_EPOCH

    def closing(self) -> SessionRequest | None:
        """Return the request that ends the session, because a broker has room for few; None if there is no session."""
        if self._session_id == NO_SESSION:
            return None
        return SessionRequest(self._session_id, FINAL_EPOCH, [], [], [], self._by_id, False)

    def _is_throttled(self, response: FetchResponse) -> bool:
        """Whether the answer to a full request says that the broker read nothing and opened no session, because the
        client is over its quota (KIP-219).
        """
        is_empty = response.session_id == NO_SESSION and not response.responses
        return is_empty and response.throttle_time_ms > 0

    def _restart(self) -> None:
        self._refused = self.is_full
        self._epoch = FIRST_EPOCH

    def _read(self, response: FetchResponse) -> list[tuple[FetchTarget, PartitionData]] | None:
        """Match the response with what the broker was asked for; None if it names any other partition."""
        answers: list[tuple[FetchTarget, PartitionData]] = []
        known = self.known
        for topic in response.responses:
            topic_id = topic.topic_id
            name = topic.topic or (self._last_name if topic_id is self._last_named else self._names.get(topic_id, ""))
            asked_id = None  # the id last compared: as a rule, all targets of a topic share one object
            for data in topic.partitions:
                target = known.get((name, data.partition_index))
                if target is None:
                    return None
                if not topic.topic and target.topic_id is not asked_id:
                    if target.topic_id is not topic_id and target.topic_id != topic_id:
                        return None
                    asked_id = target.topic_id
                answers.append((target, data))
                if data.error_code == 0:
                    self.marks[target.tp] = data.high_watermark, data.last_stable_offset, data.log_start_offset
        untrack(answers)
        return answers
