"""A token source that a test drives: what each call returns, and when; and a wall clock beside the virtual loop's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from aiokc.errors import AuthenticationFailed
from aiokc.net.credentials.tokens.refresh_window import RefreshWindow
from aiokc.net.credentials.tokens.token_source import TokenSource
from aiokc.testing.virtual.loop import VirtualLoop
from aiokc.token_provider import OAuthToken

#: What the wall clock shows when the loop's clock shows 0.
EPOCH = 1_800_000_000.0


def run_virtually(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run ``story`` in virtual time. Fail also for errors that only the loop's exception handler saw."""
    loop = VirtualLoop(Random(1))
    try:
        loop.run_until_complete(story())
        assert loop.errors == []
    finally:
        loop.end()


def wall_clock() -> float:
    """Return a wall clock that goes on with the running loop's clock."""
    return EPOCH + asyncio.get_running_loop().time()


class ScriptedAsker:
    """Answers calls by a script: an error to raise, a token's life in seconds, or None for a token without an end.

    Each call takes ``seconds``. After the script's end, each call returns tokens of the last kind.
    """

    name = "the token provider Scripted"

    def __init__(self, *script: float | Exception | None, seconds: float = 0.0, in_thread: bool = False) -> None:
        self.in_thread = in_thread
        self.calls: list[float] = []
        self.running = self.most_running = self.cancelled = self.closed = 0
        self.seconds = seconds
        self.script = list(script)

    async def ask(self) -> OAuthToken:
        self.calls.append(asyncio.get_running_loop().time())
        number = len(self.calls)
        self.running += 1
        self.most_running = max(self.running, self.most_running)
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.running -= 1
        answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(answer, Exception):
            raise answer
        return OAuthToken(f"token-{number}", None if answer is None else wall_clock() + answer)

    def close(self) -> None:
        self.closed += 1


def failure(text: str = "the token provider Scripted is down", *, retriable: bool = True) -> AuthenticationFailed:
    return AuthenticationFailed(text, retriable=retriable)


def source_of(asker: ScriptedAsker, **options: Any) -> TokenSource:
    """Return a source with Java's defaults, no jitter, and the virtual wall clock."""
    window = RefreshWindow(jitter=0.0)
    return TokenSource(asker, **{"window": window, "random": Random(3), "clock": wall_clock, **options})


def value(token: OAuthToken | None) -> str | None:
    return None if token is None else token.value.reveal()
