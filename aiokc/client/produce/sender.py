"""The sender of a producer: writes Produce requests as batches become ready."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from math import inf
from random import Random
from typing import Final, Protocol, TypedDict

import anyio
from anyio.abc import TaskGroup

from ...config import ProducerConfig
from ...core.backoff import retry_backoff
from ...core.produce.accumulator import RecordAccumulator
from ...core.produce.batch import FlushMark, ProducerBatch
from ...core.produce.failure import Cause, Failure, Harm
from ...core.produce.partition_queue import PartitionQueue
from ...core.produce.partition_queues import Ready
from ...core.produce.requests import IDS_FROM, Asked, lone_batch, produce_request
from ...core.produce.settling import split_further, written
from ...core.stopwatch import RequestCounter
from ...core.versions import api_name
from ...error_codes import error_name
from ...errors import KafkaError, RequestTimedOut, UnsupportedVersion
from ...net.connection import Connection
from ...net.login.endings import SessionEnded
from ...net.pool import Pool, Purpose
from ...records import Codec
from ...types import TopicPartition, named
from ...wire.lone_batch import LoneBatch
from ...wire.messages.discovery import MetadataRequest
from ...wire.messages.produce import ProduceRequest
from ..aio.complaints import Complaints
from ..aio.signal import Signal
from ..aio.time_slice import SLICE_SECONDS, let_others_run
from ..cluster.leaderless import LeaderlessReport
from ..cluster.metadata import Metadata
from .answers import Agreed, Answers, Channels, InFlight, NodeChannel, Way, raised
from .compressing import Compressing

logger = logging.getLogger("aiokc.produce")

_ZSTD_FROM: Final = 7  # KIP-110


class _Said(TypedDict):
    acks: int
    timeout_ms: int
    transactional_id: str | None


class Tell(Protocol):
    """Tells who waits for these batches. ``at_once``: in this step, since no task is in the middle of one."""

    def __call__(self, batches: list[ProducerBatch], /, *, at_once: bool) -> None: ...


class Sender:
    """Sends what is in the accumulator, over one connection to each broker.

    ``wake`` is for others to notify: a flush began, the metadata or the session have changed. ``appended`` is what an
    append calls that has made news.
    ``tell`` is called with the batches that have got their outcome, in the step in which they did. ``progress`` is
    notified when batches have been answered or have failed.
    """

    def __init__(
        self,
        config: ProducerConfig,
        pool: Pool,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        random: Random,
        *,
        tell: Tell,
        memory_is_wanted: Callable[[], bool],
    ) -> None:
        self.wake = Signal()
        self.progress = Signal()
        self.accumulator = accumulator
        self.requests = RequestCounter()
        self._config = config
        self._pool = pool
        self._metadata = metadata
        self._tell = tell
        self._memory_is_wanted = memory_is_wanted
        self._no_linger = False
        self._compressing = Compressing(accumulator, self._compressed)
        self._answers = Answers(accumulator, metadata, told=self._answered, complain=self._complain)
        self._tasks: TaskGroup | None = None  # while it runs
        self._acks, self._patience = config.required_acks, config.request_timeout_ms / 1e3
        self._sends_at_once = config.linger_ms == 0 and self._acks != 0
        self._channels = Channels(lambda: retry_backoff(config, random), self.requests)
        self._channels_of = metadata.cluster
        self._ways: dict[PartitionQueue, Way] = {}
        self._ways_of = metadata.cluster
        self._complaints = Complaints(logger)
        self._search_pauses = retry_backoff(config, random)
        self._next_search = 0.0
        self._leaderless: set[TopicPartition] = set()  # as far as this round of looking has come
        self._leaderless_report = LeaderlessReport(logger)
        self._least_version = _ZSTD_FROM if accumulator.options.codec == Codec.ZSTD else 0

    def hurry(self) -> None:
        """A call finds no memory, and does not wait for it: send what is buffered without linger."""
        self._no_linger = True
        self.wake.notify()

    def slow_nodes(self, seconds: float) -> set[int]:
        """The brokers that have been able to take nothing for so long (KIP-794), whether or not something waits now."""
        long_ago = asyncio.get_running_loop().time() - seconds
        since = {node_id: self._takes_nothing_since(channel) for node_id, channel in self._channels.items()}
        return {node_id for node_id, began in since.items() if began is not None and began < long_ago}

    def _takes_nothing_since(self, channel: NodeChannel) -> float | None:
        """Return since when nothing can be written to a broker; None: it can be, or nobody has tried.

        Nobody tries where the requests in flight are all that may be: the whole window of the only partition that has
        anything for it, or one batch of each partition, of which none is stored yet.
        """
        if channel.silent_since is not None:
            return channel.silent_since
        if channel.refused_since is None and channel.in_flight and (self._is_full(channel) or self._is_probed(channel)):
            return channel.in_flight[-1].sent_at
        return channel.refused_since

    def _is_probed(self, channel: NodeChannel) -> bool:
        return all(self.accumulator.queue(batch.tp).probing for one in channel.in_flight for batch in one.asked.batches)

    # What a transaction, a flush and stop() wait for

    def flush(self) -> FlushMark:
        """Have all that was appended so far sent without linger; ``flushed`` waits for it.

        What could not be compressed has failed in the step of its append, and is told here at the latest.
        """
        if self.accumulator.finished:
            self._told()
        mark = self.accumulator.flush()
        self.wake.notify()
        return mark

    async def flushed(self, mark: FlushMark, timeout: float | None = None) -> bool:
        """Wait until all batches of ``mark`` have their outcome; return whether they have, within ``timeout``."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while not mark.done:
            if not await self.progress.wait(None if deadline is None else deadline - loop.time()):
                return False
        return True

    def fail_unsent(self, failure: Failure) -> None:
        """Every batch that is not in flight gets ``failure`` as its outcome (KIP-654)."""
        self.accumulator.fail_waiting(failure)
        self._told()

    async def answered(self, timeout: float | None = None) -> bool:
        """Wait until no batch is in flight; return whether that is so, within ``timeout``."""
        loop = asyncio.get_running_loop()
        deadline = None if timeout is None else loop.time() + timeout
        while any(channel.in_flight for channel in self._channels.values()):
            if not await self.progress.wait(None if deadline is None else deadline - loop.time()):
                return False
        return True

    async def arrived(self, timeout: float) -> None:
        """With acks=0, wait until the brokers have read what was written, as far as they can be reached in time.

        Closing a connection drops what its socket has not sent yet. A broker answers the requests of a connection in
        order: so the answer to a small one shows that all before it were read. That one waits itself for where the
        socket is full, which has most to lose.
        """
        if self._config.required_acks != 0:
            return
        async with anyio.create_task_group() as tasks:
            for channel in self._channels.values():
                connection = channel.connection
                if connection is not None and connection.usable:
                    tasks.start_soon(self._arrived, connection, timeout)

    @staticmethod
    async def _arrived(connection: Connection, timeout: float) -> None:
        try:
            await connection.request(MetadataRequest(topics=[]), timeout=timeout)
        except KafkaError as error:
            logger.info("%s: what was written last may not have arrived: %s", connection.name, error)

    def end(self, failure: Failure) -> None:
        """Every batch gets ``failure`` as its outcome, those in flight too; nothing is sent any more."""
        self.accumulator.fail_all(failure)
        self._told()

    def _told(self, *, at_once: bool = False) -> None:
        finished = self.accumulator.finished
        if finished:
            self.accumulator.finished = []
            self._tell(finished, at_once=at_once)
        self.progress.notify()

    def _answered(self, *, at_once: bool = True) -> None:
        """A broker's answer was taken in, or will not come: maybe there is room now for what waits.

        ``at_once``: no task is in the middle of a step.
        """
        more = not self.accumulator.queues.is_empty
        self._told(at_once=at_once)
        if more:
            self.wake.notify()

    # Sending

    async def run(self) -> None:
        """Send until cancelled."""
        loop = asyncio.get_running_loop()
        try:
            async with anyio.create_task_group() as tasks:
                self._tasks = self._answers.tasks = tasks
                notified = self.wake.notified  # what has happened until then is seen in this round of looking
                while True:
                    splits = split_further(self.accumulator)
                    look_at, goes_on = self._look(tasks)
                    if goes_on or splits:
                        await let_others_run()
                        continue
                    if self.wake.notified == notified:
                        await self.wake.wait(None if look_at == inf else max(0.001, look_at - loop.time()))
                    else:  # it may be about partitions that were looked at before
                        await let_others_run()
                    notified = self.wake.notified
        finally:
            self._tasks = self._answers.tasks = None
            self._compressing.close()

    def appended(self, queue: PartitionQueue | None, now: float) -> None:
        """An append has made news. Without linger it is written in this step, if nothing else is under way.

        Else the sender's task does it, in the loop's next iteration: by then other records may have come to go with it.
        Nobody is told of an outcome in this step. ``queue``: the partition appended to, if it is one.
        """
        if not self._sends_at_once or queue is None or self._tasks is None:
            self.wake.notify()
            return
        if self.accumulator.queues.has_lone_batch(queue):
            try:
                if self._send_at_once(queue, now):
                    return
                self._compressing.start(self._tasks)
            except Exception as error:  # no fault of whose record this is
                self._tasks.start_soon(raised, error)
            if self.accumulator.finished:  # what could not be compressed
                asyncio.get_running_loop().call_soon(self._answered)
        self.wake.notify()

    def _send_at_once(self, queue: PartitionQueue, now: float) -> bool:
        """Write the only batch there is the way in which the partition's last one was sent, if nothing has changed.

        Else the sender's task looks at everything. What it wakes for by itself stays as it is.
        """
        way = self._known_ways().get(queue)
        if way is None:
            return False
        channel, connection = way.channel, way.connection
        # A connection that another one has replaced is closed, or about to be. Nothing is in flight on this one.
        if not connection.can_write_at(now) or way.versions != self.accumulator.session.versions:
            return False
        batch = self.accumulator.take_at_rest(queue, now)
        if batch is None:
            return False
        asked = Asked((batch,), way.topic_ids, way.lone.version)
        one = InFlight(channel, asked, connection, now, now + self._patience, self._answers, way.lone)
        connection.write_lone(way.lone, batch.frame(), one)
        channel.in_flight.append(one)
        channel.refused_since = None
        self.accumulator.counters.sent(batch, now)
        return True

    def _look(self, tasks: TaskGroup) -> tuple[float, bool]:
        """Send what is ready, for a time slice; return when to look again, and whether there is more to do at once."""
        loop, accumulator = asyncio.get_running_loop(), self.accumulator
        ends = loop.time() + SLICE_SECONDS
        while True:
            ready = self._ready(loop.time())
            sent = False
            nodes = list(ready.nodes.items())
            for node_id, queues in nodes:
                sent = self._send(node_id, queues, tasks) or sent
                self._compressing.start(tasks)
                if accumulator.finished:  # what could not be compressed
                    self._told()
                if sent and loop.time() >= ends:
                    return ready.look_at, True
            takes_more = sent and any(self._takes_more(node_id) for node_id in accumulator.queues.ready)
            if not takes_more and not accumulator.queues.goes_on(loop.time()):
                return ready.look_at, accumulator.news or self._no_linger  # an observer may have sent something
            if loop.time() >= ends:
                return ready.look_at, True

    def _ready(self, now: float) -> Ready:
        """Look at some partitions, and return what can be sent."""
        accumulator, cluster = self.accumulator, self._metadata.cluster
        accumulator.news = False
        if cluster is not self._channels_of:
            self._channels_of = cluster
            for node_id in self._channels.leave(cluster.brokers):
                accumulator.queues.unreachable.pop(node_id, None)
        accumulator.expire(now, late=accumulator.queues.late(now))
        if accumulator.session.doom is not None:
            accumulator.fail_waiting(accumulator.session.doom)
        if accumulator.finished:
            self._told()
        ready = accumulator.ready(cluster, now, hurry=self._no_linger or self._memory_is_wanted())
        self._no_linger = self._no_linger and not ready.round_is_over
        if accumulator.finished:  # what was appended for a topic that was recreated since
            self._told()
        if ready.renumbered:
            text = "%s: records are sent again in another epoch, and may be stored twice (KIP-360)"
            logger.warning(text, named(ready.renumbered))
        for queue in ready.without_leader:
            code = cluster.errors.get(queue.tp.topic)
            queue.trouble = "the partition has no leader" if code is None else error_name(code)
        self._leaderless.update(queue.tp for queue in ready.without_leader)
        if not ready.round_is_over:
            return ready
        return ready._replace(look_at=min(ready.look_at, self._look_for_leaders(now)))

    def _look_for_leaders(self, now: float) -> float:
        """Ask for metadata where partitions have no leader, with growing pauses; return when to ask again."""
        if not self._leaderless:
            self._search_pauses.reset()
            self._leaderless_report.over()
            self._next_search = 0.0
            return inf
        lacking, self._leaderless = self._leaderless, set()  # until the next round finds some
        if now >= self._next_search:
            self._metadata.request_missing()
            self._next_search = now + self._search_pauses.next()
            self._leaderless_report.searched(lacking, self._metadata.cluster, now, self._next_search)
        return self._next_search

    def _compressed(self) -> None:
        self._told()
        self.wake.notify()

    def _takes_more(self, node_id: int) -> bool:
        """Whether a broker may take another request now; else an append or an answer wakes the sender."""
        return not self._is_full(self._channels[node_id])

    def _is_full(self, channel: NodeChannel) -> bool:
        in_flight = channel.in_flight
        if in_flight and in_flight[-1].connection is not channel.connection:
            return True  # a broker reads two connections in any order, and records may be in flight over the one before
        return len(in_flight) >= self._config.max_in_flight_requests_per_connection

    def _send(self, node_id: int, queues: Collection[PartitionQueue], tasks: TaskGroup) -> bool:
        """Write one request with what is ready for a broker, if it takes one now; return whether less is ready then."""
        if not queues:  # an observer's send was written at once
            return False
        channel = self._channels[node_id]
        connection = channel.usable
        if connection is None or channel.preparing or self._is_full(channel):
            if channel.refused_since is None:
                channel.refused_since = asyncio.get_running_loop().time()
            if channel.error is not None:
                self.accumulator.queues.unreachable[node_id] = str(channel.error)
            if connection is None and not channel.preparing:
                channel.preparing = True
                tasks.start_soon(self._prepare, channel)
            return False  # that task, or an answer, wakes the sender
        ready = len(queues)
        self._write(channel, connection, queues)
        return len(queues) < ready

    def _write(self, channel: NodeChannel, connection: Connection, queues: Collection[PartitionQueue]) -> None:
        channel.refused_since = None
        self.accumulator.queues.unreachable.pop(channel.node_id, None)
        try:
            version = self._version(channel, connection, queues)
        except UnsupportedVersion as error:
            self.accumulator.fail_waiting(Failure(Cause.BROKEN, harm=Harm.TRANSACTION, error=error), queues)
            self._told()
            return
        now = asyncio.get_running_loop().time()
        batches = self.accumulator.drain(channel.node_id, queues, self._metadata.cluster, now)
        if not batches:
            return
        if len(batches) == 1:
            ids = {} if batches[0].topic_id is None else {batches[0].tp.topic: batches[0].topic_id}
        else:
            ids = {batch.tp.topic: batch.topic_id for batch in batches if batch.topic_id is not None}
        asked = Asked(batches, ids, version)
        if self._acks == 0:
            connection.write_unanswered(produce_request(asked, **self._said()), version)
        else:
            lone = self._lone_batch(channel, connection, asked) if len(batches) == 1 else None
            one = InFlight(channel, asked, connection, now, now + self._patience, self._answers, lone)
            if lone is not None:
                connection.write_lone(lone, batches[0].frame(), one)
            else:
                connection.write(produce_request(asked, **self._said()), one)
            channel.in_flight.append(one)
        for batch in batches:  # behind the writing: meanwhile the broker is at work
            self.accumulator.counters.sent(batch, now)
        if self._acks == 0:
            for batch in batches:
                written(self.accumulator, batch)
            self._told()

    def _said(self) -> _Said:
        """What each Produce request says, whatever its batches are."""
        session = self.accumulator.session
        return {
            "acks": self._acks,
            "timeout_ms": self._config.request_timeout_ms,
            "transactional_id": session.transactional_id,
        }

    def _lone_batch(self, channel: NodeChannel, connection: Connection, asked: Asked) -> LoneBatch:
        """Return what the request for this one batch is made of: it is kept for those that follow on this way."""
        queue, ways = self.accumulator.queue(asked.batches[0].tp), self._known_ways()
        versions = self.accumulator.session.versions
        way = ways.get(queue)
        is_same = way is not None and way.connection is connection and way.versions == versions
        if way is None or not is_same or way.lone.version != asked.version:
            lone = lone_batch(asked, **self._said())
            ways[queue] = way = Way(channel, connection, versions, asked.topic_ids, lone)
        return way.lone

    def _known_ways(self) -> dict[PartitionQueue, Way]:
        """How the last request with one batch of each partition was sent, since the metadata have changed.

        Older ones are let go of: each partition that is at rest would keep a connection in memory that has ended, and
        metadata of its time.
        """
        if self._metadata.cluster is not self._ways_of:
            self._ways, self._ways_of = {}, self._metadata.cluster
        return self._ways

    def _version(self, channel: NodeChannel, connection: Connection, queues: Collection[PartitionQueue]) -> int:
        """Return the version for these partitions' batches. Raises UnsupportedVersion where the broker has none."""
        lowest, highest = self.accumulator.session.versions
        for queue in queues:
            if queue.topic_id is None:
                highest = min(highest, IDS_FROM - 1)
        agreed = channel.agreed
        if agreed is not None and agreed.connection is connection and agreed.wanted == (lowest, highest):
            return agreed.version
        version, least = connection.usable_version(ProduceRequest, highest), max(lowest, self._least_version)
        if version < least:
            raise UnsupportedVersion(
                f"{connection.name} offers {api_name(ProduceRequest)} up to v{version}, and v{least} is needed for "
                "this producer's transaction or its compression_type"
            )
        channel.agreed = Agreed(connection, (lowest, highest), version)
        return version

    async def _prepare(self, channel: NodeChannel) -> None:
        """Connect to a broker, or wait until its connection may be written to."""
        try:
            try:
                await self._reach(channel)
            except SessionEnded:  # no failure of the broker: a new connection may be made at once
                await self._reach(channel)
            channel.error = None
            channel.backoff.reset()
        except KafkaError as error:
            channel.error = error
            if self._acks == 0 and isinstance(error, RequestTimedOut) and channel.connection is not None:
                # The broker has read too little for request_timeout_ms. No answer is awaited, whose deadline would end
                # the connection; if the network has lost it without a word, it stays until TCP gives up.
                channel.connection.close()
            self._complain(f"broker {channel.node_id}", error)
            self._metadata.disprove_leader(channel.node_id)
            self._metadata.request_update()
            await asyncio.sleep(channel.backoff.next())
        finally:
            channel.preparing = False
            self.wake.notify()

    async def _reach(self, channel: NodeChannel) -> None:
        timeout = self._config.request_timeout_ms / 1e3
        if self._acks == 0 and channel.is_lost:
            # A leader moves: the broker before has no answer by which to refuse what is written for it, and closes the
            # connection. It would do so with the next one, too, and what is written meanwhile is lost.
            channel.connection = None
            self._metadata.request_update()
            await self._metadata.changed.wait(self._config.retry_backoff_max_ms / 1e3)
        connection = channel.connection
        if connection is None or not connection.usable:
            connection = await self._pool.connection(channel.node_id, Purpose.PRODUCE, timeout=timeout)
            channel.connection = connection
            self._ways.clear()  # those by the connection before, at least
        await connection.until_writable(asyncio.get_running_loop().time() + timeout)

    def _complain(self, about: str, error: KafkaError) -> None:
        """Log an error that will be retried, at most every 30 s for each broker."""
        self._complaints.warn(about, "sending to %s: %s; trying again", about, error)
