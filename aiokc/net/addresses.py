"""Name resolution: from a broker's host name to the addresses to try, by DNS or by the application's ``resolve``."""

from __future__ import annotations

import asyncio
import inspect
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from operator import index
from typing import Any, Final, TypeAlias

from ..config import Resolve
from ..errors import ConfigError, ConnectionFailed, shown
from ..types import address_text
from .own_thread import ThreadForEach
from .user_errors import EXITS, cancellation_is_ours, ends_us, leaves_the_loop

Address: TypeAlias = tuple[str, int]

# The calls of resolve() that are under way: asyncio itself has weak references to tasks.
_calls: Final[set[asyncio.Task[Any]]] = set()
# The lookups by DNS that are under way, each with the time at which it began. A new event loop, in a child process say,
# is another key: it has no share in those of a loop that does not run any more.
_lookups: Final[dict[tuple[asyncio.AbstractEventLoop, str], tuple[asyncio.Task[Any], float]]] = {}
#: A resolver has given up by then, by its defaults. If not, it may be stuck, and another lookup find a way.
_LOOKUP_SECONDS: Final = 180.0
_threads: Final = ThreadForEach("aiokc lookup")
# As it was imported: what is put in its place, in a class or in one loop, is to be asked.
_of_asyncio: Final = asyncio.BaseEventLoop.getaddrinfo


class TriedAddresses:
    """The addresses of one name that were tried, the one whose attempt is longest ago first.

    There may be more than one attempt to connect has the time for, and the first ones may all be silent. So the next
    attempt begins with those that were not tried yet.
    """

    def __init__(self) -> None:
        self._tried: dict[Address, None] = {}

    def order(self, found: Sequence[Address], first: Address | None) -> list[Address]:
        """Return what the name leads to in the order in which to try it: ``first``, then what was not tried yet."""
        has_now = set(found)
        self._tried = {one: None for one in self._tried if one in has_now}
        tried = [one for one in self._tried if one != first]
        fresh = [one for one in found if one != first and one not in self._tried]
        return [*((first,) if first is not None and first in has_now else ()), *fresh, *tried]

    def trying(self, address: Address) -> None:
        self._tried.pop(address, None)
        self._tried[address] = None


async def resolved(host: str, port: int, resolve: Resolve | None) -> Sequence[Address]:
    """Return the addresses of ``host``, in the order in which to try them, each once; at least one.

    ``resolve`` takes the place of DNS. Raises ConnectionFailed if there is no address now, and ConfigError if
    ``resolve`` returns something that is not a list of addresses.
    """
    name = address_text(host, port)
    if resolve is not None:
        found = await _configured(resolve, host, port)
    elif not 0 < port < 65_536:
        raise ConnectionFailed(f"{name}: {port} is no port; look at the broker's advertised.listeners")
    elif _is_numeric(host):
        return [(host, port)]
    else:
        return await _by_dns(host, port)
    if not found:
        raise ConnectionFailed(f"{name}: the name resolves to no address")
    return list(dict.fromkeys(found))


async def create_connection(
    protocol: Callable[[], asyncio.BaseProtocol], address: Address, **options: Any
) -> asyncio.Transport:
    """Do as the loop's method, which would look up a name, too, such as ``resolve`` may return: in its own way.

    Of the addresses of a name it tries the next one until a connection is made. Raises OSError where there is none, and
    what the loop's method raises for the last one.
    """
    loop = asyncio.get_running_loop()
    try:
        *others, last = [address] if _is_numeric(address[0]) else await _by_dns(*address)
    except ConnectionFailed as error:  # to the caller it is a reason as others are
        raise OSError(str(error)) from error
    for one in others:
        try:
            return await _connected(loop, protocol, one, options)
        except ssl.SSLError:
            raise
        except OSError:
            continue
    return await _connected(loop, protocol, last, options)


async def _connected(
    loop: asyncio.AbstractEventLoop, protocol: Callable[[], Any], address: Address, options: dict[str, Any]
) -> asyncio.Transport:
    """Connect to a numeric address.

    asyncio looks up an address of IPv6 that names its interface, in the default executor (see ``_asked``). So it gets a
    socket that is connected already.
    """
    host, _, interface = address[0].partition("%")
    if not interface or not _asks_the_executor(loop):
        return (await loop.create_connection(protocol, *address, **options))[0]
    scope = int(interface) if interface.isdecimal() else socket.if_nametoindex(interface)
    sock = socket.socket(socket.AF_INET6, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        await loop.sock_connect(sock, (host, address[1], 0, scope))
    except BaseException:
        sock.close()
        raise
    return (await loop.create_connection(protocol, sock=sock, **options))[0]


def _asks_the_executor(loop: asyncio.AbstractEventLoop) -> bool:
    return getattr(loop.getaddrinfo, "__func__", None) is _of_asyncio


async def _by_dns(host: str, port: int) -> list[Address]:
    found = [(_with_scope(*info[4]), port) for info in await _looked_up(host, port)]
    if not found:
        raise ConnectionFailed(f"{address_text(host, port)}: the name resolves to no address")
    return list(dict.fromkeys(found))


def _with_scope(host: str, port: int, flow: int = 0, scope: int = 0) -> str:
    """Return the host of a socket address. A link-local address of IPv6 says nothing without its interface."""
    return f"{host}%{scope}" if scope and "%" not in str(host) else str(host)


async def _configured(resolve: Resolve, host: str, port: int) -> list[Address]:
    """Return what the application's ``resolve`` says. If it raises, this host can't be reached now; that may pass."""
    name, task, is_async = address_text(host, port), asyncio.current_task(), False
    try:
        answer: Any = resolve(host, port)
        is_async = inspect.isawaitable(answer)
        if is_async:
            answer = await _in_own_task(answer)
    except BaseException as error:
        if ends_us(error, task):
            raise
        if not is_async:  # else _in_own_task has seen to it
            leaves_the_loop(error)
        raise ConnectionFailed(f"{name}: the configured resolve() raised {shown(error)}") from error
    if not is_async:
        raise ConfigError(
            f"{name}: resolve must be an async function: it returned {shown(answer)}, which is not awaitable"
        )
    try:
        return [_address(given) for given in answer]
    except (TypeError, ValueError, LookupError) as error:
        raise ConfigError(
            f"{name}: the configured resolve() returned {shown(answer)}: it must return the addresses to try, "
            "[(host, port), ...], each host a string and each port an int from 1 to 65535"
        ) from error


async def _in_own_task(call: Awaitable[Any]) -> Any:
    """Await the application's code. If it cannot be cancelled, it goes on alone, and holds up no stop()."""

    async def run() -> tuple[Any, BaseException | None]:
        try:
            return await call, None
        except EXITS as error:  # no task takes it: under asyncio.eager_task_factory create_task() itself raises it
            leaves_the_loop(error)
            return None, error

    task = asyncio.get_running_loop().create_task(run(), name="aiokc: resolve()")
    _forget_closed_loops()
    _calls.add(task)
    task.add_done_callback(_called)
    try:
        await asyncio.wait((task,))
    finally:
        task.cancel()
    answer, exits = task.result()
    if exits is not None:
        raise exits
    return answer


def _called(task: asyncio.Task[Any]) -> None:
    _calls.discard(task)
    if not task.cancelled():
        task.exception()  # it may come when no caller waits any more, and asyncio would log it


def _address(given: Any) -> Address:
    """Return ``given`` as an address. Raises TypeError, ValueError, LookupError."""
    host, port = given[:2]  # an IPv6 address of getaddrinfo() has four items
    if not isinstance(host, str) or not host or isinstance(port, bool):
        raise TypeError
    number = index(port)
    if not 0 < number < 65_536:
        raise ValueError
    return _with_scope(host, number, *given[2:4]), number


async def _looked_up(host: str, port: int) -> list[Any]:
    """Return what DNS says.

    While one lookup of a name is under way, those who want it wait for that one. If DNS hangs, an attempt to connect
    ends after 10 s, but the thread that looks up goes on, for a minute or more. With a lookup for each attempt there
    would soon be many threads.
    """
    name = address_text(host, port)
    try:
        task = _lookup(host, port)
        await asyncio.wait((task,))
        found: list[Any] = task.result()
        return found
    except asyncio.CancelledError as error:
        if cancellation_is_ours():
            raise
        why: object = "the lookup was cancelled"
        raise ConnectionFailed(f"{name}: the name cannot be resolved ({why})") from error
    except (OSError, ValueError, RuntimeError) as error:
        # UnicodeError, for a name with an empty label say, is a ValueError. ConnectionFailed, an OSError, says that no
        # thread can be had; other loops may raise RuntimeError where they have none.
        why = (error.strerror if isinstance(error, OSError) else None) or error
        raise ConnectionFailed(f"{name}: the name cannot be resolved ({why})") from error


def _lookup(host: str, port: int) -> asyncio.Task[Any]:
    """Return the lookup of that name that is under way, or a new one. It ends by itself, and not with who waits."""
    loop = asyncio.get_running_loop()
    task, began = _lookups.get((loop, host), (None, 0.0))
    if task is None or loop.time() - began > _LOOKUP_SECONDS:

        async def run() -> Any:
            return await _asked(loop, host, port)

        task = loop.create_task(run(), name="aiokc: getaddrinfo()")
        _forget_closed_loops()
        _lookups[loop, host] = task, loop.time()
        task.add_done_callback(partial(_looked_up_once, (loop, host)))
    return task


async def _asked(loop: asyncio.AbstractEventLoop, host: str, port: int) -> Any:
    """Return what the resolver says, asked in a thread of its own where asyncio would ask it in the default executor.

    That one is the application's: jobs in all of its threads may wait for the very call that wants this connection.
    A loop with another way of looking up names goes its way: uvloop has threads for it, of which jobs take none.
    """
    if not _asks_the_executor(loop):
        return await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await loop.run_in_executor(_threads, partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM))


def _looked_up_once(key: tuple[asyncio.AbstractEventLoop, str], task: asyncio.Task[Any]) -> None:
    if key in _lookups and _lookups[key][0] is task:
        del _lookups[key]
    if not task.cancelled():
        task.exception()  # as in _called


def _forget_closed_loops() -> None:
    """Let go of what is under way in a loop that was closed: if its tasks were not cancelled, they end never."""
    for key in list(_lookups):
        if key[0].is_closed():
            _lookups.pop(key, None)
    for task in list(_calls):
        if task.get_loop().is_closed():
            _calls.discard(task)


def _is_numeric(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
