"""CallsUnderWay: the application's calls that wait for brokers. They end with their client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import anyio

from ...errors import ClientClosed, KafkaError


class CallsUnderWay:
    """The calls of one client that other tasks are in when it stops, or when an error ends its background.

    No broker can be asked from then on. Without this, a call would try again and again, until its own deadline: its
    pauses, and its waits for newer metadata, know nothing of the client's end.
    """

    def __init__(self, closed: Callable[[], Exception | None]) -> None:
        """``closed`` returns what every call raises now; None as long as the client runs."""
        self._closed = closed
        self._scopes: dict[anyio.CancelScope, None] = {}

    def notify(self) -> None:
        """The background has ended, so the calls end, too. By this name, a Signal may be followed by the calls."""
        for scope in list(self._scopes):
            scope.cancel()

    @contextmanager
    def call(self) -> Iterator[None]:
        """Let the block end with the client: it raises what ``closed`` returns then."""
        with anyio.CancelScope() as scope:
            self._scopes[scope] = None
            try:
                yield
            except KafkaError as error:
                # The connections close before the calls are ended: the end looks like a failure that a retry may cure.
                if error.retriable and not isinstance(error, ClientClosed) and (closed := self._closed()) is not None:
                    raise closed from error
                raise
            finally:
                del self._scopes[scope]
        if scope.cancelled_caught:
            raise self._closed() or ClientClosed("stopped while the call waited")
