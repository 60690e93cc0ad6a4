"""Sends Fetch requests ahead of the application: one in flight to each broker, into a buffer bounded in bytes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from math import inf
from random import Random

import anyio
from anyio.abc import TaskGroup

from ...config import ClientConfig
from ...core.backoff import Backoff, retry_backoff
from ...core.cluster.avoided_replicas import AvoidedReplicas
from ...core.counters import FetchCounters
from ...core.fetch.buffer import FetchBuffer
from ...core.fetch.partition.fetched_partition import Limits
from ...core.fetch.planner import FetchPlanner, Plans
from ...core.fetch.refusals import FetchRefusals
from ...core.fetch.response import SESSION_ERRORS
from ...core.fetch.session import FetchPlan, FetchSession
from ...core.fetch.stall_watch import patience
from ...core.subscription.offset_reset import OffsetReset
from ...core.subscription.position import PartitionPosition
from ...core.subscription.state import Subscription
from ...error_codes import ErrorCode
from ...errors import (
    AuthenticationFailed,
    ConnectionFailed,
    KafkaError,
    MalformedResponse,
    RequestTimedOut,
    broker_error,
)
from ...net.pool import Pool, Purpose
from ...net.reply import others_first
from ...types import TopicPartition
from ...wire import prepare
from ...wire.lone_fetch import prepare_lone_fetch
from ...wire.messages.fetch import FetchRequest, FetchResponse
from ..aio.complaints import Complaints
from ..aio.signal import Signal
from ..aio.time_slice import TimeSlice, let_others_run
from ..cluster.metadata import Metadata
from ..positions.resets import PositionResets
from ..positions.validator import PositionValidator
from .collector import FetchCollector
from .leader_search import LeaderSearch
from .response_handler import FetchResponseHandler
from .standstill import Standstill

logger = logging.getLogger("aiokc.fetch")
prepare(FetchRequest, in_slices=True)
prepare_lone_fetch()

# Planning looks at so many partitions between two looks at the clock (some 0.5 ms), and lets other tasks run after so
# many seconds. The Fetches that it finds are sent in the same step as the last partitions are looked at.
_LOOK_AT_ONCE = 200
_LOOK_SECONDS = 0.001

# If an answer changed no more partitions than this, the next Fetch is sent in the same step.
_FOLLOW_AT_ONCE = 32

# How long to wait until a fetch session is closed: a healthy broker answers in less.
_CLOSE_SECONDS = 0.5

_GARBLED_IN_A_ROW = 3


class Fetcher:
    """Fetches the assigned partitions of a subscription; ``collector`` hands their records out.

    ``arrived`` is notified when the application may get something: records, or an error. ``lost`` is notified when a
    position may have to be found anew. ``wake`` is for others to notify: something to plan for has happened.
    """

    def __init__(
        self,
        config: ClientConfig,
        pool: Pool,
        metadata: Metadata,
        subscription: Subscription,
        random: Random,
        *,
        reset: OffsetReset | None = None,
        sessions: bool = True,
        counters: FetchCounters | None = None,
        avoided: AvoidedReplicas | None = None,
    ) -> None:
        self.arrived = Signal()
        self.lost = Signal()
        self.wake = Signal()
        self.counters = counters or FetchCounters()
        self._config = config
        self._pool = pool
        self._metadata = metadata
        self._subscription = subscription
        self._new_backoff = partial(retry_backoff, config, random)
        self._buffer = FetchBuffer(
            Limits(config.check_crcs, config.max_decompressed_batch_bytes, unpacks_ahead=config.has_reader_thread),
            pool.buffers,
            budget=config.fetch_buffer_bytes,
        )
        counts_for = config.retry_backoff_max_ms / 1e3 + patience(config)
        self._refusals = FetchRefusals(subscription, self._new_backoff, counts_for)
        self._planner = FetchPlanner(
            subscription, self._buffer, config, sessions=sessions, avoided=avoided, refusals=self._refusals
        )
        self.collector = FetchCollector(
            config, subscription, self._buffer, self.counters, self.wake, self.arrived, self._planner.avoided
        )
        self._lost = PositionResets(subscription, self._buffer, reset or OffsetReset("none"), time.time)
        buffer, planner, refusals, lost = self._buffer, self._planner, self._refusals, self._lost
        self._response_handler = FetchResponseHandler(
            config, metadata, subscription, buffer, planner, lost, refusals, self.counters, self._complain, time.time
        )
        self._validator = PositionValidator(
            config, pool, metadata, subscription, self._buffer, random, self._lost.truncated
        )
        for signal in (self.wake, self.arrived, self.lost):
            self._validator.done.followed_by(signal)
        self._busy: dict[int, int] = {}  # brokers with a Fetch in flight, and how many bytes that may bring
        self._beside: dict[int, int] = {}  # the same for the Fetches beside those (FetchBeside)
        self._leader_search = LeaderSearch(metadata, self._new_backoff(), logger)
        self.standstill = Standstill(
            config, pool, metadata, buffer, planner, self.collector, refusals, self.counters, self._busy.keys()
        )
        self._closed = False
        self._tasks: TaskGroup | None = None
        self._connecting: set[int] = set()
        self._news = False  # something has come for the application, and `arrived` was not notified yet
        self._look_again_at = inf
        self._backoffs: dict[int, Backoff] = {}
        self._complaints = Complaints(logger)
        self._garbled: Counter[int] = Counter()

    def heard_at(self, tp: TopicPartition) -> float | None:
        """When a broker last told the end of ``tp``, in seconds since the epoch; None: the end is not known."""
        position = self._subscription[tp]
        if position.high_watermark is None:
            return None
        return max((at for at in (position.heard_at, self._planner.heard_at(tp)) if at is not None), default=None)

    # For health() and metrics(), which any thread may call

    @property
    def buffered(self) -> tuple[int, int]:
        """How many bytes the fetch buffer uses, and how many offsets of the assigned partitions it covers."""
        return self._buffer.bytes, self._buffer.offsets(self._subscription)

    def refusal(self, now: float) -> KafkaError | None:
        """Why a broker sends no records that it is asked for, though it answers; None where none does that."""
        return self._refusals.newest(lambda node_id: bool(self._planner.wanted(node_id)), now)

    # Fetching

    async def run(self) -> None:
        """Keep a Fetch in flight to each broker that leads a partition which may be fetched now."""
        async with anyio.create_task_group() as tasks:
            self._tasks = tasks
            tasks.start_soon(self._validator.run)
            while True:
                await self._look()
                notified = self.wake.notified
                self._send(tasks)
                if self.wake.notified != notified:  # what the collector has settled makes room, or more is to settle
                    await let_others_run()
                    continue
                at = self._look_again_at
                await self.wake.wait(None if at == inf else at - asyncio.get_running_loop().time())

    def close(self) -> None:
        """Send no further Fetch, and open no further large batch."""
        self._closed = True
        self.collector.opening.close()

    def connect_to(self, node_ids: Iterable[int]) -> None:
        """Connect to these brokers ahead of the first Fetch: the positions of partitions that they lead are looked up.

        Otherwise the first record would come later by the handshakes of TCP, TLS and SASL.
        """
        if self._tasks is not None and not self._closed:
            for node_id in frozenset(node_ids) - self._connecting - self._busy.keys():
                self._connecting.add(node_id)
                self._tasks.start_soon(self._connect, node_id)

    async def _connect(self, node_id: int) -> None:
        try:
            await self._pool.connection(node_id, Purpose.FETCH, timeout=self._config.request_timeout_ms / 1e3)
        except KafkaError as error:
            logger.debug("broker %d is not connected ahead of its first Fetch: %s", node_id, error)
        finally:
            self._connecting.discard(node_id)

    async def close_sessions(self) -> None:
        """Tell the brokers to close this consumer's fetch sessions (KIP-227). Takes 0.5 s at most, and raises nothing.

        A broker keeps a limited number of sessions: one that is left open takes another client's place until the broker
        evicts it. Brokers to which no connection is ready are left out.
        """
        with anyio.move_on_after(_CLOSE_SECONDS):
            async with anyio.create_task_group() as tasks:
                for plan in self._planner.closings():
                    tasks.start_soon(self._close_session, plan)

    async def _close_session(self, plan: FetchPlan) -> None:
        connection = self._pool.prompt_connection(plan.node_id)
        if connection is None:
            return
        try:
            request = plan.request(connection.usable_version(FetchRequest), self._config)
            await connection.request(request, timeout=_CLOSE_SECONDS)
        except KafkaError as error:
            logger.debug("broker %d: its fetch session %d was not closed: %s", plan.node_id, plan.session[0], error)

    async def _look(self) -> None:
        """Plan anew for the touched partitions, letting other tasks run every ms. No await follows the last look."""
        loop = asyncio.get_running_loop()
        since = now = loop.time()
        self._subscription.next_retry(now)  # touches the partitions whose retry is due
        while self._look_at(now, _LOOK_AT_ONCE) or loop.time() - since > _LOOK_SECONDS:
            if loop.time() - since > _LOOK_SECONDS:
                await asyncio.sleep(0)
                # Another task may have touched a partition meanwhile because its retry is due, and there is no second
                # alarm. Looked at with the time from before, the partition would have to wait still: for ever.
                since = now = loop.time()

    def _look_at(self, now: float, most: int) -> bool:
        """Plan anew for up to ``most`` touched partitions; return whether there are more of them."""
        looked = self._planner.look(self._metadata.cluster, now, most)
        for tp, token in looked.recreated:
            self._lost.recreated(tp, token)
            self._news = True
        return looked.more

    def _send(self, tasks: TaskGroup, own: int | None = None) -> FetchPlan | None:
        """Send the planned Fetches, and notify ``arrived`` of what has come. Sets ``_look_again_at``.

        Return the Fetch to broker ``own``, which the caller has to send; None where there is none.
        """
        subscription = self._subscription
        if subscription.is_locating:
            self._validator.wake.notify()
        mine: FetchPlan | None = None
        self._look_again_at = inf
        if not self._closed:
            now = asyncio.get_running_loop().time()
            plans = self._planner.plan(self._busy, now, self.collector.demand, self._beside)
            self.collector.left_out(plans.resume_at)
            if plans.fetches:
                self.collector.sent()
            # Mark all brokers as busy before any Fetch is sent: a task that starts at once, and fails at once, would
            # plan for the others.
            for plan in plans.fetches:
                (self._beside if plan.is_beside else self._busy)[plan.node_id] = plan.max_bytes
            for plan in plans.fetches:
                if plan.is_beside:
                    tasks.start_soon(self._fetch_beside, plan)
                elif plan.node_id == own:
                    mine = plan
                else:
                    tasks.start_soon(self._converse, plan, tasks)
            self._look_again_at = self._next_look(plans, now)
        # Notify after the next Fetch: its task was started, or is running, before the application's. So the broker
        # works on the next answer while the application works on this one.
        self._tell()
        return mine

    def _tell(self) -> None:
        """Notify ``arrived``, and ``lost``, of what has come."""
        if self._news:
            self._news = False
            if self._subscription.is_locating:
                self.lost.notify()
            self.arrived.notify()

    def _next_look(self, plans: Plans, now: float) -> float:
        next_retry = self._subscription.next_retry(now)
        retries = [inf if next_retry is None else next_retry, plans.retry_at, plans.beside_at]
        if plans.without_leader:
            retries.append(self._leader_search.go_on(plans.without_leader, now))
        else:
            self._leader_search.over()
        if self._subscription.has_touched:  # a retry has become due since `_look` read the clock
            return now
        return min([retry for retry in retries if retry > now], default=inf)

    async def _converse(self, plan: FetchPlan, tasks: TaskGroup) -> None:
        """Send one Fetch after the other to a broker, as long as the next one can be planned in the answer's step.

        If the application waits, and the answer is little, it gets that first: to plan and to send takes longer than to
        hand a few records out. Where it falls behind, answers become longer, and the next Fetch is sent first.
        """
        following: FetchPlan | None = plan
        while following is not None:
            was_little = await self._fetch(following)
            if was_little and self._news and self.collector.waits:
                self._tell()
                await others_first()  # the application's task
            following = self._follow(plan.node_id, tasks)

    def _follow(self, node_id: int, tasks: TaskGroup) -> FetchPlan | None:
        """Return the next Fetch to a broker that has answered; None: there is none, or ``run`` was woken to plan."""
        now = asyncio.get_running_loop().time()
        if self._look_again_at <= now or self._look_at(now, _FOLLOW_AT_ONCE):
            self.wake.notify()
            return None
        waits_until = self._look_again_at
        plan = self._send(tasks, node_id)
        if self._look_again_at < waits_until:
            self.wake.notify()
        return plan

    async def _fetch(self, plan: FetchPlan) -> bool:
        """Send one Fetch and store its answer. Failures are logged, and retried after growing pauses.

        Return whether the answer brought little, and all that there was.
        """
        session = self._planner.session(plan.node_id)
        answered = was_little = False
        try:
            response = await self._request(plan, Purpose.FETCH)
            answered = True
            answers = session.answered(response)
            if answers is None:
                self._refusals.asked_in_vain(plan.session.asked, asyncio.get_running_loop().time())
                await self._refused(response, plan, session)
            else:
                self._backoffs.pop(plan.node_id, None)
                self._garbled.pop(plan.node_id, None)
                self._refusals.forget_broker(plan.node_id)
                session.heard_at = time.time()
                self.counters.heard[plan.node_id] = asyncio.get_running_loop().time()
                was_little = await self._response_handler.take_in(answers, response, plan)
                self._news = self._news or bool(answers)
        except (ConnectionFailed, RequestTimedOut, AuthenticationFailed) as error:
            # The application hears of refused credentials by the client (LoginPolicy), not in place of its records.
            self._refusals.forget_broker(plan.node_id)  # what it said before is not what is wrong now
            self._complain(f"broker {plan.node_id}", error)
            await self._back_off(plan)
        except MalformedResponse as error:
            # One garbled answer may be an accident on the way. Several in a row mean a broker that needs attention.
            self._garbled[plan.node_id] += 1
            self._refusals.broker_refused(plan.node_id, error)
            if self._garbled[plan.node_id] < _GARBLED_IN_A_ROW:
                self._complain(f"broker {plan.node_id}", error)
                await self._back_off(plan)
            else:
                await self._fail(plan, error)
        except KafkaError as error:
            # A retry does not help (versions): the application gets the error in place of the records.
            await self._fail(plan, error)
        except asyncio.CancelledError:
            if not answered:
                self._abandon(plan)
            raise
        finally:
            if not answered:
                session.failed()
                self._refusals.asked_in_vain(plan.session.asked, asyncio.get_running_loop().time())
            del self._busy[plan.node_id]
        return was_little

    async def _fetch_beside(self, plan: FetchPlan) -> None:
        """Send a Fetch beside the one that a broker parks, and store its answer (FetchBeside).

        It goes over the connection for what is answered at once. If it fails, nothing is lost but time: the next Fetch
        of the session asks for the same, and finds out what is wrong.
        """
        session = self._planner.session_beside(plan.node_id)
        try:
            response = await self._request(plan, Purpose.DATA)
            answers = session.answered(response)
            if answers:
                await self._response_handler.take_in(answers, response, plan)
                self._news = True
                self._tell()
        except KafkaError as error:
            logger.debug("broker %d: a Fetch beside another one failed: %s", plan.node_id, error)
        finally:
            del self._beside[plan.node_id]
            self.wake.notify()

    async def _request(self, plan: FetchPlan, purpose: Purpose) -> FetchResponse:
        with self.counters.fetches.attempt(asyncio.get_running_loop().time):
            return await self._pool.request_made(
                plan.node_id,
                FetchRequest,
                lambda version: plan.request(version, self._config),
                purpose=purpose,
                timeout=self._config.request_timeout_ms / 1e3,
                max_version=plan.session.max_version,
                at_once=True,
            )

    async def _refused(self, response: FetchResponse, plan: FetchPlan, session: FetchSession) -> None:
        """Drop an answer that refuses the request. A lost session is opened anew: at once, unless that just failed."""
        broker = f"broker {plan.node_id}"
        if response.error_code == ErrorCode.NONE:
            problem: KafkaError = MalformedResponse(f"{broker} answered a Fetch for other partitions than were asked")
        else:
            problem = broker_error(response.error_code, f"fetching from {broker}")
        logger.debug("%s: fetch session %d ends: %s", broker, plan.session.session_id, problem)
        if session.is_refused or response.error_code not in SESSION_ERRORS:
            self._complain(broker, problem)
            self._refusals.broker_refused(plan.node_id, problem)
            await self._back_off(plan)

    def _complain(self, about: str, error: KafkaError) -> None:
        """Log an error that will be retried, at most every 30 s for each broker and topic."""
        self._complaints.warn(about, "%s; trying again", error)

    async def _back_off(self, plan: FetchPlan) -> None:
        """Leave the broker alone for a while. What others may be asked for is looked at again."""
        backoff = self._backoffs.get(plan.node_id)
        if backoff is None:
            backoff = self._backoffs[plan.node_id] = self._new_backoff()
        self._metadata.disprove_leader(plan.node_id)
        now = asyncio.get_running_loop().time()
        self._planner.rest(plan.node_id, now, backoff.next(), now - plan.planned_at)
        self._metadata.request_update()

        def leave(tp: TopicPartition, position: PartitionPosition) -> None:
            if position.read_replica == plan.node_id:
                self._subscription.read_from(tp, None)  # the leader may be well (KIP-392)
            elif (leader := self._metadata.cluster.leader(tp)) is None or leader.node_id != plan.node_id:
                self._subscription.touch(tp)  # only a response had named this broker as its leader

        await self._for_each_wanted(plan, leave)

    def _abandon(self, plan: FetchPlan) -> None:
        """A read of ranges ends before the answer has come: by its own timeout, perhaps, because a replica is silent.

        The next read must not lose as much time to that. What the broker may have waited for records does not count.
        """
        now = asyncio.get_running_loop().time()
        silent = now - plan.planned_at - plan.max_wait_ms / 1e3
        if silent > 0:
            self._planner.rest(plan.node_id, now, 0.0, silent)

    async def _fail(self, plan: FetchPlan, error: KafkaError) -> None:
        """Have the application get the error, once, for all that is to be fetched from the broker.

        A call may raise it before all partitions have it. The others are tried again with those that had it.
        """

        def fail(tp: TopicPartition, position: PartitionPosition) -> None:
            if error in self.collector.raised:
                at = asyncio.get_running_loop().time() + self._config.retry_backoff_ms / 1e3
                self._subscription.retry_later((tp,), at)
            else:
                self._buffer.fail(tp, position, error)

        await self._for_each_wanted(plan, fail)
        self._news = True

    async def _for_each_wanted(self, plan: FetchPlan, act: Callable[[TopicPartition, PartitionPosition], None]) -> None:
        """Call ``act`` for all that is to be fetched from a broker, letting other tasks run after each time slice."""
        time, time_slice = asyncio.get_running_loop().time, TimeSlice.begun()
        for target in self._planner.wanted(plan.node_id):
            if time() > time_slice.ends:
                await time_slice.give_way()
            position = self._subscription.get(target.tp, target.token)
            if position is not None:
                act(target.tp, position)
