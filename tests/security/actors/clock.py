"""The clock by which clients made in a test look at the ends of their tokens, or at the age of what they have read."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from aiokc.net.credentials.credentials import Credentials


class Clock:
    """Is `ahead` of the clock that clients have otherwise by so many seconds; less than 0: behind."""

    def __init__(self, clock: Callable[[], float], ahead: float) -> None:
        self._clock = clock
        self.ahead = ahead

    def __call__(self) -> float:
        return self._clock() + self.ahead


@contextmanager
def clock_of_clients(ahead: float = 0.0, *, of: type[Any] = Credentials) -> Iterator[Clock]:
    """The clients that are made inside have this clock, also later, in the part that is an object `of` this class."""
    defaults: dict[str, Any] = vars(of)["__init__"].__kwdefaults__
    clock = Clock(defaults["clock"], ahead)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(defaults, "clock", clock)
        yield clock
