"""The clock by which clients made in a test look at the ends of their tokens."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from aiokc.net.credentials.credentials import Credentials


class Clock:
    """Is `ahead` of the brokers' clock by so many seconds; less than 0: behind."""

    def __init__(self, ahead: float) -> None:
        self.ahead = ahead

    def __call__(self) -> float:
        return time.time() + self.ahead


@contextmanager
def clock_of_clients(ahead: float = 0.0) -> Iterator[Clock]:
    """The clients that are made inside have this clock, also later."""
    clock, defaults = Clock(ahead), Credentials.__init__.__kwdefaults__
    assert defaults is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(defaults, "clock", clock)
        yield clock
