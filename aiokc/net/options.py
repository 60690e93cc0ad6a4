"""What all connections of a client have in common, and how one broker was reached."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from typing import Final, NamedTuple

from ..config import ClusterConfig, Resolve
from ..core.backoff import Chance
from ..core.cluster.home_cluster import HomeCluster
from ..core.connection.login_policy import LoginPolicy
from ..wire import FrameBuffers
from .addresses import Address
from .credentials.credentials import Credentials
from .own_thread import OwnThread
from .tls.contexts import TlsContexts
from .transport import FrameTransport


def _software_version() -> str:
    try:
        return metadata.version("aiokc").replace("+", "-")  # KIP-511 allows letters, digits, dots and dashes
    except metadata.PackageNotFoundError:
        return "source"  # imported from a checkout that was never installed


#: Name and version of this client, as it tells them to brokers (KIP-511).
SOFTWARE: Final = ("aiokc", _software_version())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionOptions:
    """What all connections of a client have in common.

    ``tls`` is None for plaintext. ``credentials`` is None without SASL, and comes with the ``thread`` for what must not
    hold the event loop, the ``random`` that spreads re-authentications, and ``logins``, the clock of all logins. A
    broker may take ``renewal_timeout`` seconds for each answer of a re-authentication, or longer if the connection was
    given longer to be made. Long frames are received into ``buffers``, by the loop's reader thread if there is to be
    one (``reader_thread``). ``home`` is the cluster that all of them are to lead to; None where any will do.
    ``answered``: the addresses where a request after the handshake has had an answer, until a connection ends there at
    its first one.
    """

    client_id: str
    max_response_bytes: int
    resolve: Resolve | None = None
    tls: TlsContexts | None = None
    credentials: Credentials | None = None
    thread: OwnThread | None = None
    random: Chance | None = None
    logins: LoginPolicy | None = None
    renewal_timeout: float = 10.0
    buffers: FrameBuffers | None = None
    reader_thread: bool = False
    home: HomeCluster | None = None
    answered: set[Address] = field(default_factory=set, compare=False)

    def takes_no_login(self, address: Address) -> bool:
        """Whether the listener there has served this client without a login: so it does not ask for one."""
        return self.credentials is None and address in self.answered

    def ended_by_chance(self, address: Address) -> bool:
        """Whether a connection may have ended at its first request by chance: not where the one before has, too.

        Then the listener may have changed, and want a login now.
        """
        by_chance = self.takes_no_login(address)
        self.answered.discard(address)
        return by_chance

    def transport(
        self, on_frame: Callable[[memoryview], None], on_lost: Callable[[Exception | None], None]
    ) -> FrameTransport:
        """Return the protocol of one connection."""
        return FrameTransport(
            self.max_response_bytes, on_frame, on_lost, self.buffers, reader_thread=self.reader_thread
        )


class Route(NamedTuple):
    """How a broker was reached: its name in messages, the address that answered, the name its certificate must have."""

    name: str
    address: Address
    server_hostname: str


def tls_of(config: ClusterConfig) -> TlsContexts | None:
    """Return what makes the SSLContext of the client's connections; None in plaintext."""
    return TlsContexts(config) if config.uses_tls else None


def credentials_of(config: ClusterConfig, random: Chance) -> Credentials | None:
    """Return what the client authenticates with; None without SASL."""
    return Credentials(config, random=random) if config.uses_sasl else None
