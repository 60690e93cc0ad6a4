"""Keeps the snapshot of the cluster up to date with Metadata requests, for the topics that its users follow."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Final, TypeVar

from ...config import ClusterConfig
from ...core.backoff import SHORTEST, retry_backoff, search_pause
from ...core.cluster.leader_hints import LeaderHints
from ...core.cluster.occasion import Occasion
from ...core.cluster.snapshot import Cluster, NewLeader, merge
from ...core.cluster.unfollowed import without_old_errors, without_old_topics
from ...core.connection.denied_roles import DeniedRoles
from ...error_codes import ErrorCode, error_name
from ...errors import AuthenticationFailed, KafkaError, RequestTimedOut
from ...net.pool import Pool
from ...net.reply import in_steps
from ...types import Broker, TopicPartition
from ...wire import prepare
from ...wire.messages.discovery import MetadataRequest, MetadataRequestTopic, MetadataResponse
from ..aio.complaints import Complaints
from ..aio.signal import Signal
from .topic_interest import Interests, TopicInterest

logger = logging.getLogger("aiokc.metadata")
prepare(MetadataRequest)

T = TypeVar("T")

# Topics that come one after the other are asked for with pauses from a 16th of retry_backoff_ms up to the whole of it.
_SHORTEST_SHARE: Final = 1 / 16

# The errors of a topic that is being created, or may be created soon.
_COMING: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.LEADER_NOT_AVAILABLE}
)


class Metadata:
    """The newest Cluster snapshot, refreshed when it is too old, and when ``request_update`` says that it is wrong.

    ``changed`` is notified after each refresh: ``cluster`` is then another object, or, after a failure, ``error`` is
    set.
    """

    def __init__(
        self, config: ClusterConfig, pool: Pool, random: Random, *, allow_auto_topic_creation: bool = False
    ) -> None:
        self.cluster = Cluster()
        self.changed = Signal()
        self.error: KafkaError | None = None
        self._config = config
        self._pool = pool
        self._random = random
        self._create = allow_auto_topic_creation
        self._interests = Interests(self._interests_changed)
        self._wanted = Signal()
        self._hints = LeaderHints()
        self._denied = DeniedRoles()
        self._update_asked = True
        self._found_wrong = False  # what the snapshot says, since the last answer
        self._asks_for_new = False  # topics are followed that no request has asked for
        self._pause_for_new = 0.0
        self._asking = False
        self._refreshes = 0
        self._last_refresh = float("-inf")
        self._due = float("-inf")
        self._lacking: Mapping[str, int] = {}
        self._lacking_since = 0.0
        self._search_pauses = retry_backoff(config, random)
        # Without these floors a broker nearby is asked some thousand times a second where the options say 0.
        self._retry_pause = max(config.retry_backoff_ms / 1e3, SHORTEST)
        self._longest_pause = max(config.retry_backoff_max_ms / 1e3, SHORTEST)
        self._complaints = Complaints(logger)

    def interest(self, *, may_create: bool = False) -> TopicInterest:
        """Return a handle by which its owner says which topics to keep up to date. New topics request an update.

        ``may_create``: whether brokers may create these topics, if ``allow_auto_topic_creation`` says so, too.
        """
        return TopicInterest(self._interests, may_create=may_create)

    @property
    def followed(self) -> frozenset[str] | None:
        """The topics that are kept up to date, for all owners together; None: all topics."""
        return self._interests.topics

    @property
    def refreshed_at(self) -> float:
        """When the newest response was taken over (loop time); -inf before the first."""
        return self._last_refresh

    @property
    def age(self) -> float:
        """Seconds since the last refresh."""
        return asyncio.get_running_loop().time() - self._last_refresh

    def request_update(self) -> None:
        """The snapshot was found wrong (NOT_LEADER, a lost broker): refresh it, at most once per retry_backoff_ms."""
        self._found_wrong = True
        self._ask()

    def _ask(self) -> None:
        if not self._update_asked:
            self._update_asked = True
            self._wanted.notify()

    def _interests_changed(self, is_news: bool) -> None:
        """Forget errors that nothing looks at again. ``is_news``: topics are followed that were not before: ask for
        them, at once unless that has just been done.
        """
        self._hints.forget_errors(self.followed)
        self.cluster = self._hints.cluster
        if is_news:
            self._asks_for_new = self._update_asked = True
            self._wanted.notify()

    def request_missing(self) -> None:
        """The snapshot lacks something: refresh it, unless a response that may have it is on its way, or read."""
        if not self._asking:
            self._ask()

    async def first(self, timeout: float) -> None:
        """Return once a broker has answered. Raises KafkaError, mostly NoBrokersAvailable after ``timeout`` seconds."""
        self._update_asked = self._asks_for_new = self._found_wrong = False
        await self._refresh(timeout)

    async def run(self) -> None:
        """Refresh in a loop, after ``first``. The last failure is kept in ``error`` until a refresh succeeds."""
        while self.cluster.version == 0:
            await self.changed.wait()
        loop = asyncio.get_running_loop()
        backoff = retry_backoff(self._config, self._random)
        while True:
            while not self._update_asked and (left := self._due - loop.time()) > 0:
                await self._wanted.wait(left)
            occasion = self._occasion()
            was_asked, asked_for_new, was_found_wrong = self._update_asked, self._asks_for_new, self._found_wrong
            self._update_asked = self._asks_for_new = self._found_wrong = False
            try:
                await self._refresh(self._config.request_timeout_ms / 1e3, occasion)
            except KafkaError as error:
                self.error = error
                # The next request is for the same: one that was only due has found nothing wrong because it failed.
                self._update_asked = self._update_asked or was_asked
                self._asks_for_new = self._asks_for_new or asked_for_new
                self._found_wrong = self._found_wrong or was_found_wrong
                self.changed.notify()
                pause = backoff.next()
                if isinstance(error, AuthenticationFailed) and not error.retriable:
                    pause = max(pause, self._pool.logins.pause(loop.time()))  # the pool has logged it
                else:
                    self._complaints.warn(type(error), "cannot refresh the metadata: %s", error)
                await asyncio.sleep(pause)
                continue
            if self._update_asked:  # the snapshot was found wrong again while the response was on its way
                await self._pause(backoff.next())
            else:
                backoff.reset()
                await self._pause(self._retry_pause)

    def _occasion(self) -> Occasion:
        """Return why a request is to be sent now."""
        is_coming = not _COMING.isdisjoint(self._lacking.values())  # other errors are those of all brokers
        if self._asks_for_new or not (self._update_asked or is_coming):
            return Occasion.REGULAR
        # A coordinator has assigned a topic by an id that no answer names: maybe they name a former one.
        if self._found_wrong or ErrorCode.UNKNOWN_TOPIC_ID in self._lacking.values():
            return Occasion.FOUND_WRONG
        return Occasion.LACKING

    async def _pause(self, seconds: float) -> None:
        """Wait between two refreshes. New topics end the pause: the application waits for the first answer about them.

        Where it follows new topics again and again, each pause is twice as long as the one before, up to ``seconds``.
        The first pause that no new topics end makes the next ones end at once again.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while not self._asks_for_new:
            if not await self._wanted.wait(end - loop.time()):
                self._pause_for_new = 0.0
                return
        await asyncio.sleep(min(self._pause_for_new, max(0.0, end - loop.time())))
        shortest = self._retry_pause * _SHORTEST_SHARE
        self._pause_for_new = min(max(2 * self._pause_for_new, shortest), self._retry_pause)

    def _max_age(self) -> float:
        """How many seconds this snapshot stays valid: few if it lacks a followed topic, which may be created soon.

        A broker creates a topic within the time of some requests, and consumers wait for its partitions. So the first
        refreshes follow one another quickly; as long as nothing changes, the pauses grow to ``retry_backoff_max_ms``.
        A topic id that a coordinator has assigned exists already, and so does a partition that an answer has left out:
        brokers that deny it are asked less and less often.
        """
        before, self._lacking = self._lacking, self._cluster_errors()
        if self._lacking != before:
            self._search_pauses.reset()
            self._lacking_since = self._last_refresh
        longest = self._config.metadata_max_age_ms / 1e3
        if not self._lacking:
            return longest
        if _COMING.isdisjoint(self._lacking.values()):
            return min(self._longest_pause, longest)
        pause = self._search_pauses.next()
        if self._lacking.keys() <= {*map(str, self._interests.topic_ids), *self.cluster.partial}:
            pause = max(pause, search_pause(self._last_refresh - self._lacking_since))
        return min(pause, longest)

    def _cluster_errors(self) -> dict[str, int]:
        """The topics that are followed and have an error, or lack a partition, by name or by id; and error codes."""
        partial = self.cluster.partial if self.followed is None else self.followed.intersection(self.cluster.partial)
        found = dict.fromkeys(partial, int(ErrorCode.LEADER_NOT_AVAILABLE))
        found |= {topic: code for topic, code in self.cluster.errors.items() if topic in (self.followed or ())}
        if topic_ids := self._interests.topic_ids:
            unknown = topic_ids - {topic.topic_id for topic in self.cluster.topics.values()}
            found.update((str(topic_id), ErrorCode.UNKNOWN_TOPIC_ID) for topic_id in unknown)
        return found

    async def _refresh(self, timeout: float, occasion: Occasion = Occasion.REGULAR) -> None:
        """Ask, and take over what is answered."""
        known = self._cluster_errors()
        merged: Cluster | None = None
        deadline = asyncio.get_running_loop().time() + timeout
        # True until the new snapshot is in place, not only until the answer has come: while a long answer is merged,
        # other tasks run, and may miss what it brings.
        self._asking = True
        try:
            for request in self._questions_in_turn():
                left = deadline - asyncio.get_running_loop().time()
                response = await self._pool.metadata(request, timeout=left, again=occasion.again)
                is_complete = request.topics is None
                merged = await merged_snapshot(
                    merged or self._hints.said, response, complete=is_complete, occasion=occasion
                )
        finally:
            self._asking = False
        assert merged is not None  # there is always something to ask
        merged = without_old_errors(merged, self.followed)  # those of topics that were given up meanwhile
        self._hints.refreshed(without_old_topics(merged, self.followed, self._interests.topic_ids))
        self._denied.keep(self._is_named)
        self.cluster = self._hints.cluster
        for topic, code in self._cluster_errors().items():
            if known.get(topic) != code:
                logger.warning("topic %r: %s; looking again until that changes", topic, error_name(code))
        self._last_refresh = asyncio.get_running_loop().time()
        self._due = self._last_refresh + self._max_age()
        self.error = None
        self._pool.set_brokers(self.cluster.brokers)
        self.changed.notify()

    def learn_leaders(
        self, leaders: Mapping[TopicPartition, NewLeader], brokers: Mapping[int, Broker]
    ) -> set[TopicPartition]:
        """Take over the leaders that a response names (KIP-951); return the partitions that have a new leader by it.

        ``changed`` is not notified, and the snapshot's version stays: the caller requests a refresh as well.
        """
        moved = self._hints.learn(leaders, brokers)
        if moved:
            self._take_over_hints()
        return moved

    def disprove_leader(self, node_id: int, partitions: Collection[TopicPartition] | None = None) -> None:
        """A broker does not lead these partitions (None: any), or can't be reached: where only a response has named it
        as their leader, the last Metadata response counts again. The caller requests a refresh as well.
        """
        if self._hints.disprove(node_id, partitions):
            self._take_over_hints()

    def leader_denies(self, node_id: int, partitions: Collection[TopicPartition]) -> None:
        """A broker answers that it does not lead these partitions: do as ``disprove_leader``.

        Where newer metadata name it all the same, again and again, the connection may have reached another broker.
        """
        self.disprove_leader(node_id, partitions)
        version, now = self._hints.said.version, asyncio.get_running_loop().time()
        is_named_again = False
        for tp in partitions:  # each denial is noted, whatever is known of the others
            if self._is_named(node_id, tp) and self._denied.note_denial(node_id, tp, version, now):
                is_named_again = True
        if is_named_again and self._denied.note_denied_role(node_id, now):
            self._pool.reach_anew(node_id)

    def _is_named(self, node_id: int, tp: TopicPartition) -> bool:
        leader = self._hints.said.leader(tp)
        return leader is not None and leader.node_id == node_id

    def _take_over_hints(self) -> None:
        self.cluster = self._hints.cluster
        self._pool.set_brokers(self.cluster.brokers)

    async def fetch(self, topics: frozenset[str] | None, *, timeout: float) -> Cluster:
        """Ask a broker for these topics (None: all), and return a snapshot of them; ``cluster`` stays as it is."""
        response = await self._pool.metadata(_question(topics, create=False), timeout=timeout)
        return await merged_snapshot(self.cluster, response, complete=topics is None)

    def _questions(self) -> list[MetadataRequest]:
        """Return the requests to send. One request can't have names and ids, nor topics that may be created or not."""
        topics, topic_ids = self.followed, self._interests.topic_ids
        if topics is None:
            return [_question(None, create=False)]
        questions: list[MetadataRequest] = []
        if topic_ids:
            by_id = [MetadataRequestTopic(topic_id=topic_id, name=None) for topic_id in sorted(topic_ids)]
            questions.append(MetadataRequest(topics=by_id, allow_auto_topic_creation=False))
        creatable = self._interests.creatable if self._create else frozenset()
        others = topics - creatable
        if creatable:
            questions.append(_question(creatable, create=True))
        if others or not questions:
            questions.append(_question(others, create=self._create and not others))
        return questions

    def _questions_in_turn(self) -> list[MetadataRequest]:
        """Return the requests to send, a different one first than at the refresh before.

        Where answers are of no use, the brokers are asked in turn. Of two questions and two brokers, in the same order
        each time, each question would go to the same broker for ever: maybe to the one that is cut off.
        """
        questions = self._questions()
        turn = self._refreshes % len(questions)
        self._refreshes += 1
        return questions[turn:] + questions[:turn]

    async def wait_for(self, look: Callable[[Cluster], T | None], timeout: float, what: str) -> T:
        """Return ``look(cluster)`` as soon as it is not None. Raises RequestTimedOut after ``timeout`` seconds.

        ``what`` names in its message what was waited for; the last failure of a refresh is there too, and its cause.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while (found := look(self.cluster)) is None:
            self.request_missing()
            if not await self.changed.wait(deadline - loop.time()):
                why = f": {self.error}" if self.error is not None else ""
                raise RequestTimedOut(f"{what}: not known after {timeout:.3g} s{why}") from self.error
        return found


def _question(topics: frozenset[str] | None, *, create: bool) -> MetadataRequest:
    """Ask for these topics (None: for all). ``create``: brokers may create those that do not exist."""
    names = None if topics is None else [MetadataRequestTopic(name=name) for name in sorted(topics)]
    return MetadataRequest(topics=names, allow_auto_topic_creation=create)


async def merged_snapshot(
    old: Cluster, response: MetadataResponse, *, complete: bool, occasion: Occasion = Occasion.REGULAR
) -> Cluster:
    return await in_steps(merge(old, response, complete=complete, occasion=occasion))
