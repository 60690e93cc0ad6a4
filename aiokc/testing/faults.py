"""Faults on demand: what to intercept, and what happens to it instead of the right answer.

    cluster.intercept(FetchRequest, ErrorCode.NOT_LEADER_OR_FOLLOWER, times=3)
    cluster.intercept(ApiKey.OFFSET_COMMIT, lose_answer(), times=1, where=lambda exchange: exchange.broker == 2)

A fault is an ErrorCode, one of the functions here, or a function of one's own: it gets the `Exchange`, may be async,
and returns the response to send, or an ErrorCode to refuse with, or None: the request is then handled as ever, unless
the function has settled the exchange by itself.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from ..error_codes import ErrorCode
from ..wire import Request, Response
from ..wire.messages.discovery import MetadataRequest, MetadataResponse
from .brokers.exchange import Exchange
from .cluster.hosting import Flag

Verdict: TypeAlias = Response | ErrorCode | None
Fault: TypeAlias = ErrorCode | Callable[[Exchange], Verdict | Awaitable[Verdict]]
Where: TypeAlias = Callable[[Exchange], bool]


def delay(seconds: float) -> Fault:
    """The request is handled ``seconds`` later.

    cluster.intercept(ApiKey.FETCH, delay(0.5))  # a broker that is busy
    """

    async def fault(exchange: Exchange) -> None:
        await asyncio.sleep(seconds)

    return fault


def throttle(milliseconds: int) -> Fault:
    """The answer says that the client is throttled, and the broker does not listen to it for so long (KIP-219).

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
    """The request is never handled and never answered; the connection stays open and silent.

    cluster.intercept(ApiKey.HEARTBEAT, drop(), times=1)  # a firewall forgot the connection
    """
    return Exchange.never


def lose_answer() -> Fault:
    """The request is handled, and the connection breaks before the answer has gone out.

    cluster.intercept(ApiKey.OFFSET_COMMIT, lose_answer(), times=1)  # committed, and nobody knows
    """

    async def fault(exchange: Exchange) -> None:
        await exchange.handle()
        exchange.abort()

    return fault


def disconnect() -> Fault:
    """The connection breaks, and the request was not handled.

    cluster.intercept(ApiKey.METADATA, disconnect(), times=2)  # the first two attempts fail
    """
    return Exchange.abort


def half_frame() -> Fault:
    """The request is handled, half of the answer arrives, and the connection closes.

    cluster.intercept(ApiKey.FETCH, half_frame(), times=1)  # a broker dies while it answers
    """

    async def fault(exchange: Exchange) -> None:
        response = await exchange.handle()
        if response is not None:
            frame = exchange.frame(response)
            await exchange.answer_bytes(frame[: len(frame) // 2])
        exchange.close()

    return fault


def garble() -> Fault:
    """The request is handled, and its answer has the right length and correlation id, and noise for a body.

    cluster.intercept(ApiKey.METADATA, garble(), times=1)  # my service logs it, and goes on
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
    """The broker believes in the leaders of yesterday: for Metadata, the next replica of each partition, an epoch ago.

    Any other request is refused with NOT_LEADER_OR_FOLLOWER.

        cluster.intercept(ApiKey.METADATA, stale_leader(), times=3)  # an election that not all have heard of
    """

    async def fault(exchange: Exchange) -> Verdict:
        if not isinstance(exchange.request, MetadataRequest):
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        for topic in response.topics:
            for partition in topic.partitions:
                others = [node for node in partition.replica_nodes if node != partition.leader_id]
                partition.leader_id = others[0] if others else partition.leader_id
                partition.leader_epoch = max(0, partition.leader_epoch - 1)
        return response

    return fault


class Hold:
    """Requests wait until they are released; then they are handled. Any thread may release them.

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
        """Wait until a request is held."""
        await self._arrived.wait()

    def release(self) -> None:
        """Let go what waits, and what is still to come."""
        self._released.set()


@dataclass(eq=False)
class Interception:
    """What ``intercept`` set up. ``hits`` counts the requests that it caught."""

    api_key: int
    fault: Fault
    times: int | None = None
    where: Where | None = None
    hits: int = 0

    def __post_init__(self) -> None:
        self._wanted: dict[int, Flag] = {}  # by number of hits

    def cancel(self) -> None:
        """Catch nothing any more."""
        self.times = 0

    @property
    def exhausted(self) -> bool:
        return self.times is not None and self.hits >= self.times

    async def caught(self, hits: int = 1) -> None:
        """Wait until it has caught so many requests; in the loop of any thread."""
        flag = self._wanted.setdefault(hits, Flag())  # before the look at hits, which another thread may raise
        if self.hits < hits:
            await flag.wait()

    def catches(self, exchange: Exchange) -> bool:
        """Whether this request is to be caught; it is counted then."""
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
        """Let the fault happen."""
        verdict = self.fault if isinstance(self.fault, ErrorCode) else self.fault(exchange)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if exchange.settled:
            return
        if isinstance(verdict, ErrorCode):
            verdict = exchange.refusal(verdict)
        await exchange.answer(verdict if verdict is not None else await exchange.handle())


def api_key_of(api: int | type[Request[Any]]) -> int:
    """Return the number of an API, given as such or as its request."""
    return int(api) if isinstance(api, int) else api.api_key
