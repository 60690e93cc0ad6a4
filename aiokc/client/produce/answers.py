"""Answers: takes in what brokers answer to Produce requests, in order, and as soon as it is read from the socket."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextvars import copy_context
from functools import partial
from typing import Final

from anyio.abc import TaskGroup

from ...core.produce.accumulator import RecordAccumulator
from ...core.produce.requests import Asked, read_response
from ...core.produce.settling import settle, unanswered
from ...core.produce.verdicts import Verdict
from ...errors import AuthenticationFailed, ConnectionFailed, KafkaError, MalformedResponse, RequestTimedOut
from ...net.connection import Connection
from ...net.reply import Reply, Written
from ...types import TopicPartition
from ...wire.messages.produce import ProduceResponse
from ..cluster.metadata import Metadata
from .node_channel import InFlight, NodeChannel

logger = logging.getLogger("aiokc.produce")

_LOST: Final = (ConnectionFailed, RequestTimedOut, MalformedResponse, AuthenticationFailed)


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
    ) -> None:
        """A request was written: its answer is due behind those of all before it."""
        channel.in_flight.append(InFlight(asked, connection, written))
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

    def _answered(self, channel: NodeChannel, one: InFlight, response: ProduceResponse) -> None:
        channel.in_flight.popleft()
        now = channel.heard_at = asyncio.get_running_loop().time()
        channel.counter.answered.add(now - one.written.waiter.sent_at)
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
