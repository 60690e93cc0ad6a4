"""Health probes: what they conclude from ``health()``, and how Kubernetes gets to hear it, over HTTP or by a file.

    from aiokc.contrib.health import serve

    async with Consumer("events", group_id="billing") as consumer, Producer() as producer:
        async with serve(consumer, producer, port=8080):
            ...

A probe fails for what a restart may cure. Lag, a broker that is away and a rebalance are not among that.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from anyio import CancelScope

from .. import Consumer
from ..errors import ConfigError, ConnectionFailed
from ..net.own_thread import ThreadForEach
from ..observation import Health, ProducerHealth
from .probe_server import ProbeServer
from .series import STALL_AFTER_MS

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from .. import Producer  # not at run time: a service that only reads does not load it

__all__ = ["Probe", "ProbeServer", "Rules", "Verdict", "heartbeat_file", "producer_verdict", "serve", "verdict"]

#: What a probe looks at.
Watched: TypeAlias = "Consumer[Any, Any] | Producer[Any, Any]"

logger = logging.getLogger("aiokc.health")

_SHOWN: Final = 5  # partitions, or topics, that one reason names
_POLL_INTERVALS: Final = 2
_SECONDS_BETWEEN_ERRORS: Final = 30.0
_REMOVAL_SECONDS: Final = 2.0
_NO_CLIENT_ID: Final = "aiokc"  # what brokers are told, too


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """What a liveness probe does not tolerate any longer, in ms.

    stall_after_ms      a partition stands still for so long (``Health.stalled``)
    handler_after_ms    the application has not asked for records for so long; math.inf: that is no reason. None: a
                        probe allows a member of a group 2 max_poll_interval_ms, and for others that is no reason
    unanswered_after_ms a producer's oldest record has had no outcome for so long; None: that is no reason. An outage
                        makes records wait, too, up to delivery_timeout_ms, and a restart loses them
    """

    stall_after_ms: float = STALL_AFTER_MS
    handler_after_ms: float | None = None
    unanswered_after_ms: float | None = None

    @classmethod
    def of(cls, consumer: Consumer[Any, Any]) -> Rules:
        """The rules for a member of a group by default: not polled for 2 max_poll_interval_ms, it is dead.

        After the first one it has left its group, and another member has its partitions. Nobody takes those of a
        consumer that chose them by assign(): it is no member, and handles its records as long as it likes.
        """
        if consumer.config.group_id is None:
            return cls()
        return cls(handler_after_ms=_POLL_INTERVALS * consumer.config.max_poll_interval_ms)


class Verdict(NamedTuple):
    """What a probe says. ``live``: no restart is needed. ``ready``: it is at work. ``reasons``: why not."""

    live: bool
    ready: bool
    reasons: tuple[str, ...]


def verdict(now: Health, before: Verdict | None = None, rules: Rules = Rules()) -> Verdict:
    """Conclude from a consumer's health, and from the verdict ``before`` (None: there is none), how it stands.

    Live: it was not started yet, or it runs, no error has ended its background or its membership, no partition stands
    still for longer than the rules say, and the application asks for records. (``handler_after_ms`` None is no reason
    here: a Health does not say how long a member may take.) Ready: it runs without such an error, and
    has had its first assignment, maybe an empty one, and brokers know all the topics that it subscribes to by name. A
    later rebalance does not make it unready, nor a topic that is deleted: that would hold up a rollout. So ``before``
    is the last ready verdict, or one of an error that came behind it.
    """
    dead: list[str] = []
    if now.error is not None:
        dead.append(f"its calls raise {type(now.error).__name__}: {now.error}")
    elif not now.running and now.cluster_id is not None:
        dead.append("it was stopped, or its background has ended")
    stalled = [tp for tp, ms in now.stalled.items() if ms >= rules.stall_after_ms]
    if stalled:
        dead.append(
            f"{_some(map(str, sorted(stalled)))}: no record for {rules.stall_after_ms / 1e3:.3g} s, and there are some"
        )
    idle_ms = now.last_poll_age_ms
    if rules.handler_after_ms is not None and idle_ms is not None and idle_ms >= rules.handler_after_ms:
        dead.append(f"the application has not asked for records for {idle_ms / 1e3:.3g} s")
    if dead:
        return Verdict(False, False, tuple(dead))
    if not now.running:
        return Verdict(True, False, ("it was not started yet",))
    if before is None or not before.ready:
        if now.missing_topics:
            return Verdict(True, False, (f"no broker knows {_some(map(repr, sorted(now.missing_topics)))}",))
        if not now.has_assignment:
            return Verdict(True, False, ("it waits for its first assignment",))
    return Verdict(True, True, ())


def _some(names: Iterable[str]) -> str:
    known = list(names)
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return ", ".join(known[:_SHOWN]) + more


def producer_verdict(now: ProducerHealth, rules: Rules = Rules()) -> Verdict:
    """Conclude from a producer's health how it stands.

    Live: it was not started yet, or it runs, no error has ended it (another producer with its transactional_id, for
    instance), and no record waits for longer than the rules say. Ready: it runs. Partitions in trouble are no reason:
    their records are sent when a broker takes them again, and a restart loses them.
    """
    waits_ms = now.oldest_unanswered_age_ms
    if now.error is not None:
        reason = f"its calls raise {type(now.error).__name__}: {now.error}"
    elif not now.running and now.cluster_id is not None:
        reason = "it was stopped, or its background has ended"
    elif rules.unanswered_after_ms is not None and waits_ms is not None and waits_ms >= rules.unanswered_after_ms:
        reason = f"its oldest record has had no outcome for {waits_ms / 1e3:.3g} s"
    elif not now.running:
        return Verdict(True, False, ("it was not started yet",))
    else:
        return Verdict(True, True, ())
    return Verdict(False, False, (reason,))


class Probe:
    """The verdict about consumers and producers: the worst one. It remembers who was ready, as ``verdict`` needs it."""

    def __init__(self, *clients: Watched, rules: Rules | None = None) -> None:
        """``rules``: for all of them. Without a ``handler_after_ms`` a consumer that has joined its group, and has not
        unsubscribed since, has that of ``Rules.of``: a rule for one client must not end those of another one without a
        word.
        """
        if not clients:
            raise ConfigError("a probe needs at least one consumer or producer to look at")
        for client in clients:
            if not hasattr(client, "health"):
                raise ConfigError(f"a probe looks at consumers and producers, not at {type(client).__name__}")
        self._clients, self._rules = clients, rules or Rules()
        self._before: list[Verdict | None] = [None] * len(clients)

    def look(self) -> Verdict:
        """Look at the clients now. Each reason begins with the client_id where there are several."""
        found = [self._verdict(number, one) for number, one in enumerate(self._clients)]
        if len(found) == 1:
            return found[0]
        return Verdict(
            all(one.live for one in found),
            all(one.ready for one in found),
            tuple(
                f"{_NO_CLIENT_ID if client.config.client_id is None else client.config.client_id}: {reason}"
                for client, one in zip(self._clients, found, strict=True)
                for reason in one.reasons
            ),
        )

    def _verdict(self, number: int, client: Watched) -> Verdict:
        rules = self._rules
        if not isinstance(client, Consumer):
            return producer_verdict(client.health(), rules)
        now = client.health()
        # A consumer with a group_id may be none of its members: assign() commits under that name and never joins.
        has_joined = now.last_heartbeat_age_ms is not None
        if rules.handler_after_ms is None and has_joined:
            rules = replace(rules, handler_after_ms=Rules.of(client).handler_after_ms)
        found = verdict(now, self._before[number], rules)
        # A stall, or a handler that takes long, may pass. What was ready before is then ready again, though a topic was
        # deleted meanwhile, which would else keep it unready for ever. After an error it begins anew.
        if found.ready or now.error is not None or not now.running:
            self._before[number] = found
        return found


@asynccontextmanager
async def serve(
    *clients: Watched,
    port: int = 8080,
    host: str | None = None,
    rules: Rules | None = None,
    registry: CollectorRegistry | None = None,
) -> AsyncIterator[ProbeServer]:
    """Answer ``/livez``, ``/readyz`` and ``/metrics`` over HTTP on ``port`` while the block runs.

    The answer is 200, or 503 with the reasons, as JSON; /metrics is in the text format of Prometheus. A server in the
    clients' loop is a probe of that loop: while a handler blocks it, no answer comes. ``host`` None: on all
    interfaces; ``port`` 0: one that is free (``server.port``). /metrics needs prometheus-client, else it answers 404.
    ``registry`` None: it has the series of these consumers and producers alone; else what that registry has, and
    nothing is added to it. Requests are bounded: 8 KiB, 5 s, 16 at a time. Raises OSError where the port is taken.
    Several consumers without a group need a ``client_id`` each: ConfigError where /metrics could not tell two of them
    apart.
    """
    server = ProbeServer(Probe(*clients, rules=rules).look, _metrics_of(clients, registry))
    await server.start(host, port)
    try:
        yield server
    finally:
        await server.stop()


def _metrics_of(clients: tuple[Watched, ...], registry: CollectorRegistry | None) -> Any:
    """Return a function that gives the text of /metrics; None where prometheus-client is not installed."""
    try:
        from prometheus_client import CollectorRegistry as NewRegistry

        from .prometheus import collector, exposition, producer_collector
    except ImportError:
        return None
    if registry is None:
        registry = NewRegistry()
        if consumers := [client for client in clients if isinstance(client, Consumer)]:
            collector(*consumers, registry=registry)
        if producers := [client for client in clients if not isinstance(client, Consumer)]:
            producer_collector(*producers, registry=registry)
    wanted = registry
    return lambda: exposition(wanted)


@asynccontextmanager
async def heartbeat_file(
    *clients: Watched, path: str | os.PathLike[str], every_ms: int = 5_000, rules: Rules | None = None
) -> AsyncIterator[Probe]:
    """Replace the file ``path`` every ``every_ms`` while the clients are live; its age is what a probe looks at.

    It is written at once, replaced in one step, so that no reader finds half of it, and removed at the end of the
    block, which waits 2 s at most for that. While a handler blocks the event loop it is not replaced. Raises OSError
    where it can't be written the first time; later failures are logged, and the file grows old.
    """
    probe, file = Probe(*clients, rules=rules), _HeartbeatFile(Path(path))
    if every_ms <= 0:
        raise ConfigError(f"every_ms={every_ms} must be positive")
    try:
        await file.run(partial(file.replace, probe.look()))
    except asyncio.CancelledError:  # the wait for the thread ends, which writes all the same
        await file.end()
        raise
    beating = asyncio.create_task(_beat(probe, file, every_ms / 1e3), name="aiokc heartbeat file")
    try:
        yield probe
    finally:
        beating.cancel()
        await file.end(beating)


async def _beat(probe: Probe, file: _HeartbeatFile, every: float) -> None:
    """Whatever fails is logged, and tried again: with the task the file would end, and a healthy process be killed."""
    errors = _Errors()
    while True:
        await asyncio.sleep(every)
        try:
            found = probe.look()
            if found.live:
                await file.run(partial(file.replace, found))
                errors.over()
            else:
                errors.log("%s is not replaced: %s", file.path, "; ".join(found.reasons))
        except Exception as error:
            is_ours = not isinstance(error, OSError)
            errors.log("the heartbeat file %s was not replaced: %s", file.path, error, exc_info=is_ours)


class _Errors:
    """Logs why the heartbeat file is not replaced: at once, and every half minute as long as that lasts."""

    def __init__(self) -> None:
        self._next = 0.0

    def log(self, text: str, *args: object, exc_info: bool = False) -> None:
        now = asyncio.get_running_loop().time()
        if now >= self._next:
            self._next = now + _SECONDS_BETWEEN_ERRORS
            logger.error(text, *args, exc_info=exc_info)

    def over(self) -> None:
        """The file was replaced."""
        self._next = 0.0


class _HeartbeatFile:
    """The file that is replaced while its probe is live. Any thread may call both methods, also at once.

    ``run`` calls them in threads of its own: the loop's default executor belongs to the application, which may fill it
    or shut it down.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._is_over = False
        self._threads = ThreadForEach("aiokc heartbeat file")

    async def run(self, function: Callable[[], None]) -> None:
        await self._started(function)

    async def end(self, *tasks: asyncio.Task[None]) -> None:
        """Remove the file, and wait for that and for ``tasks``: 2 s at most, for a disk may hang (NFS).

        Both are under way before the wait: a shield holds off anyio, which cancels each await where it has cancelled
        the block, but no second ``Task.cancel()``. That ends the wait alone.
        """
        removal = self._started(self.remove)
        with CancelScope(shield=True):
            await asyncio.wait([*tasks, removal], timeout=_REMOVAL_SECONDS)
        if not removal.done():
            removal.cancel()  # the wait for it: the loop may be closed by the time that it ends
            text = "the heartbeat file %s is not removed yet after %.3g s: its disk does not answer; going on"
            logger.warning(text, self.path, _REMOVAL_SECONDS)

    def _started(self, function: Callable[[], None]) -> asyncio.Future[None]:
        """Run it in a thread; in the loop, if the process can have no more threads."""
        loop = asyncio.get_running_loop()
        try:
            return loop.run_in_executor(self._threads, function)
        except ConnectionFailed:
            outcome: asyncio.Future[None] = loop.create_future()
            try:
                function()
                outcome.set_result(None)
            except OSError as error:
                outcome.set_exception(error)
            return outcome

    def replace(self, found: Verdict) -> None:
        """Raises OSError."""
        _replace(self.path, found)
        if self._is_over:  # ``remove`` was called while the disk was slow, and has perhaps found nothing to remove yet
            self._unlink()

    def remove(self) -> None:
        self._is_over = True
        self._unlink()

    def _unlink(self) -> None:
        with suppress(OSError):  # the directory may be gone; then nothing is left to remove
            self.path.unlink(missing_ok=True)


def _replace(path: Path, found: Verdict) -> None:
    content = json.dumps({"time": time.time(), **found._asdict()})
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(content + "\n")
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise
