"""One asyncio connection to one broker: the handshake, pipelined requests with deadlines, throttling, the end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, TypeVar

from ..core.connection.handshake import Greeting, handshake
from ..core.connection.in_flight import InFlightRequests
from ..core.connection.late_alarm import LateAlarm
from ..core.connection.traffic import NodeTraffic
from ..core.sasl.mechanism import Mechanism
from ..core.versions import AnyRequest, VersionRange, api_name
from ..errors import ConnectionFailed, KafkaError, RequestTimedOut, fresh
from ..wire import Request, Response
from ..wire.lone_batch import LoneBatch
from ..wire.messages.produce import ProduceResponse
from .addresses import Address, create_connection
from .handshake_order import handshake_limit
from .login.dialogue import carry_out
from .login.endings import SessionEnded, about_credentials, failure_of, unanswered_text, why_it_ended, why_not_connected
from .login.reauthentication import SaslSession, Start, no_owner
from .options import SOFTWARE, ConnectionOptions, Route
from .reply import Awaited, Reply, Waiter, Written, decoded, decoded_at_once, denies
from .user_errors import cancellation_is_ours

R = TypeVar("R", bound=Response)


class Connection:
    """Requests and replies of one connection; ``name`` is the broker's name in error messages.

    Once ``closed``, the connection stays closed, and ``error`` says why (None: close() was called). A request may be
    cancelled at any moment: the connection remains usable. Create it with ``open``.
    """

    def __init__(
        self, name: str, options: ConnectionOptions, on_closed: Callable[[Connection], None] | None = None
    ) -> None:
        self.name = name
        self.error: KafkaError | None = None
        self.greeting = Greeting({}, {})
        self.route: Route | None = None
        self.traffic = NodeTraffic()  # from the end of the handshake on that of the broker: see Node.connected
        self.muted_until = 0.0
        self.admits_until = inf  # this and the two below belong to the SASL session: see Line
        self.doubts_from, self.doubts_before = inf, -inf
        self._loop = asyncio.get_running_loop()
        self.last_used = self._loop.time()
        self._on_closed = on_closed
        self._pipeline: InFlightRequests[Waiter] = InFlightRequests(name, options.client_id)
        self._transport = options.transport(self._receive, self._lost)
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._alarm: asyncio.Handle | None = None  # uvloop: a plain Handle, no TimerHandle, for a time that is due
        self._alarm_at = inf
        self._late_alarm = LateAlarm()
        self._not_yet_sent = 0
        self._retiring = False
        self._session: SaslSession | None = None
        self._in_turn: Waiter | None = None  # of the request whose time begins when it is the first in flight
        self._patience = 0.0  # seconds for that one
        self._options = options
        self._host = ""  # the name that the broker's certificate is for
        self._first_after_greeting = -1  # the correlation id
        self.has_served = True  # False: it ended at the first request after the handshake, and so may others there

    @classmethod
    async def open(
        cls,
        name: str,
        address: Address,
        options: ConnectionOptions,
        *,
        timeout: float,
        server_hostname: str,
        mechanism: Mechanism | None = None,
        on_closed: Callable[[Connection], None] | None = None,
        start: Start = no_owner,
    ) -> Connection:
        """Connect to one address and return once the handshake is over, by TLS and SASL as far as wanted.

        Raises ConnectionFailed (after ``timeout`` seconds at the latest), MalformedResponse, AuthenticationFailed.
        ``mechanism``: the credentials to log in with. ``on_closed`` is called once, when a connection that was returned
        has ended for any reason. ``start`` runs the renewal of its SASL session in a task; without it the connection
        lasts for one session.
        """
        self = cls(name, options)
        self._host = server_hostname
        credentials = options.credentials
        try:
            await self._open(address, options, timeout, server_hostname, mechanism)
            if self.closed:
                # Bytes that came with the last answer of the handshake have ended it. on_closed is not set yet, so the
                # owner would take it for a good connection, and make the next one without a pause.
                raise self.error or ConnectionFailed(f"{name} closed the connection right after the handshake")
        except BaseException as error:
            self.close()
            if credentials is not None and mechanism is not None and about_credentials(error):
                credentials.refused(mechanism)
            raise
        if credentials is not None and mechanism is not None and self.greeting.session is not None:
            assert options.random is not None, "credentials come with a Random"
            self._patience = max(timeout, options.renewal_timeout)  # of several addresses each had a share of it
            self._session = SaslSession(
                self,
                self.greeting.session,
                mechanism,
                credentials,
                host=server_hostname,
                thread=options.thread,
                random=options.random,
                start=start,
                logins=options.logins,
            )
        self.route = Route(name, address, server_hostname)
        self._on_closed = on_closed
        return self

    async def _open(
        self,
        address: Address,
        options: ConnectionOptions,
        timeout: float,
        server_hostname: str,
        mechanism: Mechanism | None,
    ) -> None:
        missing = "connection" if options.tls is None else "TLS connection"
        try:
            context = None if options.tls is None else await options.tls.get()
            tls: dict[str, Any] = {}
            if context is not None:
                # The limit of asyncio itself (60 s) is to be no shorter than ours, which covers the whole handshake.
                tls = {"ssl": context, "server_hostname": server_hostname, "ssl_handshake_timeout": timeout + 60.0}
            async with handshake_limit(timeout, lambda: self._pipeline.next_id):
                await create_connection(lambda: self._transport, address, **tls)
                missing = unanswered_text(mechanism)
                await self._greet(options, mechanism)
        except KafkaError:  # first: some of them are OSErrors too
            raise
        except (OSError, ValueError, RuntimeError, asyncio.CancelledError) as error:
            if isinstance(error, asyncio.CancelledError) and cancellation_is_ours():
                raise
            missing += f" within {timeout:.3g} s"
            raise why_not_connected(error, self.name, server_hostname, options, missing) from error

    async def _greet(self, options: ConnectionOptions, mechanism: Mechanism | None) -> None:
        dialogue = handshake(
            broker=self.name,
            software_name=SOFTWARE[0],
            software_version=SOFTWARE[1],
            mechanism=mechanism,
            clock=self._loop.time,
        )

        async def ask(request: AnyRequest, version: int) -> memoryview:
            return await self._exchange(request, version, inf)

        try:
            self.greeting = await carry_out(dialogue, ask, options.thread)
        except ConnectionFailed as error:
            if not self.closed:
                raise
            hint = "is it a Kafka listener, and a plaintext one?"
            if options.tls is not None:
                hint = "is it a Kafka listener, and a TLS one, or does it want a certificate (ssl_keystore_location)?"
            raise ConnectionFailed(f"{error}: {hint}") from error
        self._pipeline.versions = self.greeting.versions
        self._first_after_greeting = self._pipeline.next_id

    # Requests

    async def request(self, request: Request[R], *, timeout: float, max_version: int | None = None) -> R:
        """Return the broker's response, in the highest version that both sides speak, at most ``max_version``.

        Raises RequestTimedOut after ``timeout`` seconds. If the request was sent by then, the timeout ends the
        connection: replies come in order, so no later request would be answered either. Raises ConnectionFailed if
        the connection breaks, MalformedResponse for a reply that can't be decoded, and UnsupportedVersion.
        """
        version = self.usable_version(type(request), max_version)
        return await self.ask(request, version, self._loop.time() + timeout)

    async def ask(self, request: Request[R], version: int, deadline: float, *, at_once: bool = False) -> R:
        """Do as ``request``, in a ``version`` that both sides speak, until ``deadline`` on the loop's clock.

        ``at_once``: the caller goes on within the callback that reads the reply, not one iteration of the loop later.
        It should soon wait again.
        """
        request_type = type(request)
        now = self._loop.time()
        if now >= deadline or not self.can_write:
            await self._permission_to_write(api_name(request_type), deadline - now, deadline)
        body = await self._exchange(request, version, deadline, at_once)
        response = decoded_at_once(request_type, version, body, self.name)
        response = response or await decoded(request_type, version, body, self.name)
        self._throttle(response)
        if self._is_late(now) and await self._is_doubtful(response, now, deadline):
            return await self.ask(request, version, deadline, at_once=at_once)
        return response

    def _is_late(self, sent_at: float) -> bool:
        return self.last_used >= self.doubts_from or sent_at < self.doubts_before

    async def _is_doubtful(self, response: Response, sent_at: float, deadline: float) -> bool:
        """Return whether it is a denial that may have been due to the age of the session, which is then a new one.

        Some authorizers look at the token that the session began with, and deny near its end what it allows. So before
        a denial is believed, what was denied is sent once more.
        """
        return self._session is not None and await denies(response) and await self._session.renew(sent_at, deadline)

    def usable_version(self, request_type: type[Request[Any]], max_version: int | None = None) -> int:
        """Return the highest version of an API that both sides speak. Raises UnsupportedVersion."""
        return self._pipeline.usable_version(request_type, max_version)

    @property
    def versions(self) -> Mapping[int, VersionRange]:
        """The versions that the broker offers, by API key."""
        return self._pipeline.versions

    @property
    def in_flight(self) -> int:
        """How many requests wait for a reply, or to be sent; a cancelled one counts until its reply has come."""
        return len(self._pipeline) + self._not_yet_sent

    @property
    def closed(self) -> bool:
        return self._gone.done()

    @property
    def usable(self) -> bool:
        """Whether new requests are accepted."""
        return not (self.closed or self._retiring)

    def rename(self, name: str) -> None:
        """Use another name for the broker in messages: a bootstrap server turned out to be this broker."""
        self.name = self._pipeline.broker = name
        if self.route is not None:
            self.route = self.route._replace(name=name)

    def close(self) -> None:
        """End the connection now. Requests in flight fail with ConnectionFailed."""
        self._end(None)

    def retire(self) -> None:
        """Accept no more requests, and close as soon as those in flight are answered."""
        self._retiring = True
        self._close_if_spent()

    def lose_owner(self) -> None:
        """The task that renews its SASL session has ended: the connection lasts as long as the broker serves it."""
        if self._session is not None:
            self._session.lose_owner()

    def end_session(self, error: SessionEnded) -> None:
        """End the connection now, since its SASL session is over."""
        self._end(error)

    async def wait_closed(self) -> None:
        """Return when the connection has ended and its socket is closed."""
        await self._transport.wait_closed()

    # Sending

    async def _permission_to_write(self, api: str, timeout: float, deadline: float) -> None:
        """Return when a request may be written: the broker reads from the socket, and does not throttle this client."""
        if timeout <= 0:
            raise RequestTimedOut(f"{self.name}: {api} not sent, no time is left for it")
        if self._retiring:
            raise ConnectionFailed(f"{self.name}: {api} not sent, the connection is about to be closed")
        self._check_open(api)
        self._not_yet_sent += 1
        session = self._session
        try:
            async with asyncio.timeout_at(deadline):
                while True:
                    await self.calm()
                    self._check_open(api)
                    if session is None or self._loop.time() < self.admits_until or await session.admission():
                        break  # if it asked for admission, it has not waited, so nothing else has changed
        except TimeoutError as error:
            why = self._not_written_because()
            raise RequestTimedOut(f"{self.name}: {api} could not be sent within {timeout:.3g} s: {why}") from error
        finally:
            self._not_yet_sent -= 1
            self._loop.call_soon(self._close_if_spent)  # not now: the caller first puts its request in flight

    def _not_written_because(self) -> str:
        muted = self.muted_until - self._loop.time()
        if muted > 0:
            return f"it throttles this client for {muted:.3g} s more"
        if not self._transport.can_write:
            return "it does not read what is sent"
        return "the SASL session has to be renewed before, and that takes too long"

    async def calm(self) -> None:
        """Return when the broker reads from the socket and does not throttle this client, or the connection is closed.

        KIP-219: the broker stops reading from a client that it throttles. A request sent now would use up its timeout
        in a socket buffer.
        """
        while not self.closed and (not self._transport.can_write or self.muted_until > self._loop.time()):
            await self._transport.writable()
            await asyncio.wait((self._gone,), timeout=self.muted_until - self._loop.time())

    def _check_open(self, api: str) -> None:
        if self.closed:
            why = f": {self.error}" if self.error is not None else ""
            kind = SessionEnded if isinstance(self.error, SessionEnded) else ConnectionFailed
            raise kind(f"{self.name}: {api} not sent, the connection is closed{why}") from self.error

    async def _exchange(
        self, request: Request[Any], version: int, deadline: float, at_once: bool = False
    ) -> memoryview:
        """Write a request and return the body of its reply. No other task runs before the await."""
        waiter = Awaited(Reply(loop=self._loop), self._loop.time(), deadline, at_once)
        _, frame = self._pipeline.send(request, version, waiter)
        self._watch(waiter)
        self._transport.write(frame)
        return await waiter.reply

    def _watch(self, waiter: Waiter) -> None:
        self.last_used = waiter.sent_at
        if waiter.deadline < self._alarm_at:
            self._set_alarm(waiter.deadline)

    # Requests whose order matters: each is written when the caller says so, and answered in that order

    @property
    def can_write(self) -> bool:
        """Whether a request may be written this moment."""
        return self.can_write_at(self._loop.time())

    def can_write_at(self, now: float) -> bool:
        """Do as ``can_write``, for a caller who knows the loop's time."""
        is_usable = not (self._retiring or self._gone.done()) and self._transport.can_write
        return is_usable and self.muted_until <= now < self.admits_until

    async def until_writable(self, deadline: float) -> None:
        """Wait until ``can_write``. Raises ConnectionFailed, and RequestTimedOut at the deadline."""
        await self._permission_to_write("a request", deadline - self._loop.time(), deadline)

    def write(self, request: Request[R], waiter: Written[R]) -> None:
        """Write a request now, behind all in flight: ``can_write`` is true. ``answer`` then has its response."""
        parts = self._pipeline.send_in_parts(request, waiter.version, waiter)
        self._watch(waiter)
        self._transport.write_parts(parts)

    def write_lone(self, lone: LoneBatch, records: bytearray, waiter: Written[ProduceResponse]) -> None:
        """Do as ``write`` with a Produce request of one batch."""
        parts = self._pipeline.send_lone(lone, records, waiter)
        self.last_used = waiter.sent_at  # as _watch() does: one call less on the way of a record
        if waiter.deadline < self._alarm_at:
            self._set_alarm(waiter.deadline)
        if len(parts) == 1:
            self._transport.write(parts[0])
        else:
            self._transport.write_parts(parts)

    def write_unanswered(self, request: Request[Any], version: int) -> None:
        """Write a request that the broker does not answer (Produce with acks=0): ``can_write`` is true."""
        self._transport.write_parts(self._pipeline.send_in_parts(request, version, None))
        self.last_used = self._loop.time()

    def answer_at_once(self, written: Written[R]) -> R | None:
        """Return what ``answer`` would, where nothing takes time; None: it has to be awaited."""
        if self._is_late(written.sent_at):
            return None
        response = decoded_at_once(written.request_type, written.version, written.result(), self.name)
        if response is not None:
            self._throttle(response)
        return response

    async def answer(self, written: Written[R]) -> tuple[R, bool]:
        """Return the response to what has ended, and whether to send again what it denies. Raises as ``request``."""
        response = await decoded(written.request_type, written.version, written.result(), self.name)
        self._throttle(response)
        sent_at, deadline = written.sent_at, written.deadline
        return response, self._is_late(sent_at) and await self._is_doubtful(response, sent_at, deadline)

    async def ask_in_turn(self, request: AnyRequest, version: int) -> memoryview:
        """Write a request behind what is in flight, and return the body of its reply; for the SASL session alone.

        Its time begins to run when all requests before it are answered: a JoinGroup may be parked for minutes.
        """
        waiter = Awaited(Reply(loop=self._loop), self._loop.time(), inf, at_once=False)
        _, frame = self._pipeline.send(request, version, waiter)
        self._in_turn = waiter
        self._watch_turn()
        self._transport.write(frame)
        return await waiter.reply

    def _watch_turn(self) -> None:
        """If the request of ``ask_in_turn`` is now the first in flight, its time begins, after a throttle (KIP-219)."""
        waiter, first = self._in_turn, next(iter(self._pipeline), None)
        if waiter is None or first is None or first.waiter is not waiter:
            return
        if waiter.deadline == inf:
            waiter.sent_at = self._loop.time()
        waiter.deadline = max(waiter.sent_at, self.muted_until) + self._patience
        if waiter.deadline < self._alarm_at:
            self._set_alarm(waiter.deadline)

    def _set_alarm(self, at: float) -> None:
        """Set the one timer of all requests. It fires at the earliest deadline or sooner, and is then set again.

        Most requests are answered long before their deadline, so a timer for each would be wasted.
        """
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(at, self._expire, at) if at < inf else None
        self._alarm_at = at

    def _expire(self, due: float) -> None:
        """Fail the request whose deadline has passed, and end the connection.

        Replies come in order: if this one does not come, no later one will.
        """
        self._alarm, self._alarm_at = None, inf
        now = self._loop.time()
        first = min(self._pipeline, key=lambda exchange: exchange.waiter.deadline, default=None)
        if first is None:
            return
        if first.waiter.deadline > now:
            return self._set_alarm(first.waiter.deadline)
        received = next(iter(self._pipeline)).correlation_id, self._transport.partial
        if (more := self._late_alarm.extension(now - due, received)) > 0:
            return self._set_alarm(now + more)
        error = RequestTimedOut(f"{self.name}: no answer to {first} within {now - first.waiter.sent_at:.3g} s")
        first.waiter.failed(fresh(error))
        self._end(error)

    # Receiving

    def _receive(self, frame: memoryview) -> None:
        exchange, body = self._pipeline.receive(frame)
        if exchange.correlation_id == self._first_after_greeting and self.route is not None:
            self._options.answered.add(self.route.address)
        waiter = exchange.waiter
        self.last_used = now = self._loop.time()
        self.traffic.requests.add(now - waiter.sent_at)
        if self._in_turn is waiter:
            self._in_turn = None
        elif self._in_turn is not None:
            self._watch_turn()
        if self._retiring:
            self._close_if_spent()
        waiter.reply_came(body, now)

    def _throttle(self, response: Response) -> None:
        throttle_ms: int = getattr(response, "throttle_time_ms", 0)
        if throttle_ms > 0:
            self.muted_until = max(self.muted_until, self._loop.time() + self.traffic.throttled(throttle_ms))
            self._watch_turn()  # what was written before the throttle was known is read after it

    # Ending

    def _lost(self, error: Exception | None) -> None:
        """The transport ended: the peer or the network closed it, or the bytes received were not Kafka's protocol."""
        if self._pipeline.error is not None:
            return self._end(self._pipeline.error)  # its message begins with the broker's name already
        session, first = self._session, next(iter(self._pipeline), None)
        self.has_served = first is None or first.correlation_id != self._first_after_greeting
        if not self.has_served and self.route is not None:
            self.has_served = self._options.ended_by_chance(self.route.address)
        self._end(
            why_it_ended(
                error,
                self.name,
                self._host,
                self._options,
                is_greeted=bool(self.greeting.versions),
                is_due=session is not None and session.is_due(self._loop.time()),
                is_by_token=session is not None and session.is_by_token,
                at_first_request=not self.has_served and not self._transport.partial,
            )
        )

    def _end(self, error: KafkaError | None) -> None:
        if self.closed:
            return
        self._gone.set_result(None)
        self._set_alarm(inf)
        self._in_turn = None
        self.error = error
        closed = error or ConnectionFailed(f"{self.name}: the connection was closed here")
        now = self._loop.time()
        for exchange in self._pipeline.poison(closed):
            exchange.waiter.failed(failure_of(exchange, closed, now - exchange.waiter.sent_at))
        self._transport.abort()
        if self._session is not None:
            self._session.close()
        if self._on_closed is not None:
            self._on_closed(self)

    def _close_if_spent(self) -> None:
        if self._retiring and self.in_flight == 0:
            self.close()
