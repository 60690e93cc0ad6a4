"""Callbacks in turns: what one raises, be it a KeyboardInterrupt, keeps no other one from being called."""

from __future__ import annotations

import asyncio

import pytest

from aiokc.client.produce.callbacks import Callbacks

pytestmark = pytest.mark.timeout(30)


def test_a_keyboard_interrupt_in_a_callback_ends_the_run_and_the_others_are_called_all_the_same() -> None:
    loop = asyncio.new_event_loop()
    called: list[int] = []

    def interrupted() -> None:
        raise KeyboardInterrupt

    def due() -> None:
        callbacks.add([lambda: called.append(1), interrupted, lambda: called.append(2)])
        callbacks.add([lambda: called.append(3)])
        callbacks.begin()

    try:
        callbacks = Callbacks()
        loop.call_later(0.01, due)
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(asyncio.sleep(10))
        loop.run_until_complete(asyncio.sleep(0.05))  # where the turn was over before, the others had another one
        assert called == [1, 2, 3]
        assert not callbacks.running
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()
