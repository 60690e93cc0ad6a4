"""Finds the broker that coordinates a group or a transactional id (FindCoordinator), and sends it their requests."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import TypeVar

from ...config import ClusterConfig
from ...core.backoff import retry_backoff
from ...core.cluster.coordinators import ONE_KEY, KeyType, coordinator_of, coordinator_request, refusal
from ...core.connection.denied_roles import DeniedRoles
from ...core.versions import VersionRange
from ...error_codes import ErrorCode
from ...errors import (
    BrokerError,
    ConnectionFailed,
    KafkaError,
    MalformedResponse,
    RequestTimedOut,
    UnsupportedVersion,
)
from ...net.connection import Connection
from ...net.options import Route
from ...net.pool import Pool, Purpose
from ...types import Broker
from ...wire import Request, Response, prepare
from ...wire.messages.discovery import FindCoordinatorRequest, FindCoordinatorResponse
from ..aio.complaints import Complaints

R = TypeVar("R", bound=Response)

prepare(FindCoordinatorRequest, version=ONE_KEY)


class CoordinatorLookup:
    """The coordinator of one group, or transactional id: looked up when a request needs it, and again after ``forget``.

    If a coordinator is forgotten as soon as it was found, it is in trouble, or does not know yet that it is the
    coordinator. All requests to it (heartbeats, commits, joins) wait for the same lookup: so the growing pause before
    that lookup limits how often all of them are sent.
    """

    def __init__(
        self,
        config: ClusterConfig,
        pool: Pool,
        key: str,
        random: Random,
        request_metadata: Callable[[], None],
        *,
        key_type: KeyType = KeyType.GROUP,
    ) -> None:
        self._config = config
        self._pool = pool
        self._key = key
        self._key_type = key_type
        self._name = f"{key_type} {key!r}"
        self._logger = logging.getLogger("aiokc.group" if key_type is KeyType.GROUP else "aiokc.transactions")
        #: The finalized features (KIP-584) that the coordinator named when the connection to it was made.
        self.features: Mapping[str, int] = {}
        #: The versions of APIs that it offered then, by API key.
        self.versions: Mapping[int, VersionRange] = {}
        self._backoff = retry_backoff(config, random)
        self._found_at = -math.inf
        self._request_metadata = request_metadata
        self._node_id: int | None = None
        self._last_node_id: int | None = None
        self._denied = DeniedRoles()
        # The last coordinator was forgotten though it can be reached: it has answered that it is none, or has left a
        # member unanswered for its session, or a check. Maybe the connection has reached another broker.
        self._is_doubted = False
        self._looking = asyncio.Lock()
        self._last_error: KafkaError | None = None
        #: The error code of the last broker that answered. The caller's deadline may cut a later attempt short.
        self._last_answer: BrokerError | None = None
        self._complaints = Complaints(self._logger)

    @property
    def error(self) -> KafkaError | None:
        """Why the last lookup found no coordinator; None once one was found, or before any failed."""
        return self._last_error

    @property
    def node_id(self) -> int | None:
        """The coordinator, as far as it is known at the moment."""
        return self._node_id

    async def coordinator(self, timeout: float) -> int:
        """Return the coordinator's node id. All callers wait for the same lookup.

        Raises RequestTimedOut after ``timeout`` seconds, and at once an error that no retry can cure:
        AuthorizationFailed, AuthenticationFailed, UnsupportedVersion, BrokerError.
        """
        if self._node_id is not None:
            return self._node_id
        deadline = asyncio.get_running_loop().time() + timeout
        try:
            async with asyncio.timeout_at(deadline), self._looking:
                return await self._look_up(deadline)
        except TimeoutError as error:
            raise RequestTimedOut(f"no coordinator found for {self._name} within {timeout:.3g} s{self._why()}") from (
                self._last_error or error
            )

    def _why(self) -> str:
        if self._last_error is None:
            return ""
        is_last = self._last_answer in (None, self._last_error)
        return f": {self._last_error}" + ("" if is_last else f"; the last answer of a broker was: {self._last_answer}")

    async def connect(self, timeout: float) -> None:
        """Connect to the coordinator for heartbeats, offsets and commits before a request needs that. Raises nothing.

        Does nothing where the coordinator is not known.
        """
        if self._node_id is not None:
            with suppress(KafkaError):  # the first request tries again, and raises
                await self._pool.connection(self._node_id, Purpose.COORDINATOR, timeout=timeout)

    def route(self) -> Route | None:
        """Return the route to the coordinator that was found last, also while it is looked up anew; None: none was."""
        return None if self._last_node_id is None else self._pool.route(self._last_node_id)

    def forget(self, node_id: int | None) -> None:
        """Have the next request look the coordinator up anew, if it is ``node_id`` (None: whichever it is).

        Where brokers name the same one again and again, it is connected to anew: it did not answer as a coordinator.
        """
        if self._node_id is not None and node_id in (None, self._node_id):
            self._logger.debug("%s: looking its coordinator up anew (it was broker %d)", self._name, self._node_id)
            self._node_id, self._is_doubted = None, True

    def lost(self, node_id: int, *, is_there: bool = False) -> None:
        """The coordinator gave no valid answer. Unless it ``is_there``, it may be at another address by now.

        The lookup that follows does not tell the pool: of a broker that the metadata name, only they say where it is.
        """
        self.forget(node_id)
        self._is_doubted = False
        if not is_there:
            self._request_metadata()

    async def check(self, timeout: float) -> None:
        """Ask the last coordinator whether it is that still. Forget it unless it says so. Raises nothing.

        A JoinGroup that it parks fails with ConnectionFailed then: it may never be answered. No other broker is asked:
        one that has frozen, or has restarted, may still be the one that they name. A call with a short timeout may have
        made this forget it: that says nothing about the JoinGroup.
        """
        node_id = self._last_node_id if self._node_id is None else self._node_id
        if node_id is None:
            return
        try:
            named = (await self._named_by(node_id, timeout)).node_id
            why = f"it names broker {named}"
        except KafkaError as error:
            named, why = None, str(error)
        if named != node_id and self._node_id in (None, node_id):
            # The next lookup may name a broker that is down or frozen again, and the next check says this again.
            text = "%s: broker %d is not its coordinator any more: %s"
            self._complaints.warn("check", text, self._name, node_id, why)
            self.forget(node_id)
            self._pool.drop(node_id, Purpose.JOIN)

    async def ask(
        self,
        request_type: type[Request[R]],
        build: Callable[[int], Request[R]],
        *,
        timeout: float,
        purpose: Purpose = Purpose.COORDINATOR,
        max_version: int | None = None,
        repeatable: bool = True,
    ) -> tuple[int, R]:
        """Send the coordinator the request that ``build(version)`` makes; return its node id and its response.

        Raises what ``coordinator`` and the pool raise. If the coordinator gives no valid response, it is forgotten.
        ``repeatable``: as in ``Pool.request_made``.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        node_id = await self.coordinator(timeout)
        connection: Connection | None = None
        try:
            connection = await self._pool.connection(node_id, purpose, timeout=deadline - loop.time())
            self.features, self.versions = connection.greeting.features, connection.versions
            version = connection.usable_version(request_type, max_version)
            request = build(version)
            return node_id, await self._pool.request_made(
                node_id,
                request_type,
                lambda version: request,
                purpose=purpose,
                timeout=deadline - loop.time(),
                max_version=version,
                repeatable=repeatable,
            )
        except (ConnectionFailed, RequestTimedOut, MalformedResponse) as error:
            self.lost(node_id, is_there=connection is not None and not isinstance(error, RequestTimedOut))
            raise
        except asyncio.CancelledError:
            if purpose is Purpose.JOIN and connection is not None:
                # The broker answers later requests only after the JoinGroup that it has parked. If the SASL session of
                # this connection had ended, it went out over the next one.
                connection.close()
                self._pool.drop(node_id, purpose)
            raise

    async def _look_up(self, deadline: float) -> int:
        loop = asyncio.get_running_loop()
        if loop.time() - self._found_at > self._config.retry_backoff_max_ms / 1e3:
            self._backoff.reset()  # the last one found has worked for a while
        elif self._node_id is None:
            await asyncio.sleep(self._backoff.next())
        while self._node_id is None:
            timeout = min(deadline - loop.time(), self._config.request_timeout_ms / 1e3)
            try:
                self._node_id = self._found(await self._named_by(None, timeout))
            except KafkaError as error:
                if not error.retriable:
                    raise
                self._last_error = error
                if isinstance(error, BrokerError):
                    self._last_answer = error
                # A cluster that never had a group, or a transaction, answers so until it has created the topic
                # __consumer_offsets, or __transaction_state.
                level = logging.INFO if _is_first_of_all(error) else logging.WARNING
                self._complaints.warn("lookup", "%s: no coordinator yet: %s", self._name, error, at_first=level)
                await asyncio.sleep(self._backoff.next())
        return self._node_id

    def _found(self, broker: Broker) -> int:
        if broker.node_id != self._last_node_id:
            if self._last_node_id is not None:
                self._pool.drop(self._last_node_id, Purpose.JOIN)  # it may never answer what it parks
            self._logger.info("%s: broker %d is its coordinator", self._name, broker.node_id)
        elif self._is_doubted and self._denied.note_denied_role(broker.node_id, asyncio.get_running_loop().time()):
            self._pool.reach_anew(broker.node_id)
        self._is_doubted = False
        self._pool.introduce(broker)  # so that the member can join before the first metadata are there
        if not self._pool.has_at(broker):
            # A broker that has moved. Another one may be at its former address, and answer that it is no coordinator.
            self._request_metadata()
        self._last_node_id = broker.node_id
        self._found_at = asyncio.get_running_loop().time()
        self._last_error = self._last_answer = None
        self._complaints.forget("lookup")
        return broker.node_id

    async def _named_by(self, node_id: int | None, timeout: float) -> Broker:
        """Return the broker that ``node_id`` (None: any broker) names as the coordinator."""
        try:
            request = coordinator_request(self._key_type, [self._key], ONE_KEY)
            response = await self._answer(node_id, request, timeout, ONE_KEY)
        except UnsupportedVersion:  # the broker has dropped the versions that ask for one key
            request = coordinator_request(self._key_type, [self._key], ONE_KEY + 1)
            response = await self._answer(node_id, request, timeout, None)
        found = coordinator_of(self._key, request, response)
        if error := refusal(self._key_type, found):
            raise error
        return Broker(found.node_id, found.host, found.port)

    async def _answer(
        self, node_id: int | None, request: FindCoordinatorRequest, timeout: float, max_version: int | None
    ) -> FindCoordinatorResponse:
        if node_id is not None:
            return await self._pool.request(
                node_id, request, purpose=Purpose.COORDINATOR, timeout=timeout, max_version=max_version
            )
        # The last broker has named none, or one that had to be forgotten.
        again = self._last_answer is not None or self._last_node_id is not None
        return await self._pool.any_broker(
            FindCoordinatorRequest, lambda version: request, timeout=timeout, max_version=max_version, again=again
        )


def _is_first_of_all(error: KafkaError) -> bool:
    return isinstance(error, BrokerError) and error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
