"""TlsContexts: a client's SSLContext, built in a thread, and built anew when the files that it is made of change."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
import time
from collections.abc import Callable
from math import inf
from typing import Final

from ...config import SecurityConfig
from ...errors import ConnectionFailed, KafkaError
from ..own_thread import OwnThread
from .building import Built, build, given
from .rotation import Fingerprint, fingerprint
from .server_name import server_name
from .sharing import shared_build
from .stores import FileFailed, NothingToSpare, watched_paths
from .tls_errors import tls_failure

logger = logging.getLogger("aiokc.net")

# The files are looked at before a connection is made, and no more often than this.
_LOOK_SECONDS: Final = 1.0
# The most that reading the files for the first context may take: of a file system that does not answer, say.
_FIRST_SECONDS: Final = 30.0
# A file system that does not answer must not keep a client from connecting that has a context already.
_PATIENCE_SECONDS: Final = 2.0


class TlsContexts:
    """The SSLContext of all connections of a client; what the options say decides, or the application's ssl_context.

    Clients with equal options and unchanged files have one context (sharing.py). A context is never changed: one whose
    certificate and key do not fit together would be broken for good. When files have changed, new connections get a new
    context; living ones keep theirs. Files that can't be used, such as half of a pair, or a file that is being written,
    leave the old context in place, and are logged once. Those that can't be read are tried again at each look.
    """

    def __init__(self, config: SecurityConfig, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._config = config
        self._paths = watched_paths(config)
        self._clock = clock
        self._thread = OwnThread("aiokc tls")
        self._reading = threading.Lock()  # held by the thread that reads the files: ours, or the watchdog's
        self._built: Built | None = None if config.ssl_context is None else given(config.ssl_context)
        self._seen: Fingerprint = ()
        self._refused: Fingerprint = ()  # the last one that made no context
        self._told: set[str] = set()  # why it did not
        self._next_look = -inf

    # Called by the event loop

    async def get(self) -> ssl.SSLContext:
        """Return the context for a new connection. Files are read in a thread, never in the loop.

        If there is no context yet, it raises ConfigError where the options or the files do not make one, and
        ConnectionFailed where the files can't be read within 30 s, or the system has no file descriptor to spare.
        """
        if self._built is None:
            try:
                async with asyncio.timeout(_FIRST_SECONDS):
                    await self._thread.run(self._read)
            except TimeoutError as error:
                raise ConnectionFailed(
                    f"the files of the ssl_ options were not read within {_FIRST_SECONDS:.3g} s: does their file "
                    "system answer?"
                ) from error
        elif self._is_due() and not self._reading.locked():
            self._next_look = self._clock() + _LOOK_SECONDS  # all others go on with the context that there is
            try:
                async with asyncio.timeout(_PATIENCE_SECONDS):
                    await self._thread.run(self._read)
            except TimeoutError:
                logger.warning(
                    "the files of the ssl_ options were not read within %.3g s; new connections go on with what was "
                    "read before",
                    _PATIENCE_SECONDS,
                )
        return self._newest().context

    def server_name(self, host: str) -> str:
        """Return the name that the certificate of the broker at ``host`` must be for. To be called before connecting.

        Raises ConnectionFailed for a host that no certificate can be for.
        """
        return server_name(host)

    def failure(self, error: BaseException, broker: str, name: str, *, established: bool = False) -> KafkaError | None:
        """Return what an exception of the network means where it is about TLS; None where it is not.

        ``broker`` begins the message, ``name`` is the server_name. ``established``: the handshake was over, and nothing
        was received since.
        """
        side = None if self._built is None else self._built.side
        return None if side is None else tls_failure(error, broker, name, side, established=established)

    def close(self) -> None:
        """End the thread. The contexts that were returned remain usable."""
        self._thread.close()

    # Called by any thread that may block

    def current(self) -> ssl.SSLContext:
        """Return the context for a new connection, as ``get``. It reads files: for threads without an event loop.

        If another thread reads the files just now, it returns the context that there is. Raises what ``get`` does.
        """
        is_first = self._built is None
        if (is_first or self._is_due()) and self._reading.acquire(blocking=is_first):
            try:
                self._next_look = self._clock() + _LOOK_SECONDS
                self._read_anew()
            finally:
                self._reading.release()
        return self._newest().context

    def _read(self) -> None:
        with self._reading:
            self._read_anew()

    def _read_anew(self) -> None:
        """Build the context, if there is none, or if the files have changed since they were last read."""
        seen = fingerprint(self._paths)  # before they are read: what changes meanwhile is seen the next time
        if self._built is None:
            try:
                self._built, self._seen = shared_build(self._config, seen, build), seen
            except NothingToSpare as error:  # as when there is none for the connection's socket
                raise ConnectionFailed(f"no TLS context can be made now: {error}") from error
        elif seen != self._seen:
            try:
                self._built = shared_build(self._config, seen, build)
            except Exception as error:  # whatever a half-written file makes libraries raise
                self._refuse(seen, error)
            else:
                self._seen = seen
                logger.info("the files of the ssl_ options have changed: new connections use them")

    def _refuse(self, seen: Fingerprint, error: Exception) -> None:
        """Go on with the context that there is. What is wrong with the files is logged once for as long as they stay.

        They are not read again until they change, but where it was the system that failed: root writes a file that only
        root may read, the client looks, and then the file gets its owner. Or too many files were open at that look.
        Nothing need change after that.
        """
        if not isinstance(error, FileFailed):
            self._seen = seen
        if seen != self._refused:
            self._refused, self._told = seen, set()
        if (told := str(error)) not in self._told:
            self._told.add(told)
            logger.warning("%s; new connections go on with what was read before", told)

    def _is_due(self) -> bool:
        return bool(self._paths) and self._clock() >= self._next_look

    def _newest(self) -> Built:
        assert self._built is not None  # the call that builds the first one raises if it fails
        return self._built
