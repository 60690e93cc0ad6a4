"""TokenSource: many clients share one token and one call, which is made ahead of the token's end; failures are tried
again, and an expired token is never used.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from contextlib import suppress
from typing import Any

import pytest

from aiokc.errors import AuthenticationFailed
from aiokc.net.credentials.tokens import shared_sources
from aiokc.token_provider import OAuthToken

from ....client.forking import as_child, fork
from .scripted import ScriptedAsker, failure, run_virtually, source_of, value

HOUR = 3600.0


def test_a_token_is_asked_for_when_it_is_needed_and_serves_all() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, seconds=0.5)
        source = source_of(asker)
        assert source.current() is None
        assert asker.calls == []
        tokens = await asyncio.gather(*(source.token() for _ in range(100)))
        assert {value(token) for token in tokens} == {"token-1"}
        assert value(await source.token()) == value(source.current()) == "token-1"
        assert len(asker.calls) == 1

    run_virtually(story)


def test_a_cancelled_caller_cancels_no_other_one() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, seconds=1.0)
        source = source_of(asker)
        first, second = asyncio.create_task(source.token()), asyncio.create_task(source.token())
        await asyncio.sleep(0.5)
        first.cancel()
        assert value(await second) == "token-1"
        assert first.cancelled()
        assert (len(asker.calls), asker.cancelled) == (1, 0)

    run_virtually(story)


def test_the_only_caller_is_cancelled_and_the_next_one_gets_the_token() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, seconds=1.0)
        source = source_of(asker)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await source.token()
        await asyncio.sleep(1)
        assert value(await source.token()) == "token-1"
        assert len(asker.calls) == 1

    run_virtually(story)


@pytest.mark.parametrize(
    ("life", "after"),
    [(HOUR, 0.8 * HOUR), (1000.0, 700.0), (400.0, 100.0), (380.0, 80.0), (300.0, 240.0), (10.0, 8.0)],
)
def test_the_next_token_is_asked_for_ahead(life: float, after: float) -> None:
    """At 80 % of its life, or 300 s before its end if that is earlier; and at 80 % in any case, if the life is too
    short.
    """

    async def story() -> None:
        asker = ScriptedAsker(life)
        source = source_of(asker)
        driver = asyncio.create_task(source.keep_fresh())
        await source.token()
        await asyncio.sleep(after * 3.5)
        pauses = [later - sooner for sooner, later in zip(asker.calls, asker.calls[1:], strict=False)]
        assert pauses == pytest.approx([after] * 3, abs=0.01)
        assert value(source.current()) == "token-4"
        driver.cancel()

    run_virtually(story)


def test_nothing_is_asked_for_before_a_caller_needs_a_token() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR)
        driver = asyncio.create_task(source_of(asker).keep_fresh())
        await asyncio.sleep(10 * HOUR)
        assert asker.calls == []
        driver.cancel()

    run_virtually(story)


def test_the_old_token_serves_while_it_lasts_and_calls_are_repeated(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, failure())
        source = source_of(asker)
        driver = asyncio.create_task(source.keep_fresh())
        start = asyncio.get_running_loop().time()
        await source.token()
        await asyncio.sleep(start + HOUR - 2 - asyncio.get_running_loop().time())
        assert value(await source.token()) == "token-1"
        pauses = [later - sooner for sooner, later in zip(asker.calls, asker.calls[1:], strict=False)][1:]
        expected = [min(0.1 * 2**n, 10.0) for n in range(len(pauses))]
        assert len(pauses) > 60
        assert all(want * 0.79 <= got <= min(want * 1.21, 10.01) for got, want in zip(pauses, expected, strict=True))
        await asyncio.sleep(2)
        assert source.current() is None
        with pytest.raises(AuthenticationFailed, match="the token provider Scripted is down") as raised:
            await source.token()
        assert raised.value.retriable
        asker.script = [HOUR]
        assert value(await source.token()) == f"token-{len(asker.calls)}"
        driver.cancel()

    with caplog.at_level(logging.WARNING, "aiokc.net"):
        run_virtually(story)
    assert "the token provider Scripted is down; the present token serves, for 720 s more" in caplog.text
    assert 10 <= len(caplog.records) <= 13


def test_callers_wait_out_the_pause_after_a_failure() -> None:
    async def story() -> None:
        asker = ScriptedAsker(failure("first"), failure("second"), HOUR)
        source = source_of(asker)
        with pytest.raises(AuthenticationFailed, match="first"):
            await source.token()
        results = await asyncio.gather(*(source.token() for _ in range(5)), return_exceptions=True)
        assert [str(result) for result in results] == ["second"] * 5
        assert len({id(result) for result in results}) == 5
        assert value(await source.token()) == "token-3"
        first, second = (later - sooner for sooner, later in zip(asker.calls, asker.calls[1:], strict=False))
        assert 0.08 <= first <= 0.121
        assert 0.16 <= second <= 0.241

    run_virtually(story)


def test_pauses_begin_anew_after_a_success() -> None:
    async def story() -> None:
        for retriable, least, most in ((True, 0.08, 0.121), (False, 0.8, 1.21)):
            bad = failure(retriable=retriable)
            asker = ScriptedAsker(bad, bad, bad, 2.0, bad, bad)
            source = source_of(asker)
            while len(asker.calls) < 6:
                with suppress(AuthenticationFailed):
                    await source.token()
                await asyncio.sleep(0.01)
            assert least <= asker.calls[1] - asker.calls[0] <= most + 0.02
            assert asker.calls[3] - asker.calls[2] > 2 * most
            assert least <= asker.calls[5] - asker.calls[4] <= most + 0.02

    run_virtually(story)


def test_a_refusal_is_raised_again_at_once_and_does_not_hammer() -> None:
    async def story() -> None:
        asker = ScriptedAsker(failure("401", retriable=False))
        source = source_of(asker)
        driver = asyncio.create_task(source.keep_fresh())
        start = asyncio.get_running_loop().time()
        while (now := asyncio.get_running_loop().time()) - start < 600:
            with pytest.raises(AuthenticationFailed, match="401") as raised:
                await source.token()
            assert not raised.value.retriable
            assert asyncio.get_running_loop().time() - now < 0.01
            await asyncio.sleep(0.1)
        assert 15 <= len(asker.calls) <= 40
        errors = await asyncio.gather(source.token(), source.token(), return_exceptions=True)
        assert errors[0] is not errors[1]  # a kept exception would collect the frames of all callers
        calls = len(asker.calls)
        await asyncio.sleep(600)
        assert len(asker.calls) == calls
        driver.cancel()

    run_virtually(story)


def test_a_call_that_hangs_ends_after_its_time_with_its_own_sentence() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, seconds=1000)
        source = source_of(asker)
        start = asyncio.get_running_loop().time()
        with pytest.raises(AuthenticationFailed, match="Scripted has not returned within 30 s") as raised:
            await source.token()
        assert raised.value.retriable
        assert asyncio.get_running_loop().time() - start == pytest.approx(30, abs=0.01)
        await asyncio.sleep(0.01)
        assert (asker.running, asker.cancelled) == (0, 1)
        asker.seconds = 1
        assert value(await source.token()) == "token-2"

    run_virtually(story)


@pytest.mark.parametrize("in_thread", [True, False])
def test_a_call_that_returned_while_something_held_the_loop_is_no_failure(in_thread: bool) -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, seconds=1, in_thread=in_thread)
        source = source_of(asker)
        asked = asyncio.ensure_future(source.token())
        await asyncio.sleep(0.5)
        asyncio.get_running_loop()._now += 100.0  # type: ignore[attr-defined]
        assert value(await asked) == "token-1"
        assert (len(asker.calls), asker.cancelled) == (1, 0)

    run_virtually(story)


def test_a_call_in_a_thread_that_hangs_is_waited_for_again_not_doubled() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, seconds=70, in_thread=True)
        source = source_of(asker)
        for _ in range(2):
            with pytest.raises(AuthenticationFailed, match="has not returned within 30 s"):
                await source.token()
        assert value(await source.token()) == "token-1"
        assert (len(asker.calls), asker.most_running, asker.cancelled) == (1, 1, 0)

    run_virtually(story)


def test_a_token_that_comes_too_late_for_its_call_is_taken_all_the_same() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, seconds=30.01, in_thread=True)
        source = source_of(asker)
        with pytest.raises(AuthenticationFailed, match="has not returned"):
            await source.token()
        await asyncio.sleep(0.02)
        assert value(source.current()) == "token-1"
        assert value(await source.token()) == "token-1"
        assert len(asker.calls) == 1

    run_virtually(story)


@pytest.mark.parametrize(
    ("life", "text"),
    [(-5.0, "returned a token that expired 5 s ago by this computer's clock"), (0.5, "expires in 0.5 s"), (0.0, "")],
)
def test_a_token_whose_time_is_over_is_a_failure(life: float, text: str) -> None:
    async def story() -> None:
        asker = ScriptedAsker(life, HOUR)
        source = source_of(asker)
        with pytest.raises(AuthenticationFailed, match="the token provider Scripted returned a token") as raised:
            await source.token()
        assert text in str(raised.value)
        assert raised.value.retriable
        assert source.current() is None
        assert value(await source.token()) == "token-2"

    run_virtually(story)


def test_an_expired_answer_leaves_the_old_token_in_place() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, -1.0)
        source = source_of(asker)
        driver = asyncio.create_task(source.keep_fresh())
        await source.token()
        await asyncio.sleep(0.9 * HOUR)
        assert len(asker.calls) > 2
        assert value(await source.token()) == "token-1"
        driver.cancel()

    run_virtually(story)


def test_a_clock_that_jumps_past_the_end_makes_a_new_call_before_any_use() -> None:
    """The computer slept: the loop's clock stood still meanwhile, and the wall clock did not."""

    async def story() -> None:
        slept = 0.0
        start = asyncio.get_running_loop().time()
        asker = ScriptedAsker(HOUR, 3 * HOUR)
        source = source_of(asker, clock=lambda: 1_800_000_000.0 + asyncio.get_running_loop().time() + slept)
        driver = asyncio.create_task(source.keep_fresh())
        await source.token()
        await asyncio.sleep(10)
        slept = 2 * HOUR
        assert source.current() is None
        assert value(await source.token()) == "token-2"
        await asyncio.sleep(1)  # the driver sleeps again
        asker.script, slept = [9 * HOUR], 4.5 * HOUR  # without a caller, the driver notices within a minute
        await asyncio.sleep(61)
        assert value(source.current()) == "token-3"
        assert asyncio.get_running_loop().time() - start < 100
        driver.cancel()

    run_virtually(story)


def test_a_token_without_a_known_end_is_asked_for_again_after_a_minute() -> None:
    async def story() -> None:
        asker = ScriptedAsker(None)
        source = source_of(asker)
        driver = asyncio.create_task(source.keep_fresh())
        assert value(await source.token()) == "token-1"
        await asyncio.sleep(59)
        assert value(await source.token()) == "token-1"
        await asyncio.sleep(600)
        assert len(asker.calls) == 1
        assert value(await source.token()) == "token-2"
        await asyncio.sleep(61)
        asker.script = [failure()]
        assert value(await source.token()) == "token-2"  # it serves while the provider is down
        driver.cancel()

    run_virtually(story)


def test_with_a_greatest_age_each_use_looks_for_a_newer_one() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR)
        source = source_of(asker, max_age=1.0)
        for number in range(1, 4):
            assert value(await source.token()) == f"token-{number}"
            assert value(await source.token()) == f"token-{number}"
            await asyncio.sleep(1)

    run_virtually(story)


def test_the_present_token_serves_while_a_call_hangs() -> None:
    """As for a token in a file, on a file system that hangs: only one login waits for the file."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        asker = ScriptedAsker(HOUR, in_thread=True)
        source = source_of(asker, max_age=1.0)
        await source.token()
        asker.seconds = 500
        keeping = asyncio.create_task(source.keep_fresh())
        for waits in (30, 0, 0, 0):
            await asyncio.sleep(35)  # the pause after a failure is over, and another attempt is under way
            began = loop.time()
            assert value(await source.token()) == "token-1"
            assert loop.time() == pytest.approx(began + waits, abs=0.1)
        source.refused(await source.token())
        assert value(await source.token()) == "token-1"
        assert loop.time() > began + 1, "a token that a broker has refused is worth a wait for another one"
        asker.seconds = 0
        await asyncio.sleep(500)
        assert value(await source.token()) == "token-3"
        keeping.cancel()

    run_virtually(story)


def test_a_refused_token_is_replaced_before_the_next_authentication() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR)
        source = source_of(asker)
        token = await source.token()
        source.refused(token)  # brand new: another call would give the same
        assert await source.token() is token
        await asyncio.sleep(11)
        source.refused(token)
        assert value(await source.token()) == "token-2"
        source.refused(token)  # an old one: it was replaced already
        assert value(await source.token()) == "token-2"
        await asyncio.sleep(11)
        asker.script = [failure()]
        source.refused(await source.token())
        assert value(await source.token()) == "token-2"

    run_virtually(story)


def test_the_last_user_ends_the_call_and_the_thread() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, seconds=5)
        source = source_of(asker)
        drivers = [asyncio.create_task(source.keep_fresh()) for _ in range(2)]
        waiter = asyncio.create_task(source.token())
        await asyncio.sleep(1)
        drivers[0].cancel()
        await asyncio.sleep(1)
        assert (asker.running, asker.closed) == (1, 0)
        waiter.cancel()
        drivers[1].cancel()
        await asyncio.sleep(0.1)
        assert (asker.running, asker.cancelled, asker.closed) == (0, 1, 1)
        again = asyncio.create_task(source.keep_fresh())  # the next client
        assert value(await source.token()) == "token-2"
        again.cancel()

    run_virtually(story)


def test_a_call_that_ends_late_does_not_disturb_the_next_clients_call() -> None:
    """The last client stops, a new one starts, and only then the cancelled call of the old one ends."""

    class Slow(ScriptedAsker):
        async def ask(self) -> OAuthToken:
            try:
                return await super().ask()
            except asyncio.CancelledError:
                await asyncio.sleep(1)
                raise

    async def story() -> None:
        asker = Slow(HOUR, seconds=3)
        source = source_of(asker)
        driver, waiter = asyncio.create_task(source.keep_fresh()), asyncio.create_task(source.token())
        await asyncio.sleep(1)
        driver.cancel()
        assert value(await waiter) == "token-2"  # it goes on with a call of its own
        assert asker.calls[1] - asker.calls[0] == pytest.approx(1, abs=0.01)

    run_virtually(story)


def test_a_hundred_clients_refresh_by_one_call() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, seconds=0.2)
        source = source_of(asker)
        drivers = [asyncio.create_task(source.keep_fresh()) for _ in range(100)]
        await asyncio.gather(*(source.token() for _ in range(100)))
        assert len(asker.calls) == 1
        await asyncio.sleep(0.8 * HOUR + 1)
        assert len(asker.calls) == 2
        assert asker.most_running == 1
        for driver in drivers:
            driver.cancel()

    run_virtually(story)


def test_a_call_cancelled_by_others_is_a_failure_like_any_other() -> None:
    async def story() -> None:
        asker = ScriptedAsker(HOUR, seconds=5)
        source = source_of(asker)
        waiter = asyncio.create_task(source.token())
        await asyncio.sleep(1)
        (call,) = (task for task in asyncio.all_tasks() if "the token provider" in task.get_name())
        call.cancel()
        with pytest.raises(AuthenticationFailed, match="it was cancelled") as raised:
            await waiter
        assert raised.value.retriable
        assert value(await source.token()) == "token-2"

    run_virtually(story)


def test_a_loop_that_was_closed_under_a_client_leaves_no_error_behind() -> None:
    loop = asyncio.new_event_loop()
    asker = ScriptedAsker(HOUR, seconds=5)

    async def start() -> None:
        source = source_of(asker)
        held.append(loop.create_task(source.keep_fresh()))
        held.append(loop.create_task(source.token()))
        await asyncio.sleep(0.01)
        assert asker.running == 1

    held: list[asyncio.Task[Any]] = []
    loop.run_until_complete(start())
    loop.close()
    held += asyncio.all_tasks(loop).difference(held)
    for task in held:
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        task.get_coro().close()
    assert asker.closed == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_needs_no_lock_that_was_held_when_it_was_forked() -> None:
    """Another thread of the parent, whose loop looks for its source just then, is not there in the child."""

    async def look() -> None:
        shared_sources.shared_source("key", lambda: source_of(ScriptedAsker(HOUR)))

    def run() -> None:
        signal.alarm(20)  # its end, where it hangs
        asyncio.run(look())

    with shared_sources._lock:
        child = fork()
        if child == 0:
            as_child(run)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
