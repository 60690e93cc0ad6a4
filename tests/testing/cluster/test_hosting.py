"""A cluster in a thread that does not start, stop or answer is an error that says where it is, and no endless wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from concurrent.futures import wait
from typing import Any

import pytest

from aiokc.testing.cluster import hosting
from aiokc.testing.cluster.hosting import Host, in_thread, on_loop


class Stubborn:
    """Does everything that it is asked for, except ``does_not``, which takes until the end of the test."""

    def __init__(self, does_not: str = "") -> None:
        self.host: Host | None = None
        self.stopped = threading.Event()
        self.hangs = threading.Event()
        self.end_of_test = threading.Event()
        self._does_not = does_not

    async def start(self) -> None:
        await self._do("start")

    async def stop(self) -> None:
        await self._do("stop")
        self.stopped.set()

    @on_loop
    def answer(self) -> int:
        if self._does_not == "answer":
            self._hang()
        return 42

    async def _do(self, what: str) -> None:
        if self._does_not == what:
            await asyncio.to_thread(self._hang)

    def _hang(self) -> None:
        self.hangs.set()
        self.end_of_test.wait(20)


@pytest.fixture
def stubborn(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stubborn]:
    """Only the time for what it does not do is short."""
    one = Stubborn(request.param)

    def wait_until_it_hangs(outcomes: list[Any], seconds: float) -> Any:
        while True:
            hangs = one.hangs.is_set() and not one.end_of_test.is_set()
            found = wait(outcomes, seconds)
            if found.done or hangs:
                return found

    monkeypatch.setattr(hosting, "_SECONDS", 0.1)
    monkeypatch.setattr(hosting, "wait", wait_until_it_hangs)
    yield one
    one.end_of_test.set()
    assert one.stopped.wait(10), "it leaves as soon as it can"


@pytest.mark.parametrize(("stubborn", "what"), [("start", "started"), ("stop", "stopped")], indirect=["stubborn"])
def test_a_start_or_a_stop_that_takes_for_ever_is_an_error(stubborn: Stubborn, what: str) -> None:
    error = rf"was {what}, and has not answered for 0.1 s; .*\n[\s\S]* in select\n"
    with pytest.raises(RuntimeError, match=error), in_thread(stubborn):
        assert what == "stopped"


@pytest.mark.parametrize("stubborn", ["answer"], indirect=True)
def test_a_call_that_takes_for_ever_is_an_error_that_says_where_it_is(stubborn: Stubborn) -> None:
    with in_thread(stubborn):
        with pytest.raises(RuntimeError, match=r"was called, and has not answered for 0.1 s; .*\n[\s\S]* in answer\n"):
            stubborn.answer()
        stubborn.end_of_test.set()


def test_afterwards_it_lives_in_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Stubborn()
    for _ in range(2):
        with in_thread(one):
            assert one.host is not None
            assert one.answer() == 42
        assert one.host is None
