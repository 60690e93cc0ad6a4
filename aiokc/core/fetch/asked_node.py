"""AskedNode: what FetchPlanner wants of one broker, and what that broker's last answers say of what it has."""

from __future__ import annotations

from dataclasses import dataclass, field

from ...types import TopicPartition
from .beside import FetchBeside
from .partition.partition_buffer import PartitionBuffer
from .session import FetchSession, FetchTarget, SessionRequest


@dataclass(slots=True)
class AskedNode:
    """What to fetch from one broker."""

    session: FetchSession
    wanted: dict[TopicPartition, FetchTarget] = field(default_factory=dict)
    only: frozenset[TopicPartition] | None = None  # the partitions that the last request was confined to
    has_more: bool = False  # the broker has more than its last response brought, and no request has asked for it yet
    had_room: bool = True  # the last response that says something of all of them could have brought more
    full_answers: int = 0  # how many of those could not
    retry_at: float = 0.0
    beside: FetchBeside = field(default_factory=FetchBeside)

    def put(self, target: FetchTarget, *, is_retry: bool) -> None:
        """Want ``target``. A new one goes to the end: so a broker without sessions serves all partitions in turn."""
        tp = target.tp
        known = self.wanted.get(tp)
        if known == target:
            return
        if known is not None:
            del self.wanted[tp]
        self.wanted[tp] = target
        self.session.change(tp)
        if not is_retry:  # which is in no hurry
            self.beside.change(tp)

    def filled(self, buffer: PartitionBuffer) -> FetchTarget | None:
        """The answer for a partition was stored: want what follows, and return that. None: it is not wanted so."""
        tp = buffer.tp
        known = self.wanted.get(tp)
        if known is None or known.token != buffer.token:
            return None
        del self.wanted[tp]
        last_epoch = -1 if buffer.epoch is None else buffer.epoch
        target = FetchTarget(tp, known.token, buffer.end, known.leader_epoch, last_epoch, known.topic_id)
        self.wanted[tp] = target
        self.session.change(tp)
        self.beside.change(tp)
        return target

    def take(self, tp: TopicPartition) -> None:
        if self.wanted.pop(tp, None) is not None:
            self.session.change(tp)

    def most_bytes(self, of_partition: int) -> int:
        """The most bytes that a response brings if it brings no more than ``of_partition`` for each partition."""
        return of_partition * len(self.session.known)

    def request(self, only: frozenset[TopicPartition] | None) -> SessionRequest:
        """Return what to tell the broker: about all partitions, or as if there were ``only`` these."""
        if only != self.only:
            self.only = only
            self.session.changed(self.wanted)
        if only is None:
            return self.session.request(self.wanted)
        return self.session.request({tp: target for tp, target in self.wanted.items() if tp in only})
