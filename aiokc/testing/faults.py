"""Faults of single requests: refuse, delay, drop, cut off, garble or hold what ``Cluster.intercept`` catches.

``Cluster.intercept`` itself, and the faults of brokers, leaders and logs, are in cluster/running_brokers.py. How each
API is refused with an ErrorCode is in brokers/refusals.py.

    cluster.intercept(FetchRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3)
    cluster.intercept(ApiKey.OFFSET_COMMIT, lose_answer(), times=1, where=lambda exchange: exchange.broker == 2)

A fault is an ErrorCode, the result of one of the functions here, or a function of the test. Such a function gets the
`Exchange` and may be async. It returns the response to send, or an ErrorCode to refuse the request with, or None. With
None the broker handles the request as usual, unless the function has already settled the exchange.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias
from uuid import UUID

from ..error_codes import ErrorCode
from ..wire import Request, Response
from ..wire.messages.discovery import MetadataRequest, MetadataResponse
from ..wire.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from ..wire.primitives import NO_UUID
from .brokers.exchange import Exchange
from .cluster.hosting import Flag

__all__ = [
    "Fault",
    "Hold",
    "Interception",
    "Verdict",
    "Where",
    "delay",
    "deliver_late",
    "disconnect",
    "drop",
    "garble",
    "half_frame",
    "lose_answer",
    "refuse_afterwards",
    "refuse_partition",
    "reject_records",
    "stale_leader",
    "throttle",
]

Verdict: TypeAlias = Response | ErrorCode | None
Fault: TypeAlias = ErrorCode | Callable[[Exchange], Verdict | Awaitable[Verdict]]
Where: TypeAlias = Callable[[Exchange], bool]


def delay(seconds: float) -> Fault:
    """The broker handles the request ``seconds`` later, also if its connection has ended by then.

    cluster.intercept(ApiKey.FETCH, delay(0.5))  # the broker is busy
    """
    return _Delay(seconds)


@dataclass(frozen=True)
class _Delay:
    seconds: float

    async def __call__(self, exchange: Exchange) -> None:
        await asyncio.sleep(self.seconds)


def throttle(milliseconds: int) -> Fault:
    """The answer carries ``throttle_time_ms``, and the broker reads nothing from the client for that long (KIP-219).

    cluster.intercept(ApiKey.FETCH, throttle(2000), times=1)  # a quota is used up
    """

    async def fault(exchange: Exchange) -> None:
        response: Any = await exchange.handle()
        if response is not None:
            response.throttle_time_ms = milliseconds
        await exchange.answer(response)
        await asyncio.sleep(milliseconds / 1000)

    return fault


def drop() -> Fault:
    """The broker never handles the request and never answers it; the connection stays open and silent.

    cluster.intercept(ApiKey.HEARTBEAT, drop(), times=1)  # a firewall forgot the connection
    """
    return Exchange.never


def lose_answer() -> Fault:
    """The broker handles the request, and the connection breaks before the answer is sent.

    cluster.intercept(ApiKey.OFFSET_COMMIT, lose_answer(), times=1)  # committed, and the client does not know it
    """

    async def fault(exchange: Exchange) -> None:
        await exchange.handle()
        exchange.abort()

    return fault


def deliver_late(seconds: float) -> Fault:
    """The connection breaks at once; the request was under way, and the broker handles it ``seconds`` later.

    A broker that is taken down meanwhile never does.

    cluster.intercept(ApiKey.END_TXN, deliver_late(2.0), times=1)  # it must not end the next transaction
    """

    def fault(exchange: Exchange) -> None:
        async def handle() -> None:
            await asyncio.sleep(seconds)
            await exchange.handle()

        exchange.outlive(handle())

    return fault


def refuse_afterwards(code: ErrorCode) -> Fault:
    """The broker handles the request, and answers with ``code`` all the same.

    cluster.intercept(ApiKey.PRODUCE, refuse_afterwards(ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND), times=1)

    The answer to a Produce has the offsets at which the records are stored, as that of a leader has which loses the
    partition after the append. What the broker has refused itself keeps its error.
    """

    async def fault(exchange: Exchange) -> Verdict:
        response = await exchange.handle()
        if not isinstance(response, ProduceResponse):
            return exchange.refusal(code) if response is not None else None
        for topic in response.responses:
            for partition in topic.partition_responses:
                partition.error_code = partition.error_code or code
        return response

    return fault


def refuse_partition(topic: str, partition: int, code: ErrorCode) -> Fault:
    """The broker refuses one partition of a Produce, and handles the others.

    cluster.intercept(ApiKey.PRODUCE, refuse_partition("events", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
    """

    async def fault(exchange: Exchange) -> Verdict:
        whole = exchange.call
        request: ProduceRequest = whole.request
        topic_id = whole.cluster.topics.id_of(topic)
        are_refused = [
            [one for one in data.partition_data if one.index == partition] if _is_of(data, topic, topic_id) else []
            for data in request.topic_data
        ]
        exchange.call = replace(whole, request=_without(request, are_refused))
        response = await exchange.handle()
        exchange.call = whole
        if response is None:  # acks=0
            exchange.abort()
            return None
        assert isinstance(response, ProduceResponse)
        answers = {(one.name, one.topic_id): one for one in response.responses}  # with ACLs not in the request's order
        for data, refused in zip(request.topic_data, are_refused, strict=True):
            answers[data.name, data.topic_id].partition_responses += [
                PartitionProduceResponse(index=one.index, error_code=code, base_offset=-1) for one in refused
            ]
        return response

    return fault


def _is_of(data: TopicProduceData, topic: str, topic_id: UUID) -> bool:
    return data.name == topic if data.topic_id == NO_UUID else data.topic_id == topic_id


def _without(request: ProduceRequest, removed: list[list[PartitionProduceData]]) -> ProduceRequest:
    return ProduceRequest(
        transactional_id=request.transactional_id,
        acks=request.acks,
        timeout_ms=request.timeout_ms,
        topic_data=[
            TopicProduceData(
                name=data.name,
                topic_id=data.topic_id,
                partition_data=[one for one in data.partition_data if one not in gone],
            )
            for data, gone in zip(request.topic_data, removed, strict=True)
        ],
    )


def reject_records(messages: Mapping[int, str]) -> Fault:
    """The broker refuses a Produce because of some records of its batches: their messages, by index (KIP-467).

    cluster.intercept(ApiKey.PRODUCE, reject_records({2: "no such schema"}), times=1)
    """

    def fault(exchange: Exchange) -> Verdict:
        response = exchange.refusal(ErrorCode.INVALID_RECORD)
        assert isinstance(response, ProduceResponse)
        for topic in response.responses:
            for partition in topic.partition_responses:
                partition.error_message = "One or more records have been rejected"
                partition.record_errors = [
                    BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
                    for index, message in messages.items()
                ]
        return response

    return fault


def disconnect() -> Fault:
    """The connection breaks before the broker handles the request.

    cluster.intercept(ApiKey.METADATA, disconnect(), times=2)  # the first two attempts fail
    """
    return Exchange.abort


def half_frame() -> Fault:
    """The broker handles the request, sends half of the answer, and closes the connection.

    cluster.intercept(ApiKey.FETCH, half_frame(), times=1)  # the broker dies while it answers
    """

    async def fault(exchange: Exchange) -> None:
        response = await exchange.handle()
        if response is not None:
            frame = exchange.frame(response)
            await exchange.answer_bytes(frame[: len(frame) // 2])
        exchange.close()

    return fault


def garble() -> Fault:
    """The broker handles the request; its answer has the right length and correlation id, and random bytes as body.

    cluster.intercept(ApiKey.METADATA, garble(), times=1)  # my service logs it and goes on
    """

    async def fault(exchange: Exchange) -> None:
        response = await exchange.handle()
        if response is None:
            return
        frame = exchange.frame(response)
        head = 8  # length, correlation id
        await exchange.answer_bytes(frame[:head] + exchange.random.randbytes(len(frame) - head))

    return fault


def stale_leader() -> Fault:
    """The broker has outdated leaders: Metadata names another replica of each partition, and the epoch before.

    Partitions that have had one leader only (epoch 0) are left as they are: an epoch has one leader. The broker
    refuses any other request with NOT_LEADER_OR_FOLLOWER.

        cluster.intercept(ApiKey.METADATA, stale_leader(), times=3)  # the broker has not heard of an election yet
    """

    async def fault(exchange: Exchange) -> Verdict:
        if not isinstance(exchange.request, MetadataRequest):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        for topic in response.topics:
            for partition in topic.partitions:
                if partition.leader_epoch < 1:
                    continue
                others = [node for node in partition.replica_nodes if node != partition.leader_id]
                partition.leader_id = others[0] if others else partition.leader_id
                partition.leader_epoch -= 1
        return response

    return fault


class Hold:
    """The requests wait until the test calls ``release``, from any thread; then the broker handles them.

    It handles them also if their connections have ended meanwhile, unless it was taken down. ``heal`` of the cluster
    ends the wait of those that it finds, as if no fault had caught them.

    hold = Hold()
    cluster.intercept(OffsetCommitRequest, hold)
    await hold.arrived()  # the commit is under way
    ...
    hold.release()
    """

    def __init__(self) -> None:
        self._arrived = Flag()
        self._released = Flag()

    async def __call__(self, exchange: Exchange) -> None:
        self._arrived.set()
        await self._released.wait()

    async def arrived(self) -> None:
        """Wait until the first request is held."""
        await self._arrived.wait()

    def release(self) -> None:
        """Let the broker handle the requests that wait, and all later ones at once."""
        self._released.set()


@dataclass(eq=False)
class Interception:
    """One fault that ``intercept`` set up, and the requests that get it. ``hits`` counts the requests caught."""

    api_key: int
    fault: Fault
    times: int | None = None
    where: Where | None = None
    hits: int = 0

    def __post_init__(self) -> None:
        if not callable(self.fault) and not isinstance(self.fault, ErrorCode):
            raise TypeError(f"{self.fault!r} is no fault: give an ErrorCode, one of `faults`, or a function")
        self._wanted: dict[int, Flag] = {}  # by number of hits
        self._waits: set[asyncio.Future[Verdict]] = set()  # of requests that a fault holds up, and does nothing else to

    def cancel(self) -> None:
        """Catch no more requests."""
        self.times = 0

    def heal(self) -> None:
        """Catch no more requests, and let those go on that wait in a delay or a Hold. In the cluster's thread."""
        self.cancel()
        for wait in self._waits:
            wait.cancel()

    @property
    def exhausted(self) -> bool:
        return self.times is not None and self.hits >= self.times

    async def caught(self, hits: int = 1) -> None:
        """Wait until ``hits`` requests have been caught. Any thread's event loop may wait."""
        flag = self._wanted.setdefault(hits, Flag())  # made before hits is read: another thread may count it up
        if self.hits < hits:
            await flag.wait()

    def catches(self, exchange: Exchange) -> bool:
        """Return whether this interception catches the request, and count it if so."""
        if self.exhausted or exchange.request.api_key != self.api_key:
            return False
        if self.where is not None and not self.where(exchange):
            return False
        self.hits += 1
        awaited = self._wanted.pop(self.hits, None)
        if awaited is not None:
            awaited.set()
        return True

    async def apply(self, exchange: Exchange) -> None:
        """Carry out the fault."""
        verdict = self.fault if isinstance(self.fault, ErrorCode) else self.fault(exchange)
        if inspect.isawaitable(verdict):
            verdict = await (self._unless_healed(verdict) if isinstance(self.fault, Hold | _Delay) else verdict)
        if exchange.settled:
            return
        if isinstance(verdict, ErrorCode):
            verdict = exchange.refusal(verdict)
        if callable(verdict):
            raise TypeError(f"a fault returned {verdict!r}: call it where you give it to intercept(), as in delay(0.2)")
        if verdict is None:
            await exchange.go_on()  # not handle(): a Produce that the fault has handled would be in the log twice
        else:
            await exchange.answer(verdict)

    async def _unless_healed(self, fault: Awaitable[Verdict]) -> Verdict:
        """Wait for a fault that only waits; None where ``heal`` ends that."""
        wait = asyncio.ensure_future(fault)
        self._waits.add(wait)
        try:
            await asyncio.wait([wait])
            return None if wait.cancelled() else wait.result()
        finally:
            wait.cancel()
            self._waits.discard(wait)


def api_key_of(api: Any) -> int:
    """Return the API key for an API key or a request class."""
    if isinstance(api, int):
        return int(api)
    if not (isinstance(api, type) and issubclass(api, Request)):
        raise TypeError(f"{api!r} is no API: give an ApiKey, such as ApiKey.FETCH")
    return api.api_key
