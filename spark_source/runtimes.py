"""What a Spark worker keeps between tasks: a loop thread and a client for each configuration used in the last minute.

Spark reuses a worker process for many tasks, so the connections stay. Positions do not stay: the next batch of a
partition may run in another worker.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from typing import Final

from aiokc import Client, ClientConfig, KafkaError

from .loop_thread import LoopThread
from .options.security_options import SecurityTexts
from .secured import connected

_logger = logging.getLogger(__name__)

_STOP_TIMEOUT: Final = 5.0
_UNSETTLED_READS: Final = 2
_MOST_RUNTIMES: Final = 4
# As long as Spark keeps a worker that has no tasks.
_UNUSED_SECONDS: Final = 60.0


class Runtime:
    """One loop thread with one client, which connects when it is first needed."""

    def __init__(self, config: ClientConfig, security: SecurityTexts) -> None:
        self.thread = LoopThread("aiokc in a Spark worker")
        self.key = config, security
        self._client: Client | None = None
        self._connecting = asyncio.Lock()
        self.is_frozen = False  # exempt from garbage collection
        self.used_at = time.monotonic()  # when a task last began, or had read all

    async def client(self, *, timeout_ms: int) -> Client:
        """Return the client, connected: all tasks share it, and one token. Raises as Client.start() does."""
        async with self._connecting:
            if self._client is None:
                self._client = await connected(*self.key, timeout_ms=timeout_ms)
            return self._client

    def used_now(self) -> None:
        """Note that a task begins, or has read all of its ranges: other tasks let this runtime be for a while."""
        self.used_at = time.monotonic()

    def close(self) -> None:
        """Close the connections and end the thread, within some seconds."""
        if self.is_frozen:
            settling.thaw()
        client, self._client = self._client, None
        try:
            if client is not None:
                self.thread.call(client.stop(), what="closing the connections", timeout=_STOP_TIMEOUT)
        except KafkaError as error:
            _logger.warning("the connections of a Spark task were not closed cleanly: %s", error)
        finally:
            self.thread.close(timeout=_STOP_TIMEOUT)


class Settling:
    """Exempts what stays in this process from garbage collection (gc.freeze): the modules above all.

    PySpark's worker calls gc.collect() after every task. With pyarrow and pandas loaded this takes some 40 ms, more
    than all the rest of a small task. They import some modules only during the first read, so the heap is frozen after
    the first two reads.
    """

    def __init__(self) -> None:
        self._unsettled_reads = _UNSETTLED_READS

    def read_done(self) -> None:
        """A task has read all of its ranges: freeze what there is, if this was one of the first."""
        if self._unsettled_reads:
            self._unsettled_reads -= 1
            gc.collect()
            gc.freeze()
            for runtime in _runtimes.values():
                runtime.is_frozen = True

    def thaw(self) -> None:
        """A frozen runtime is given up: let the next read freeze anew what stays then.

        What a client consists of is in reference cycles, and nothing that is frozen is ever collected.
        """
        gc.unfreeze()
        self._unsettled_reads = max(1, self._unsettled_reads)


#: By configuration, the one that was used last at the end.
_runtimes: dict[tuple[ClientConfig, SecurityTexts], Runtime] = {}
settling: Final = Settling()
# Threads do not survive a fork: a child process must not wait for the threads of its parent. Nor may it write to its
# parent's TLS connections.
if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_runtimes.clear)


def runtime_of(config: ClientConfig, security: SecurityTexts) -> Runtime:
    """Return the runtime for this configuration, a new one if there is none; close those that are unused for a minute.

    A process lives as long as there are tasks, and queries may differ in each run, by credentials for instance. The
    client of a query that has ended would log in again and again with a password that is exchanged by now, until the
    account is locked. A new runtime also takes the place of the one that was unused for longest. No task uses those
    that are closed: a process has one at a time.
    """
    runtime = _runtimes.pop((config, security), None) or Runtime(config, security)
    others = list(_runtimes.items())
    runtime.used_now()
    _runtimes[config, security] = runtime  # before others are closed, which may raise
    for key, other in others:
        if len(_runtimes) > _MOST_RUNTIMES or runtime.used_at - other.used_at >= _UNUSED_SECONDS:
            _runtimes.pop(key).close()
    return runtime


def drop(runtime: Runtime) -> None:
    """Close this runtime: the next task of its configuration has a new one."""
    _runtimes.pop(runtime.key, None)
    runtime.close()
