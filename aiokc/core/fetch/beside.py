"""FetchBeside: what to ask a broker for while it parks a Fetch that does not ask for it: what was sought since, say."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from math import inf
from typing import Final

from ...types import TopicPartition
from .session import FetchSession, FetchTarget, SessionRequest, Wanted

# A Fetch that was not answered within this time is taken for parked: the broker holds it back until there are records.
# As much time lies between two Fetches beside it: a program that seeks all the time costs 200 requests a second.
_PARKED_AFTER: Final = 0.005

# A broker that may hold a Fetch back no longer than this needs no Fetch beside it.
_SHORT_WAIT_MS: Final = 20

_MOST_PARTITIONS: Final = 250


class FetchBeside:
    """The Fetches beside the one that a broker parks. Each is in no session, on another connection, and not parked.

    A broker answers one connection in order. So a partition that the parked Fetch does not ask for (it was sought,
    assigned or resumed since) would have to wait until that Fetch is answered: up to fetch_max_wait_ms. A Fetch beside
    it asks once for each such partition, and again whenever records of it have come. What has none waits for the next
    Fetch of the session, which asks for everything.
    """

    __slots__ = ("_changed", "_may_park", "_next", "session")

    def __init__(self) -> None:
        self.session = FetchSession(wished=False)  # of the last of these Fetches
        self._changed: dict[TopicPartition, None] = {}  # may be wanted otherwise since the last Fetch of the session
        self._may_park = False
        self._next = 0.0

    def change(self, tp: TopicPartition) -> None:
        """Note that ``tp`` is wanted from now on, or from another offset on."""
        self._changed[tp] = None

    def planned(self, now: float, max_wait_ms: int) -> None:
        """A Fetch of the session is sent, which asks for all that is wanted."""
        self._changed.clear()
        self._may_park, self._next = max_wait_ms > _SHORT_WAIT_MS, now + _PARKED_AFTER

    @property
    def at(self) -> float:
        """When there is reason to ask, on the loop's clock; infinity if there is none."""
        return self._next if self._changed and self._may_park else inf

    def request(
        self, now: float, asked: Mapping[tuple[str, int], FetchTarget], wanted: Wanted
    ) -> SessionRequest | None:
        """Return a request for what is ``wanted`` and was not ``asked`` for by the Fetch in flight; None: for nothing.

        Where that Fetch asks for a partition under the same token, its answer brings the records. A Fetch beside it
        would bring the same ones, and so would the next two Fetches, and so on.
        """
        targets: dict[TopicPartition, FetchTarget] = {}
        for tp in list(islice(self._changed, _MOST_PARTITIONS)):
            del self._changed[tp]
            target, known = wanted.get(tp), asked.get(tp)
            if target is not None and (known is None or known.token != target.token):
                targets[tp] = target
        if not targets:
            return None
        self._next = now + _PARKED_AFTER
        self.session = FetchSession(wished=False)
        return self.session.request(targets)
