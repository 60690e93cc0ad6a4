"""A call is made again only where its timeout was over too early: any other wrong error fails the test at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from aiokc.errors import ConfigError, KafkaError, NoBrokersAvailable, RequestTimedOut
from tests import more_time
from tests.more_time import raised_by
from tests.security.actors.starts import raised_by_start
from tests.security.secrets import scene

TEXT = "nothing came"


class Script:
    """A client whose start() raises these errors, one after the other."""

    def __init__(self, *errors: Exception) -> None:
        self.left = [*errors]

    async def start(self, timeout_ms: int = 0) -> None:
        raise self.left.pop(0)

    async def stop(self) -> None:
        pass


async def by_call(script: Script) -> None:
    await raised_by(script.start, KafkaError, TEXT, timeouts_ms=(1, 2))


async def by_start(script: Script) -> None:
    def make() -> Any:
        return script

    await raised_by_start(make, KafkaError, TEXT)


async def by_scene(script: Script) -> None:
    with pytest.MonkeyPatch.context() as patched:
        for name in ("Consumer", "Client"):
            patched.setattr(scene, name, lambda *topics: script)
        script.left.append(RequestTimedOut(TEXT))  # a scene starts both
        await scene.Scene(Path()).start_fails(TEXT, again={})


Way = Callable[[Script], Awaitable[None]]
each_way = pytest.mark.parametrize("way", [by_call, by_start, by_scene])


@each_way
@pytest.mark.parametrize("early", [RequestTimedOut("no answer yet"), NoBrokersAvailable("no connection yet")])
async def test_an_error_that_came_too_early_is_forgotten(way: Way, early: Exception) -> None:
    script = Script(early, RequestTimedOut(TEXT))
    await way(script)
    assert not script.left


@each_way
@pytest.mark.parametrize("wrong", [KeyError("t"), KafkaError("another text"), ConfigError("another text")])
async def test_a_wrong_error_is_not_forgotten_where_the_next_one_is_right(way: Way, wrong: Exception) -> None:
    script = Script(wrong, right := RequestTimedOut(TEXT))
    with pytest.raises((type(wrong), AssertionError, TypeError), match=str(wrong)):
        await way(script)
    assert right in script.left


@pytest.mark.parametrize("took", [9.0, 11.0])
async def test_a_call_that_ends_long_after_its_timeout_fails(monkeypatch: pytest.MonkeyPatch, took: float) -> None:
    times = iter([0.0, took])
    monkeypatch.setattr(more_time, "time", SimpleNamespace(monotonic=lambda: next(times)))
    script = Script(RequestTimedOut(TEXT))
    if took < 10:
        await by_call(script)
    else:
        with pytest.raises(AssertionError):
            await by_call(script)
