"""Messages about what goes on failing: one of each kind in 30 s, and how many were held back before it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from aiokc.client.aio.complaints import Complaints
from aiokc.testing.virtual.loop import VirtualLoop

logger = logging.getLogger("aiokc.test")


def run(story: Callable[[], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualLoop(Random(1))
    try:
        loop.run_until_complete(story())
    finally:
        loop.end()


def test_what_goes_on_failing_is_a_warning_even_if_it_was_none_at_first(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, logger.name)

    async def story() -> None:
        complaints = Complaints(logger)
        for _ in range(4):
            complaints.warn("lookup", "no %s", "coordinator", at_first=logging.INFO)
            await asyncio.sleep(10)
        complaints.forget("lookup")
        complaints.warn("lookup", "no %s", "coordinator", at_first=logging.INFO)

    run(story)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "no coordinator"),
        ("WARNING", "no coordinator (2 more since the last such message)"),
        ("INFO", "no coordinator"),
    ]


def test_each_kind_has_its_own_and_a_line_says_where_it_comes_from(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        complaints = Complaints(logger)
        for kind in ("a", "b", "a"):
            complaints.warn(kind, "%s failed", kind)

    run(story)
    assert [record.getMessage() for record in caplog.records] == ["a failed", "b failed"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert {record.pathname for record in caplog.records} == {__file__}


def test_an_error_of_the_applications_code_is_logged_with_its_traceback(caplog: pytest.LogCaptureFixture) -> None:
    error = ValueError("no")

    async def story() -> None:
        complaints = Complaints(logger)
        for _ in range(3):
            complaints.error("callback", error, "%s failed", "a callback")
            await asyncio.sleep(15)

    run(story)
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("ERROR", "a callback failed: ValueError('no')"),
        ("ERROR", "a callback failed: ValueError('no') (1 more since the last such message)"),
    ]
    assert all(record.exc_info is not None and record.exc_info[1] is error for record in caplog.records)
    assert {record.pathname for record in caplog.records} == {__file__}


def test_another_interval(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        complaints = Complaints(logger, 300.0)
        for _ in range(4):
            complaints.warn("kind", "it failed")
            await asyncio.sleep(100)

    run(story)
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["it failed", "it failed (2 more since the last such message)"]
