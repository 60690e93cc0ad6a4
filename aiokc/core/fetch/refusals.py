"""FetchRefusals: which Fetches are refused, by a whole broker or for a partition, why, and how long to leave them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from ...error_codes import ErrorCode
from ...errors import BrokerError, KafkaError
from ...types import TopicPartition
from ...wire.messages.fetch import PartitionData
from ..backoff import Backoff
from ..subscription.state import Subscription
from .response import is_retried
from .session import FetchTarget

# What may last for hours. All others tell of an election, which is over in a moment: each pause would delay records.
_MAY_LAST: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR})


@dataclass(slots=True)
class _Refused:
    token: int
    error: BrokerError
    pauses: Backoff


class FetchRefusals:
    """Keeps the newest error of each partition, and of each broker, until one of its answers is accepted.

    An error of a partition counts as long as its token is the same, and it is to be fetched.
    """

    def __init__(self, subscription: Subscription, new_backoff: Callable[[], Backoff]) -> None:
        self._subscription = subscription
        self._new_backoff = new_backoff
        self._partitions: dict[TopicPartition, _Refused] = {}  # the newest is the last one
        self._brokers: dict[int, KafkaError] = {}

    def refused(self, tp: TopicPartition, token: int, error: BrokerError) -> float | None:
        """A broker refuses ``tp`` by an error that is retried. Return the pause in seconds; None: the shortest."""
        known = self._partitions.pop(tp, None)
        pauses = self._new_backoff() if known is None or error.code not in _MAY_LAST else known.pauses
        self._partitions[tp] = _Refused(token, error, pauses)
        return pauses.next() if error.code in _MAY_LAST else None

    def answered(self, answers: Iterable[tuple[FetchTarget, PartitionData]]) -> None:
        """A broker has answered: forget the partitions that it does not refuse, and one that was left, if there is.

        That one is the oldest, since each refusal puts its partition to the end.
        """
        if not self._partitions:
            return
        for target, data in answers:
            if not is_retried(data.error_code):
                self._partitions.pop(target.tp, None)
        oldest = next(iter(self._partitions), None)
        if oldest is not None and self._subscription.get(oldest, self._partitions[oldest].token) is None:
            del self._partitions[oldest]

    def broker_refused(self, node_id: int, error: KafkaError) -> None:
        """A broker refuses a whole Fetch, or its answer can't be read."""
        self._brokers.pop(node_id, None)
        self._brokers[node_id] = error

    def broker_answered(self, node_id: int) -> None:
        """A broker's answer was accepted."""
        self._brokers.pop(node_id, None)

    def of(self, tp: TopicPartition, token: int) -> BrokerError | None:
        """Why the partition is refused under this token; None if it is not."""
        refused = self._partitions.get(tp)
        return refused.error if refused is not None and refused.token == token else None

    def newest(self, is_asked: Callable[[int], bool]) -> KafkaError | None:
        """Return an error that keeps records from coming; None where there is none. Any thread may call this.

        ``is_asked``: whether a broker is to be asked for anything. A broker that is not may never answer again.
        """
        for tp, refused in reversed(list(self._partitions.items())):
            position = self._subscription.get(tp, refused.token)
            if position is not None and position.fetchable:
                return refused.error
        return next((error for node_id, error in reversed(list(self._brokers.items())) if is_asked(node_id)), None)
