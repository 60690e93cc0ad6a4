"""A scene for failing clients: their event loop logs all callbacks that it runs, as in asyncio's debug mode."""

from __future__ import annotations

import asyncio
import re
from asyncio.base_events import _format_handle  # type: ignore[attr-defined]
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from aiokc import Client, Consumer
from aiokc.errors import KafkaError
from aiokc.testing import Cluster
from aiokc.testing.virtual.loop import VirtualLoop
from tests.more_time import TOO_EARLY

from .canaries import Canaries
from .shown import Shown

Options: TypeAlias = dict[str, Any]
Story: TypeAlias = Callable[[Cluster], Coroutine[Any, Any, None]]
AnyClient: TypeAlias = "Consumer[bytes, bytes] | Client"

USER = "alice"


class Scene:
    """The cluster, options and secrets of a failure. ``failures``: the errors of the failing calls, in their order."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.canaries = Canaries()
        self.shown = Shown()
        self.failures: list[BaseException] = []

    def virtually(self, story: Story, **options: Any) -> None:
        """Run ``story`` in virtual time, beside a cluster."""
        loop = _TalkingLoop(self.shown)
        try:
            loop.run_until_complete(_beside(story, {"topics": {"t": 1}, "random": Random(2), **options}))
        finally:
            loop.end()

    def really(self, story: Story, **options: Any) -> None:
        """Run ``story`` with sockets and TLS, beside a cluster."""

        async def happen() -> None:
            loop = asyncio.get_running_loop()
            loop.slow_callback_duration = 0.0  # it logs all callbacks, with their arguments
            loop.set_exception_handler(self._told)
            await _beside(story, {"topics": {"t": 1}, **options})

        asyncio.run(happen(), debug=True)

    def _told(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.shown.loop(context)
        loop.default_exception_handler(context)

    async def start_fails(self, text: str, *, again: Options | None = None, **options: Any) -> None:
        """Start a Consumer and a Client with these options: both must fail with a message that ``text`` matches.

        Where the timeout was over too early, as on a busy machine, the options ``again`` get a try.
        """
        makers: tuple[Callable[..., AnyClient], ...] = (partial(Consumer, "t"), Client)
        for make in makers:
            try:
                await self._start_fails(text, make(**options))
            except AssertionError as failed:
                if again is None or not isinstance(failed.__cause__, TOO_EARLY):
                    raise
                await self._start_fails(text, make(**options | again))

    async def _start_fails(self, text: str, client: AnyClient) -> None:
        self.shown.value(type(client).__name__, client)
        try:
            await self.fails(client.start(), text, client)
        finally:
            await client.stop()
        self.shown.value(type(client).__name__, client)

    async def fails(self, call: Awaitable[Any], text: str, client: AnyClient | None = None) -> None:
        """Await ``call``, which must raise a KafkaError with a message that ``text`` (a regular expression) matches."""
        task = asyncio.ensure_future(call)
        pause = 0.001
        while not task.done():
            self.shown.tasks()
            if client is not None:
                self.shown.value(type(client).__name__, client)
            await asyncio.wait((task,), timeout=pause)
            pause *= 2
        self.shown.text("task", repr(task))
        self.failed(task.exception(), text)

    def failed(self, error: BaseException | None, text: str) -> None:
        """Keep the error that a call has raised."""
        if not isinstance(error, KafkaError):  # no AssertionError, after which start_fails() would try again
            raise TypeError(f"the call has raised no KafkaError: {error!r}") from error
        self.shown.error(error)  # first: what it shows counts, even if start_fails() tries again
        if not re.search(text, str(error)):
            raise AssertionError(str(error)) from error
        self.failures.append(error)


async def _beside(story: Story, options: Options) -> None:
    async with Cluster(**options) as cluster:
        await story(cluster)


class _TalkingLoop(VirtualLoop):
    """Logs what it runs, as asyncio's debug mode does of slow callbacks."""

    def __init__(self, shown: Shown) -> None:
        super().__init__(Random(1))
        self._shown = shown
        self.set_debug(True)
        self.set_exception_handler(lambda loop, context: shown.loop(context))

    def _run_once(self) -> None:
        for handle in self._calls:
            self._shown.text("callback", _format_handle(handle))
        super()._run_once()
