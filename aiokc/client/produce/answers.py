"""The way to each broker with the requests in flight on it, and Answers: takes in what it answers, as that is read."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Container, Mapping
from contextvars import copy_context
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from anyio.abc import TaskGroup

from ...core.backoff import Backoff
from ...core.cluster.leader_hints import DENY_LEADING
from ...core.produce.accumulator import RecordAccumulator
from ...core.produce.batch import ProducerBatch
from ...core.produce.requests import Asked, read_response
from ...core.produce.session import Versions
from ...core.produce.settling import settle, settle_stored, unanswered
from ...core.produce.verdicts import Verdict
from ...core.rate_limit import RateLimit, and_more
from ...core.stopwatch import RequestCounter
from ...error_codes import ErrorCode
from ...errors import AuthenticationFailed, ConnectionFailed, KafkaError, MalformedResponse, RequestTimedOut
from ...net.connection import Connection
from ...net.login.endings import SessionEnded
from ...net.reply import Written
from ...types import TopicPartition
from ...wire import prepare
from ...wire.lone_batch import LoneBatch
from ...wire.messages.produce import ProduceRequest, ProduceResponse
from ..cluster.metadata import Metadata

logger = logging.getLogger("aiokc.produce")
prepare(ProduceRequest, ProduceResponse)  # LoneBatch writes the answer that it expects

_SECONDS: Final = 30.0
_MANY_ATTEMPTS: Final = 5  # of a batch that each time is refused: by the pauses, more than a second
_LONG: Final = 5.0  # seconds for one answer: with acks=all a broker may wait for followers for request_timeout_ms
_LOST: Final = (ConnectionFailed, RequestTimedOut, MalformedResponse, AuthenticationFailed)


class InFlight(Written[ProduceResponse]):
    """A Produce request that was written, and that the broker has to answer. ``lone``: it was made of that."""

    __slots__ = ("_answers", "asked", "channel", "connection", "lone")

    def __init__(
        self,
        channel: NodeChannel,
        asked: Asked,
        connection: Connection,
        now: float,
        deadline: float,
        answers: Answers,
        lone: LoneBatch | None = None,
    ) -> None:
        Written.__init__(self, ProduceRequest, asked.version, now, deadline, answers.context)
        self.channel, self.asked, self.connection, self.lone, self._answers = channel, asked, connection, lone, answers

    def on_end(self) -> None:
        self._answers.came(self)


class Agreed(NamedTuple):
    """The version of Produce on a connection, where the lowest and the highest one that may be used are these."""

    connection: Connection
    wanted: tuple[int, int]
    version: int


class Way(NamedTuple):
    """How a request with one batch of a partition was sent: the next one is sent so, if nothing of this has changed."""

    channel: NodeChannel
    connection: Connection
    versions: Versions
    topic_ids: Mapping[str, UUID]
    lone: LoneBatch


class NodeChannel:
    """What the sender knows about one broker.

    ``preparing``: a task connects, or waits until the connection may be written to. ``reading``: a task takes in the
    first answer in flight, which takes time. ``error`` is why the broker can't be reached now; None: it can, or that
    was not tried.
    """

    def __init__(self, node_id: int, backoff: Backoff, counter: RequestCounter) -> None:
        self.node_id = node_id
        self.backoff = backoff
        self.counter = counter
        self.connection: Connection | None = None
        self.in_flight: deque[InFlight] = deque()
        self.agreed: Agreed | None = None
        self.preparing = False
        self.reading = False
        self.error: KafkaError | None = None
        self.heard_at: float | None = None  # when the broker last answered
        self.refused_since: float | None = None  # since when it takes nothing, though something waits
        self.silent_since: float | None = None  # when it was sent the first request that it has let time out

    @property
    def usable(self) -> Connection | None:
        """The connection, if a request may be written to it this moment."""
        connection = self.connection
        return connection if connection is not None and connection.can_write else None

    @property
    def is_lost(self) -> bool:
        """Whether the connection has ended, neither by this client nor with its SASL session."""
        error = None if self.connection is None else self.connection.error
        return error is not None and not isinstance(error, SessionEnded)

    @property
    def is_over(self) -> bool:
        """Whether nothing is under way to the broker, nor can be any more over the connection that there was."""
        connection = self.connection
        is_open = connection is not None and connection.usable
        return not (is_open or self.in_flight or self.preparing or self.reading)


class Channels(dict[int, NodeChannel]):
    """The channels to the brokers that were sent to, by id: made when they are first asked for."""

    def __init__(self, new_backoff: Callable[[], Backoff], counter: RequestCounter) -> None:
        super().__init__()
        self._new_backoff, self._counter = new_backoff, counter

    def __missing__(self, node_id: int) -> NodeChannel:
        self[node_id] = channel = NodeChannel(node_id, self._new_backoff(), self._counter)
        return channel

    def leave(self, brokers: Container[int]) -> list[int]:
        """Let go of all others than ``brokers``, where nothing is under way, and return their ids.

        Each keeps its last connection, also once that is closed, and brokers may get ever new ids.
        """
        left = [node_id for node_id, channel in self.items() if node_id not in brokers and channel.is_over]
        for node_id in left:
            del self[node_id]
        return left


class Told(Protocol):
    """Is told that batches may have got their outcome. ``at_once``: no task is in the middle of a step."""

    def __call__(self, *, at_once: bool) -> None: ...


class Answers:
    """Takes in answers within the callback that reads them from the socket: no task has to be woken for it.

    So who awaits a record goes on in that same step. An answer that takes time (a long one, or one that may be due to
    the age of the SASL session) is awaited in a task; those after it wait for that.
    """

    def __init__(
        self,
        accumulator: RecordAccumulator,
        metadata: Metadata,
        *,
        told: Told,
        complain: Callable[[str, KafkaError], None],
    ) -> None:
        """``told`` is called when batches may have got their outcome, ``complain`` with what will be tried again."""
        self._accumulator = accumulator
        self._metadata = metadata
        self._told = told
        self._complain = complain
        self._refused = RateLimit(_SECONDS)
        self.context = copy_context()
        self.tasks: TaskGroup | None = None  # while the sender runs

    def came(self, one: InFlight) -> None:
        """The answer to a request has come, or will not come any more."""
        tasks = self.tasks
        if tasks is None:  # the sender has ended
            return
        try:
            self._take_in(one.channel, tasks, at_once=True)
        except Exception as error:  # it would end the connection, and nobody would hear of what was on it
            tasks.start_soon(raised, error)

    def _take_in(self, channel: NodeChannel, tasks: TaskGroup, *, at_once: bool) -> None:
        """Take in the answers that have come, in order, and tell of each."""
        while not channel.reading and channel.in_flight:
            one = channel.in_flight[0]
            body, lone = one.body, one.lone
            if body is not None and lone is not None and (stored_at := lone.stored_at(body)) is not None:
                self._heard(channel, one)
                settle_stored(self._accumulator, one.asked.batches[0], stored_at[0], stored_at[1])
                self._told(at_once=at_once)
                continue
            if body is None and one.error is None:
                return
            try:
                response = one.connection.answer_at_once(one)
            except _LOST as error:
                self._lost(channel, one, error)
            else:
                if response is None:
                    channel.reading = True
                    tasks.start_soon(self._take_time, channel, one, tasks)
                    return
                self._answered(channel, one, response)
            self._told(at_once=at_once)

    async def _take_time(self, channel: NodeChannel, one: InFlight, tasks: TaskGroup) -> None:
        try:
            response, is_doubtful = await one.connection.answer(one)
        except _LOST as error:
            channel.reading = False
            self._lost(channel, one, error)
        else:
            channel.reading = False
            self._answered(channel, one, response, doubts_denials=is_doubtful)
        self._told(at_once=False)
        self._take_in(channel, tasks, at_once=False)

    def _lost(self, channel: NodeChannel, one: InFlight, error: KafkaError) -> None:
        """No answer will come: send the batches again, maybe to another broker."""
        channel.in_flight.popleft()
        channel.counter.failed += 1
        channel.error = error
        if channel.silent_since is None and isinstance(error, RequestTimedOut):
            channel.silent_since = one.sent_at  # until it answers: what is sent again over a new connection is no sign
        now = asyncio.get_running_loop().time()
        for batch in one.asked.batches:
            unanswered(self._accumulator, batch, str(error), now)
        if isinstance(error, SessionEnded):  # no failure of the broker: it is asked again over a new connection
            return
        self._complain(f"broker {channel.node_id}", error)
        self._metadata.disprove_leader(channel.node_id)
        self._metadata.request_update()

    @staticmethod
    def _heard(channel: NodeChannel, one: InFlight) -> None:
        channel.in_flight.popleft()
        channel.heard_at, channel.silent_since = one.ended_at, None
        channel.counter.answered.add(one.ended_at - one.sent_at)

    def _answered(
        self, channel: NodeChannel, one: InFlight, response: ProduceResponse, *, doubts_denials: bool = False
    ) -> None:
        self._heard(channel, one)
        now = asyncio.get_running_loop().time()
        answered = read_response(one.asked, response)
        moved: Collection[TopicPartition] = ()
        if answered.leaders:
            moved = self._metadata.learn_leaders(answered.leaders, answered.brokers)
        stale: list[TopicPartition] = []
        not_led: list[TopicPartition] = []
        for batch, answer in answered.answers:
            verdict = settle(self._accumulator, batch, answer, now, doubts_denials=doubts_denials)
            if verdict is Verdict.REFRESH:
                (not_led if answer.code in DENY_LEADING else stale).append(batch.tp)
            if verdict not in (Verdict.STORED, Verdict.DUPLICATE):
                logger.debug("%s: %s after %s", batch.tp, verdict.name, answer)
            if verdict in (Verdict.RETRY, Verdict.REFRESH) and batch.outcome is None:
                self._complain_of_refused(batch, one.sent_at, now)
        if stale or not_led:
            self._metadata.disprove_leader(channel.node_id, [tp for tp in stale if tp not in moved])
            self._metadata.leader_denies(channel.node_id, [tp for tp in not_led if tp not in moved])
            self._metadata.request_update()

    def _complain_of_refused(self, batch: ProducerBatch, sent_at: float, now: float) -> None:
        """Log a refusal that is tried again, for each topic and code once in 30 s.

        Most are over with an election. One that goes on is a warning, by the number of attempts, or the time that this
        one took: what waited long before its first one was not refused for long.
        """
        lasts = batch.attempts >= _MANY_ATTEMPTS or now - sent_at >= _LONG
        if batch.last_code == ErrorCode.CONCURRENT_TRANSACTIONS and not lasts:
            return  # normal: the markers of the transaction before are still being written
        held_back = self._refused.admit((batch.tp.topic, batch.last_code, lasts), now)
        if held_back is not None:
            level = logging.WARNING if lasts else logging.INFO
            text = "%s: records are refused by %s; trying again%s"
            logger.log(level, text, batch.tp, batch.last_error, and_more(held_back))


async def raised(error: Exception) -> None:
    """Raise an error in a task of its own: in the sender's group, it ends the background, and everybody is told."""
    raise error
