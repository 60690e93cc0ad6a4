"""ChangeCount: one number that grows with everything that a call for records would look at before it returns any."""

from __future__ import annotations


class ChangeCount:
    """Counts the changes of one consumer.

    Who has looked at everything may go on without another look for as long as ``count`` stays the same. It may grow
    although nothing of interest has happened: that costs a look. So whatever may matter to a call for records counts.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 0

    def notify(self) -> None:
        """Something has happened. By this name, a Signal may be followed by the count."""
        self.count += 1
