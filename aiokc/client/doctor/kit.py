"""What all steps of an examination use: the client's own TLS contexts, credentials and logins, and the time left."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from math import inf
from random import Random
from typing import Any, Final, TypeVar

import anyio

from ...config import ClientConfig, ConsumerConfig
from ...core.doctor.reaching import Endpoint
from ...core.sasl.mechanism import Mechanism
from ...errors import KafkaError
from ...net.connection import Connection
from ...net.credentials.credentials import Credentials
from ...net.options import ConnectionOptions
from ...net.own_thread import OwnThread
from ...net.tls.contexts import TlsContexts

T = TypeVar("T")

_CLIENT_ID: Final = "aiokc-doctor"
#: The longest answer that is read of anything but a Fetch. The metadata of a topic with 100,000 partitions fit.
_LONGEST_ANSWER: Final = 16 << 20
#: No single wait may use up more than this share of the time that is left, so that every step says what it waited for.
_SHARE: Final = 1 / 3
_LOOKED_AT_TOGETHER: Final = 16


class Kit:
    """Connects as the client does, step by step. ``close`` it at the end."""

    def __init__(self, config: ClientConfig, *, group: str | None, seconds: float) -> None:
        """``seconds``: the time for the whole examination; ``group``: the one that is looked at.

        Raises ConfigError for options that name no credentials.
        """
        self.config = config
        #: The protocol that the client would join the group by; None: no group is looked at.
        self.group_protocol: str | None = None
        if group is not None:
            self.group_protocol = config.effective_group_protocol if isinstance(config, ConsumerConfig) else "classic"
        self.tls = TlsContexts(config) if config.uses_tls else None
        self.credentials = Credentials(config, random=Random()) if config.uses_sasl else None
        self._thread = OwnThread("aiokc doctor") if config.uses_sasl else None
        self._loop = asyncio.get_running_loop()
        self.deadline = self._loop.time() + seconds
        self._connections: list[Connection] = []
        self._anonymous = ConnectionOptions(
            client_id=config.client_id or _CLIENT_ID,
            max_response_bytes=min(config.longest_response_bytes, _LONGEST_ANSWER),
            resolve=config.resolve,
            tls=self.tls,
        )
        self._login: dict[str, Any] = {
            "credentials": self.credentials,
            "thread": self._thread,
            "random": Random(),
        }

    # Time

    def now(self) -> float:
        """The loop's time, in seconds."""
        return self._loop.time()

    @staticmethod
    def unix_time() -> float:
        """The seconds since the epoch, by which certificates and tokens are valid."""
        return time.time()

    def patience(self, most: float = inf) -> float:
        """Return how many seconds to wait for one answer: as the client does, and at most a third of what is left."""
        configured = self.config.socket_connection_setup_timeout_ms / 1e3
        return max(min(configured, most, (self.deadline - self.now()) * _SHARE), 0.001)

    # Connections

    async def connect(
        self,
        endpoint: Endpoint,
        target: tuple[str, int],
        *,
        mechanism: Mechanism | None = None,
        for_records: bool = False,
    ) -> Connection:
        """Return a connection to one address of an endpoint. Raises KafkaError, as Connection.open does.

        Without a ``mechanism`` the client does not log in. ``for_records``: answers may be as long as those that the
        client accepts; without it they may have 16 MiB.
        """
        options = self._anonymous if mechanism is None else replace(self._anonymous, **self._login)
        if for_records:
            options = replace(options, max_response_bytes=self.config.longest_response_bytes)
        connection = await Connection.open(
            endpoint.subject,
            target,
            options,
            timeout=self.patience(),
            server_hostname=self.server_name(endpoint.host),
            mechanism=mechanism,
        )
        self._connections.append(connection)
        return connection

    def server_name(self, host: str) -> str:
        """Return the name that the certificate at ``host`` must be for. Raises ConnectionFailed: there can be none."""
        return host if self.tls is None else self.tls.server_name(host)

    def release(self, connection: Connection) -> None:
        """Close a connection that no later step uses."""
        if connection in self._connections:
            self._connections.remove(connection)
        connection.close()

    async def close(self) -> None:
        """Close all connections, and end the threads."""
        for connection in self._connections:
            connection.close()
        for owner in (self.tls, self._thread):
            if owner is not None:
                owner.close()
        try:
            async with asyncio.timeout(1.0):
                for connection in self._connections:
                    await connection.wait_closed()
        except TimeoutError:
            return  # all were aborted: the loop closes their sockets


async def together(work: Sequence[Callable[[], Coroutine[Any, Any, T]]]) -> list[T]:
    """Return the results of ``work``, in its order; some of it is done at a time."""
    results: dict[int, T] = {}
    limiter = anyio.CapacityLimiter(_LOOKED_AT_TOGETHER)

    async def one(number: int, do: Callable[[], Coroutine[Any, Any, T]]) -> None:
        async with limiter:
            results[number] = await do()

    async with anyio.create_task_group() as tasks:
        for number, do in enumerate(work):
            tasks.start_soon(one, number, do)
    return [results[number] for number in range(len(work))]


def without_name(error: KafkaError, endpoint: Endpoint) -> str:
    """Return the text of an error without the broker's name at its beginning: a finding has it as its subject."""
    return str(error).removeprefix(endpoint.subject).lstrip(": ")
