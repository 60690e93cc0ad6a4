"""FetchRefusals: which Fetches are refused, by a whole broker or for a partition, why, and how long to leave them."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass, field
from typing import Final

from ...error_codes import ErrorCode
from ...errors import BrokerError, KafkaError
from ...types import TopicPartition
from ...wire.messages.fetch import PartitionData
from ..backoff import Backoff
from ..subscription.position import PartitionPosition
from ..subscription.state import Subscription
from .response import is_retried
from .session import FetchTarget

# What may last for hours, as long as the same broker leads: a broken disk, say, that holds the only replica. All others
# are over with an election, or the next metadata, in a moment: each pause would delay records.
_MAY_LAST: Final = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.KAFKA_STORAGE_ERROR})


@dataclass(slots=True)
class _Pauses:
    """The pauses of one broker: while it refuses any of ``partitions`` by an error that may last, they grow.

    All that it refuses share one pause, which ends for all at once. Else each of a thousand partitions would be due at
    a time of its own, and have a Fetch of its own.
    """

    backoff: Backoff
    ends: float = 0.0
    partitions: set[TopicPartition] = field(default_factory=set)


@dataclass(slots=True)
class _Refused:
    token: int
    error: BrokerError
    node_id: int
    retry_at: float | None
    left_out_at: float | None = None  # when a Fetch that asked for it again has brought no word of it


class FetchRefusals:
    """Keeps the newest error of each partition, and of each broker, until one of its answers is accepted.

    An error of a partition counts as long as its token is the same, it is to be fetched, and no more than
    ``counts_for`` seconds have passed since a broker that was asked for it again has left it out: one that still
    refuses it has said so again by then. Nor does it count for longer where a Fetch that asked for it again has failed:
    by then something else is wrong. Until it is asked for again, however long that takes, nothing has changed: the
    buffer may be full for minutes, or the network slow.
    """

    def __init__(self, subscription: Subscription, new_backoff: Callable[[], Backoff], counts_for: float) -> None:
        self._subscription = subscription
        self._new_backoff = new_backoff
        self._counts_for = counts_for
        self._partitions: dict[TopicPartition, _Refused] = {}  # the newest is the last one
        self._pauses: dict[int, _Pauses] = {}
        self._brokers: dict[int, KafkaError] = {}
        self._unchecked: list[TopicPartition] = []  # the rest of a round through ``_partitions``

    def refused(self, tp: TopicPartition, token: int, error: BrokerError, node_id: int, now: float) -> float | None:
        """A broker refuses ``tp`` by an error that is retried. Return when to ask again; None: the shortest pause."""
        self._forget(tp)
        retry_at = self._next_attempt(tp, node_id, now) if error.code in _MAY_LAST else None
        self._partitions[tp] = _Refused(token, error, node_id, retry_at)
        return retry_at

    def _next_attempt(self, tp: TopicPartition, node_id: int, now: float) -> float:
        pauses = self._pauses.get(node_id)
        if pauses is None:
            pauses = self._pauses[node_id] = _Pauses(self._new_backoff())
        pauses.partitions.add(tp)
        if pauses.ends <= now:
            pauses.ends = now + pauses.backoff.next()
        return pauses.ends

    def _forget(self, tp: TopicPartition) -> None:
        """Forget the refusal of ``tp``, but keep the pauses of its broker: it may be refused again in this step."""
        refused = self._partitions.pop(tp, None)
        if refused is not None and refused.node_id in self._pauses:
            self._pauses[refused.node_id].partitions.discard(tp)

    def answered(
        self,
        answers: Iterable[tuple[FetchTarget, PartitionData]],
        now: float,
        asked: Iterable[FetchTarget] = (),
        known: Container[tuple[str, int]] = (),
    ) -> None:
        """A broker has answered: forget the partitions that it does not refuse, and note which ones it left out.

        ``asked`` are those that its Fetch asked for anew, ``known`` all that its session asks for.
        """
        if not self._partitions:
            return
        self.asked_in_vain(asked, now)
        for target, data in answers:
            refused = self._partitions.get(target.tp)
            if refused is not None and is_retried(data.error_code):
                refused.left_out_at = None
            elif refused is not None:
                self._forget(target.tp)
        self._check_one(now, known)
        for node_id in [node_id for node_id, pauses in self._pauses.items() if not pauses.partitions]:
            del self._pauses[node_id]

    def asked_in_vain(self, asked: Iterable[FetchTarget], now: float) -> None:
        """A Fetch that asked for these has brought no word of them, as far as is known yet."""
        if not self._partitions:
            return
        for target in asked:
            refused = self._partitions.get(target.tp)
            if refused is not None and refused.left_out_at is None:
                refused.left_out_at = now

    def _check_one(self, now: float, known: Container[tuple[str, int]]) -> None:
        """Forget the next partition of the round if it was given up, or if nobody refuses it any more.

        A look at all of them after each answer would take long where a broker refuses thousands. A partition may also
        have stayed in the session while it was left alone: then it is ``known``, and no Fetch asks for it anew.
        """
        if not self._unchecked:
            self._unchecked = list(self._partitions)
        if not self._unchecked:
            return
        tp = self._unchecked.pop()
        refused = self._partitions.get(tp)
        if refused is None:
            return
        if refused.left_out_at is None and tp in known:
            refused.left_out_at = now
        if not self._counts(refused, now) or self._subscription.get(tp, refused.token) is None:
            self._forget(tp)

    def _counts(self, refused: _Refused, now: float) -> bool:
        left_out_at = refused.left_out_at  # once: another thread may read this while the loop changes it
        return left_out_at is None or now - left_out_at <= self._counts_for

    def ends_with(self, leader: int, tp: TopicPartition, position: PartitionPosition) -> bool:
        """Whether ``tp`` is left alone only because another broker than this ``leader`` has refused it."""
        refused = self._partitions.get(tp)
        return refused is not None and refused.node_id != leader and refused.retry_at == position.retry_at

    def broker_refused(self, node_id: int, error: KafkaError) -> None:
        """A broker refuses a whole Fetch, or its answer can't be read."""
        self._brokers.pop(node_id, None)
        self._brokers[node_id] = error

    def forget_broker(self, node_id: int) -> None:
        """Drop what a broker refused: it has answered since, or can't be reached, which is another trouble."""
        self._brokers.pop(node_id, None)

    def of(self, tp: TopicPartition, token: int, now: float) -> BrokerError | None:
        """Why the partition is refused under this token; None if it is not. Any thread may call this."""
        refused = self._partitions.get(tp)
        return refused.error if refused is not None and refused.token == token and self._counts(refused, now) else None

    def newest(self, is_asked: Callable[[int], bool], now: float) -> KafkaError | None:
        """Return an error that keeps records from coming; None where there is none. Any thread may call this.

        ``is_asked``: whether a broker is to be asked for anything. A broker that is not may never answer again.
        """
        for tp, refused in reversed(list(self._partitions.items())):
            position = self._subscription.get(tp, refused.token)
            if position is not None and position.fetchable and self._counts(refused, now):
                return refused.error
        return next((error for node_id, error in reversed(list(self._brokers.items())) if is_asked(node_id)), None)
