"""Carries out the dialogues of core with I/O: the handshake and authentication, in the event loop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from ...core.connection.handshake import Dialogue
from ...core.sasl.mechanism import Work
from ...core.versions import AnyRequest
from ..own_thread import OwnThread

T = TypeVar("T")


async def carry_out(
    dialogue: Dialogue[T], ask: Callable[[AnyRequest, int], Awaitable[memoryview]], thread: OwnThread | None
) -> T:
    """Return what ``dialogue`` agrees on with the broker. ``ask`` sends a request and returns the body of the answer.

    What the dialogue wants computed is computed in ``thread``, off the loop.
    """
    try:
        step = next(dialogue)
        while True:
            if not isinstance(step, Work):
                step = dialogue.send(await ask(step.request, step.version))
                continue
            assert thread is not None, "credentials come with a thread"
            try:
                result = await thread.run(step.function)
            except Exception as error:
                step = dialogue.throw(error)
            else:
                step = dialogue.send(result)
    except StopIteration as end:
        agreed: T = end.value
        return agreed
    finally:
        dialogue.close()
