"""UselessAnswers: which brokers not to ask again, because what they have answered was valid and of no use."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from math import inf
from typing import Final

# Elections, and groups that move, take some questions in a healthy cluster, too: no broker is connected to for those.
_ENOUGH: Final = 3
# Questions that are further apart are about different troubles. One trouble pauses for ten seconds (search_pause).
_IN_A_ROW_SECONDS: Final = 15.0
# So many of the brokers that answered last are passed over, and no more: a large cluster has hundreds to connect to.
_MOST_TOLD: Final = 2


class UselessAnswers:
    """The brokers that have answered one kind of request, asked again and again.

    A broker may be cut off from the controllers, and well otherwise: it tells of the leaders and coordinators of an
    hour ago, or has no producer ids to give. The client is connected to it, and to no other broker for such requests,
    so it would be the one to ask for ever. Of two brokers each is asked every second time then: the one that is cut off
    does not answer many times in a row. Times are those of the caller's clock, in seconds.
    """

    def __init__(self) -> None:
        self._told: deque[int] = deque(maxlen=_MOST_TOLD)
        self._in_a_row = 0
        self._asked_at = -inf

    def next_question(self, now: float, *, again: bool) -> Sequence[int]:
        """Return the brokers that others are to be asked before, the one that answered last at the end.

        ``again``: what the last answer said is of no use.
        """
        self._in_a_row = self._in_a_row + 1 if again and now - self._asked_at <= _IN_A_ROW_SECONDS else 0
        self._asked_at = now
        if not self._in_a_row:
            self._told.clear()
        return tuple(self._told) if self._in_a_row >= _ENOUGH else ()

    def answered_by(self, node_id: int) -> None:
        if node_id in self._told:
            self._told.remove(node_id)
        self._told.append(node_id)
