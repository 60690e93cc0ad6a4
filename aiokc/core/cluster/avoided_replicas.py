"""AvoidedReplicas: the closer replicas (KIP-392) that a client leaves alone for a while, because they have failed."""

from __future__ import annotations

from typing import Final

from ...types import TopicPartition

# A replica that has failed is avoided for so many times as long as it took to fail: less than a tenth of the time is
# lost to one that is silent until request_timeout_ms is over.
_TIMES = 10
# An answer that is an error comes at once. It counts as if it had taken so many seconds.
_ERROR_SECONDS: Final = 1.0
# The errors of so many partitions are remembered: partitions may come and go.
_MOST_ERRORS: Final = 1000


class AvoidedReplicas:
    """Which brokers are not to be read from as a replica now. Times are those of the loop, in seconds.

    It belongs to a client, and not to one reading of ranges, nor to what the metadata say: the next reading would wait
    for a silent broker anew, and so would all readings once a broker that had left the metadata is back.
    """

    def __init__(self) -> None:
        self._named: set[int] = set()
        self._until: dict[int, float] = {}
        self._erred: dict[TopicPartition, tuple[int, int]] = {}  # which broker, and at which offset

    def named(self, node_id: int, *, with_rack: bool) -> None:
        """Note that a leader has named this broker, in answer to a Fetch that names the client's rack, or does not.

        A leader that names it without a rack would do so again and again, and send no records itself: so the broker is
        not avoided any more.
        """
        self._named.add(node_id)
        if not with_rack:
            self._until.pop(node_id, None)

    def failed(self, node_id: int, until: float, took: float) -> None:
        """Avoid a broker until ``until``, and then for ten times the seconds that it took to fail.

        One that no leader has named is not avoided: it may fail as a leader, but is in another rack than the client. Of
        two Fetches to a silent broker the younger one may fail with the older one, after less time, and ends nothing
        sooner.
        """
        if node_id in self._named:
            self._until[node_id] = max(self._until.get(node_id, until), until + _TIMES * took)

    def erred(self, node_id: int, tp: TopicPartition, offset: int, until: float) -> None:
        """Note that a replica has answered a Fetch of ``tp`` from ``offset`` with an error. It is left until ``until``.

        It may only have lagged. But where it errs there again, it would do so for as long as the leader names it, and
        the leader sends no records as long as it does: so it is avoided.
        """
        if self._erred.pop(tp, None) == (node_id, offset):
            self.damaged(node_id, until)
        self._erred[tp] = node_id, offset
        if len(self._erred) > _MOST_ERRORS:
            del self._erred[next(iter(self._erred))]

    def damaged(self, node_id: int, until: float) -> None:
        """Avoid a broker whose copy of the log can't be read, which is left until ``until``: the leader's may be well.

        Not for long: this partition will be past that offset soon, and the broker may be well for all others.
        """
        self.failed(node_id, until, _ERROR_SECONDS)

    def is_avoided(self, node_id: int, now: float) -> bool:
        return self._until.get(node_id, now) > now

    def any(self, now: float) -> bool:
        """Whether a broker is avoided now."""
        if self._until:
            self._until = {node_id: until for node_id, until in self._until.items() if until > now}
        return bool(self._until)
