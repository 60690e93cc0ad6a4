"""LateAlarm: how much longer to wait for an answer whose time was over while something held the event loop."""

from __future__ import annotations

from typing import Final

# If an alarm fires this many seconds late, something held the loop: the delay says nothing about the broker.
_LATE_SECONDS: Final = 0.1
_MOST_SECONDS: Final = 1.0


def seconds_to_read(late: float) -> float:
    """Return for how many seconds the loop is to run before an alarm counts that was ``late`` (seconds); 0: it counts.

    asyncio may run a task that looks at the clock before it reads the sockets. What the broker has sent meanwhile is
    known only once the loop has read, and what was not sent meanwhile has to be sent first.
    """
    return 0.0 if late <= _LATE_SECONDS else min(late, _MOST_SECONDS)


class LateAlarm:
    """Has a connection read what is in its socket before a request fails, and lets no silent broker off.

    1. A handler of the application computes. Meanwhile an answer comes into the socket, and its time is over.
    2. The alarm is late. The loop is to read first: the alarm is set again, for as long as it was late, 1 s at most.
    3. The handler computes on, and the alarm is late once more. By now the loop has read from the socket. If nothing
       has come, the broker is silent, and the request fails, however often the handler holds the loop. If something
       has, it may be a part of an answer that takes several reads: go on with 2.
    """

    def __init__(self) -> None:
        self._received: object = None  # when the alarm was set again

    def extension(self, late: float, received: object) -> float:
        """Return for how many seconds to set an alarm again that is ``late`` (seconds); 0: the request has failed.

        ``received`` is another value each time that bytes have come.
        """
        seconds = 0.0 if received == self._received else seconds_to_read(late)
        if seconds:
            self._received = received
        return seconds
