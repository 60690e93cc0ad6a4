"""``VirtualNetwork``: listeners and the links from hosts to them, in memory; a link can be slow, cut or reset.

    link = loop.network.link("client", port)
    link.latency = (0.1, 0.3)   # seconds, drawn anew for each segment
    link.cut(); link.mend()     # bytes sent meanwhile arrive late, as TCP retransmits them
    link.reset()                # every connection of the link breaks

A host is a name (see `hosts`). Bytes stay in order within a connection, but not between connections.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import socket
from collections.abc import Callable
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final

from .hosts import current_host, host_of
from .transport import VirtualTransport

Address = tuple[str, int]

_FIRST_PORT: Final = 30_000
_FIRST_CLIENT_PORT: Final = 50_000


class Link:
    """The way between a host and a listener, with all connections between the two."""

    def __init__(self, network: VirtualNetwork, host: str, listener: Address) -> None:
        self.host = host
        self.listener = listener
        self.latency: tuple[float, float] | None = None  # None: the network's
        self.is_cut = False
        self.transports: dict[VirtualTransport, None] = {}
        self._network = network
        self._waiting: list[asyncio.Future[None]] = []

    def cut(self) -> None:
        """Let nothing through from now on. Neither side notices."""
        self.is_cut = True

    def mend(self) -> None:
        """Let everything through again, also the bytes that were sent while the link was cut."""
        self.is_cut = False
        for transport in self.transports:
            transport.link_mended()
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def reset(self) -> None:
        """Break all connections; both sides see a reset."""
        for transport in list(self.transports):
            transport.broken()

    def delay(self) -> float:
        """Return a random latency for the next segment, in seconds."""
        low, high = self.latency or self._network.latency
        return self._network.random.uniform(low, high)

    async def passes(self) -> None:
        """Return when one packet has passed the link; on a link that is cut this waits."""
        while self.is_cut:
            mended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append(mended)
            await mended
        await asyncio.sleep(self.delay())


class VirtualServer(asyncio.AbstractServer):
    """A listener, as ``loop.create_server`` returns it."""

    def __init__(self, network: VirtualNetwork, factory: Callable[[], Any], address: Address) -> None:
        self.context = copy_context()
        self.factory = factory
        self.address = address
        self._network = network
        self._closed = asyncio.Event()

    @property
    def sockets(self) -> tuple[Any, ...]:
        """A stand-in for the listening socket, which has getsockname()."""
        return () if self._closed.is_set() else (VirtualSocket(self.address),)

    def close(self) -> None:
        """Stop listening; connections stay open."""
        self._network.listeners.pop(self.address, None)
        self._closed.set()

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self._network.loop

    def is_serving(self) -> bool:
        return not self._closed.is_set()

    async def start_serving(self) -> None:
        """Do nothing: it has been serving since it was created."""

    async def serve_forever(self) -> None:
        await self._closed.wait()

    async def wait_closed(self) -> None:
        await self._closed.wait()


class VirtualSocket:
    """A stand-in for a socket: it has an address, and nothing else."""

    def __init__(self, address: Address) -> None:
        self._address = address

    def getsockname(self) -> Address:
        return self._address


class VirtualNetwork:
    """All hosts, listeners and connections of one loop.

    ``latency`` has the bounds of a segment's latency (seconds), ``segment_bytes`` is its largest size. ``names`` has
    the addresses of host names, for getaddrinfo.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.latency = (0.0001, 0.001)
        self.segment_bytes = 65_536
        self.names: dict[str, list[str]] = {}
        self.listeners: dict[Address, VirtualServer] = {}
        self._links: dict[tuple[str, Address], Link] = {}
        self._ports = iter(range(_FIRST_PORT, _FIRST_CLIENT_PORT))
        self._client_port = _FIRST_CLIENT_PORT

    # What tests call

    def link(self, host: str, port: int, address: str = "127.0.0.1") -> Link:
        """Return the link from ``host`` to the listener at ``port``, also where neither has been used yet."""
        key = (host, (address, port))
        if key not in self._links:
            self._links[key] = Link(self, *key)
        return self._links[key]

    @property
    def links(self) -> list[Link]:
        return list(self._links.values())

    def transports_of(self, host: str) -> list[VirtualTransport]:
        """Return the connection ends that ``host`` has open."""
        ends = [end for link in self._links.values() for end in link.transports]
        return [end for end in ends if host_of(end.context) == host]

    # What the loop calls

    def addresses(self, host: str, port: int) -> list[tuple[Any, ...]]:
        """Answer getaddrinfo: a numeric address is itself, a name is looked up in ``names``."""
        found = [host] if _is_numeric(host) else self.names.get(host, ["127.0.0.1"] if host == "localhost" else [])
        if not found:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        kind = (socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "")
        return [(*kind, (address, port)) for address in found]

    def listen(self, factory: Callable[[], Any], host: str, port: int) -> VirtualServer:
        """Listen at an address; port 0 is a free port. Raises OSError where the address is in use."""
        if port == 0:
            port = next(free for free in self._ports if (host, free) not in self.listeners)
        if (host, port) in self.listeners:
            raise OSError(errno.EADDRINUSE, f"address already in use: {host}:{port}")
        server = self.listeners[host, port] = VirtualServer(self, factory, (host, port))
        return server

    async def connect(self, factory: Callable[[], Any], host: str, port: int) -> tuple[VirtualTransport, Any]:
        """Connect the caller's host to a listener; on a link that is cut this waits."""
        address = self.addresses(host, port)[0][4]
        link = self.link(current_host(), port, address[0])
        await link.passes()
        server = self.listeners.get(address)
        await link.passes()
        if server is None or not server.is_serving():
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connect call failed {address}")
        protocol = factory()
        near, far = self._join(link, address, server.context)
        self.loop.call_soon(_accept, far, server, context=server.context)
        near.start(protocol)
        return near, protocol

    def _join(self, link: Link, address: Address, server_context: Context) -> tuple[VirtualTransport, VirtualTransport]:
        self._client_port += 1
        own: Address = ("127.0.0.1", self._client_port)
        near = VirtualTransport(self, link, copy_context(), sockname=own, peername=address)
        far = VirtualTransport(self, link, server_context, sockname=address, peername=own)
        near.peer, far.peer = far, near
        link.transports[near] = link.transports[far] = None
        return near, far

    # The death of a host

    def forsake(self, host: str, *, silently: bool) -> None:
        """End the connections of ``host``, which has died. Its peers see a reset, or with ``silently`` nothing."""
        for end in self.transports_of(host):
            end.forsaken(silently=silently)


def _accept(transport: VirtualTransport, server: VirtualServer) -> None:
    """Accept a connection; if the server has closed meanwhile, reset it, as a kernel does with the backlog."""
    if not server.is_serving():
        transport.forsaken(silently=False)
    else:
        transport.start(server.factory())


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
