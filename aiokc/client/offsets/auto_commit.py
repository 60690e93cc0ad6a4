"""Auto-commit: every auto_commit_interval_ms it commits what is processed, and nothing of a recreated topic.

``Subscription.uncommitted`` says what is processed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Final, Protocol, TypeAlias
from uuid import UUID

from ...core.backoff import Backoff
from ...core.offsets.verdicts import TOPIC_NOT_KNOWN
from ...core.subscription.mode import Mode
from ...core.subscription.state import Subscription
from ...error_codes import ErrorCode
from ...errors import BrokerError, CommitFailed, KafkaError, RebalanceInProgress
from ...types import OffsetAndMetadata, TopicPartition, named
from ..aio.complaints import Complaints
from ..aio.signal import Signal
from .group_offsets import AsOfItsSlot, Offsets
from .unknown_topics import UnknownTopics

logger = logging.getLogger("aiokc.group")

_SHORTEST_INTERVAL: Final = 0.01
# How long, in seconds, a member that leaves while its group is being assigned waits for the assignment: the coordinator
# accepts no commit meanwhile. If this member leads the group, there will be no assignment.
_ASSIGNING: Final = 2.0
_RENEWAL: Final = 3600.0
_NO_TOPICS: Final[frozenset[str]] = frozenset()


#: Whether an offset is known to belong to a former topic: its name's topic was recreated since.
IsOfFormerTopic: TypeAlias = Callable[[TopicPartition, OffsetAndMetadata], bool]


class Commit(Protocol):
    async def __call__(self, offsets: Offsets, *, timeout: float, retry: bool, unknown: UnknownTopics) -> None: ...


class AutoCommit:
    """Commits, every ``interval`` seconds, the offsets of processed records that are not stored yet.

    A failure is logged and retried soon. It is raised from no call, because the next commit makes up for it. ``error``
    is the error of the last attempt, as long as there is something to store. Offsets for which ``is_of_former_topic``
    is true are left out.

    So are those of a deleted topic, once both the coordinator and the metadata say that it does not exist. ``unknown``
    follows a topic from when a commit hears that the coordinator does not know it until that is settled, however many
    attempts lie between. If the application has left the topic by assign(), nothing else asks the metadata for it, and
    no revocation ends the attempts.
    """

    def __init__(
        self,
        group_id: str,
        subscription: Subscription,
        commit: Commit,
        interval: float,
        timeout: float,
        backoff: Backoff,
        unknown: UnknownTopics,
        is_of_former_topic: IsOfFormerTopic,
    ) -> None:
        self._group_id = group_id
        self._subscription = subscription
        self._commit = commit
        self._interval = max(interval, _SHORTEST_INTERVAL)
        self._timeout = timeout
        self._backoff = backoff
        self._unknown = unknown
        self._is_of_former_topic = is_of_former_topic
        self.error: KafkaError | None = None
        self._stored: dict[TopicPartition, tuple[int, UUID | None]] = {}
        self._complaints = Complaints(logger)
        self._hurried = False
        self._renewed_at = 0.0
        self._wake = Signal()

    def go_on(self) -> None:
        """Keep the place in partitions that the application left and has assigned again by hand, in one go.

        For those that it has left, others may commit from here on: forget what was stored.
        """
        self._subscription.go_on(self._stored)
        self.forget(tp for tp in list(self._stored) if self._subscription.find(tp) is None)

    def hurry(self) -> None:
        """Make the next commit at once, without waiting for the interval."""
        self._hurried = True
        self._wake.notify()

    async def run(self) -> None:
        """Commit until cancelled."""
        pause = self._interval
        self._renewed_at = asyncio.get_running_loop().time()
        while True:
            if not self._hurried:
                await self._wake.wait(pause)
            self._hurried = False
            self._renew()
            error = await self._attempt(self._timeout)
            if error is not None and _passes(error) and not _denies_topics(error):
                pause = min(self._backoff.next(), self._interval)
            else:
                pause = self._interval
                self._backoff.reset()

    def _renew(self) -> None:
        """Once an hour, let all offsets of partitions that were assigned by hand be stored again.

        A group that has members keeps their offsets. Of others, Kafka deletes each one offsets.retention.minutes (a
        week by default) after its last commit, also while the consumer is at work on a topic without new records.
        """
        now = asyncio.get_running_loop().time()
        if now - self._renewed_at >= _RENEWAL:
            self._renewed_at = now
            if self._subscription.mode is Mode.PARTITIONS:
                self._stored.clear()

    async def hand_over(self, timeout: float) -> None:
        """Commit for the last time before partitions are given up, retrying for ``timeout`` seconds at most."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        while (error := await self._attempt(began + timeout - loop.time())) is not None:
            patience = timeout if _passes(error) else _ASSIGNING if isinstance(error, RebalanceInProgress) else 0.0
            left = began + min(patience, timeout) - loop.time()
            if left <= 0:
                return
            await asyncio.sleep(min(self._backoff.next(), left))
        self._backoff.reset()

    async def _attempt(self, timeout: float) -> KafkaError | None:
        """Commit what is not stored yet, but for topics that are gone; return the error, or None."""
        return await self._flush(timeout, but_not=self._give_up_what_is_gone() if self._unknown.topics else _NO_TOPICS)

    def _give_up_what_is_gone(self) -> frozenset[str]:
        """Return which topics in doubt are gone. Keep nothing of them that the application has left.

        A topic stays in doubt for as long as offsets of it are to be stored: an assigned one may be created again.
        """
        gone = frozenset(filter(self._unknown.is_gone, self._unknown.topics))
        given_up = self._subscription.left.give_up(
            lambda tp, offset: tp.topic in gone or self._is_of_former_topic(tp, offset)
        )
        if given_up:
            logger.warning(
                "group %r: auto-commit gives up %s: the topic was deleted since, so the group keeps no offset of it",
                self._group_id,
                named(given_up),
            )
        self._unknown.follow_only({tp.topic for tp in self._not_stored(_NO_TOPICS)})
        return gone

    async def _flush(self, timeout: float, but_not: Collection[str]) -> KafkaError | None:
        if not any(self._wanted(but_not, self._subscription.uncommitted(self._stored))):
            self.error = None  # the application has stored since what could not be stored, say, or has left it
            return None
        try:
            # The offsets are taken when the slot has come: the application's own commit() may be under way, and may
            # have stored by then what the application holds now.
            offsets = AsOfItsSlot(partial(self._not_stored, but_not))
            await self._commit(offsets, timeout=timeout, retry=False, unknown=self._unknown)
        except KafkaError as error:
            self._complaints.warn(type(error).__name__, "group %r: auto-commit failed: %s", self._group_id, error)
            self.error = error
            if isinstance(error, CommitFailed):
                self._subscription.refused()
            return error
        self.error = None
        return None

    def _not_stored(self, but_not: Collection[str]) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return dict(self._wanted(but_not, self._subscription.committable(self._stored).items()))

    def _wanted(
        self, but_not: Collection[str], offsets: Iterable[tuple[TopicPartition, OffsetAndMetadata]]
    ) -> Iterator[tuple[TopicPartition, OffsetAndMetadata]]:
        for tp, offset in offsets:
            if tp.topic not in but_not and not self._is_of_former_topic(tp, offset):
                yield tp, offset

    def stored(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """The group has stored ``offsets``, by a commit of this class or of the application."""
        for tp, offset in offsets.items():
            if self._subscription.find(tp) is not None:
                self._stored[tp] = offset.offset, offset.topic_id

    def heard(self, found: Mapping[TopicPartition, OffsetAndMetadata | None]) -> None:
        """The group has these offsets: where another client has committed since, forget what was stored before."""
        for tp, offset in found.items():
            if tp in self._stored and (offset is None or offset.offset != self._stored[tp][0]):
                del self._stored[tp]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget what was stored for ``partitions``: the group may have another offset by now, or soon.

        Other members may commit for them from here on, or a commit of this consumer got no answer. To rely on what was
        stored before that would leave the group where the unanswered commit has put it:

        1. 20 is stored. The application seeks to 5, and commits that; its call is cancelled when the request is out.
        2. The coordinator stores 5. The application processes up to 20 again: that is stored, as far as is known here.
        """
        for tp in partitions:
            self._stored.pop(tp, None)


def _passes(error: KafkaError) -> bool:
    """Whether the next attempt may succeed. One that came with a stale epoch may: it is sent in the newest one then."""
    return error.retriable or (isinstance(error, BrokerError) and error.code == ErrorCode.STALE_MEMBER_EPOCH)


def _denies_topics(error: KafkaError) -> bool:
    """Whether the coordinator says that a topic does not exist. To ask it again soon helps nobody."""
    return isinstance(error, BrokerError) and error.code in TOPIC_NOT_KNOWN
