"""The way to each broker with the requests in flight on it, and Answers: takes in what it answers, as that is read."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection
from contextvars import copy_context
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple

from anyio.abc import TaskGroup

from ...core.backoff import Backoff
from ...core.produce.accumulator import RecordAccumulator
from ...core.produce.requests import Asked, read_response
from ...core.produce.settling import PartitionAnswer, settle, unanswered
from ...core.produce.verdicts import Verdict
from ...core.stopwatch import RequestCounter
from ...error_codes import ErrorCode
from ...errors import AuthenticationFailed, ConnectionFailed, KafkaError, MalformedResponse, RequestTimedOut
from ...net.connection import Connection
from ...net.reply import Reply, Written
from ...types import TopicPartition
from ...wire.lone_batch import LoneBatch, StoredAt
from ...wire.messages.produce import ProduceResponse
from ..cluster.metadata import Metadata

logger = logging.getLogger("aiokc.produce")

_LOST: Final = (ConnectionFailed, RequestTimedOut, MalformedResponse, AuthenticationFailed)


@dataclass(slots=True)
class InFlight:
    """A Produce request that was written, and that the broker has to answer. ``lone``: it was made of that."""

    asked: Asked
    connection: Connection
    written: Written[ProduceResponse]
    lone: LoneBatch | None

    @property
    def has_ended(self) -> bool:
        """Whether the answer has come, or will not come any more."""
        return self.written.waiter.reply.done()


class Agreed(NamedTuple):
    """The version of Produce on a connection, where the lowest and the highest one that may be used are these."""

    connection: Connection
    wanted: tuple[int, int]
    version: int


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

    @property
    def usable(self) -> Connection | None:
        """The connection, if a request may be written to it this moment."""
        connection = self.connection
        return connection if connection is not None and connection.can_write else None


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
        told: Callable[[], None],
        complain: Callable[[str, KafkaError], None],
    ) -> None:
        """``told`` is called when batches may have got their outcome, ``complain`` with what will be tried again."""
        self._accumulator = accumulator
        self._metadata = metadata
        self._told = told
        self._complain = complain
        self._context = copy_context()

    def expect(
        self,
        channel: NodeChannel,
        asked: Asked,
        connection: Connection,
        written: Written[ProduceResponse],
        tasks: TaskGroup,
        lone: LoneBatch | None = None,
    ) -> None:
        """A request was written: its answer is due behind those of all before it. ``lone``: it was made of that."""
        channel.in_flight.append(InFlight(asked, connection, written, lone))
        written.waiter.reply.add_done_callback(partial(self._came, channel, tasks), context=self._context)

    def _came(self, channel: NodeChannel, tasks: TaskGroup, reply: Reply) -> None:
        if reply.cancelled():  # the sender has ended
            return
        try:
            self._take_in(channel, tasks)
        except Exception as error:  # it would end the connection, and nobody would hear of what was on it
            tasks.start_soon(raised, error)

    def _take_in(self, channel: NodeChannel, tasks: TaskGroup) -> None:
        """Take in the answers that have come, in order."""
        while not channel.reading and channel.in_flight and channel.in_flight[0].has_ended:
            one = channel.in_flight[0]
            try:
                if one.lone is not None and (stored := one.lone.stored_at(one.written.waiter.reply.result())):
                    self._stored(channel, one, stored)
                    continue
                response = one.connection.answer_at_once(one.written)
            except _LOST as error:
                self._lost(channel, one, error)
                continue
            if response is None:
                channel.reading = True
                tasks.start_soon(self._take_time, channel, one, tasks)
                return
            self._answered(channel, one, response)

    async def _take_time(self, channel: NodeChannel, one: InFlight, tasks: TaskGroup) -> None:
        try:
            response = await one.connection.answer(one.written)
        except _LOST as error:
            channel.reading = False
            self._lost(channel, one, error)
        else:
            channel.reading = False
            self._answered(channel, one, response)
        self._take_in(channel, tasks)

    def _lost(self, channel: NodeChannel, one: InFlight, error: KafkaError) -> None:
        """No answer will come: send the batches again, maybe to another broker."""
        channel.in_flight.popleft()
        channel.counter.failed += 1
        channel.error = error
        now = asyncio.get_running_loop().time()
        self._complain(f"broker {channel.node_id}", error)
        for batch in one.asked.batches:
            unanswered(self._accumulator, batch, str(error), now)
        self._metadata.disprove_leader(channel.node_id)
        self._metadata.request_update()
        self._told()

    def _stored(self, channel: NodeChannel, one: InFlight, stored: StoredAt) -> None:
        """Do as ``_answered``, for a request with one batch, where the answer says that it is stored."""
        now = self._heard(channel, one)
        answer = PartitionAnswer(ErrorCode.NONE, stored.base_offset, stored.append_time)
        settle(self._accumulator, one.asked.batches[0], answer, now)
        self._told()

    @staticmethod
    def _heard(channel: NodeChannel, one: InFlight) -> float:
        channel.in_flight.popleft()
        now = channel.heard_at = asyncio.get_running_loop().time()
        channel.counter.answered.add(now - one.written.waiter.sent_at)
        return now

    def _answered(self, channel: NodeChannel, one: InFlight, response: ProduceResponse) -> None:
        now = self._heard(channel, one)
        answered = read_response(one.asked, response)
        moved: Collection[TopicPartition] = ()
        if answered.leaders:
            moved = self._metadata.learn_leaders(answered.leaders, answered.brokers)
        stale: list[TopicPartition] = []
        for batch, answer in answered.answers:
            verdict = settle(self._accumulator, batch, answer, now)
            if verdict is Verdict.REFRESH:
                stale.append(batch.tp)
            if verdict not in (Verdict.STORED, Verdict.DUPLICATE):
                logger.debug("%s: %s after %s", batch.tp, verdict.name, answer)
        if stale:
            self._metadata.disprove_leader(channel.node_id, [tp for tp in stale if tp not in moved])
            self._metadata.request_update()
        self._told()


async def raised(error: Exception) -> None:
    """Raise an error in a task of its own: in the sender's group, it ends the background, and everybody is told."""
    raise error
