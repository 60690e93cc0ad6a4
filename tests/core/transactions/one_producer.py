"""A transaction machine with its clock, and shortcuts that bring it into a state."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final, TypeVar

from aiokc.core.backoff import Backoff
from aiokc.core.produce.identity import ProducerIdentity
from aiokc.core.transactions.events import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Answered,
    Appended,
    Begin,
    Commit,
    ControlRequest,
    Effect,
    EndTxn,
    Event,
    Initialize,
    InitProducerId,
    NotAnswered,
    Produced,
    SendOffsets,
    Settle,
    Settled,
    Tick,
    TxnOffsetCommit,
)
from aiokc.core.transactions.machine import TransactionMachine
from aiokc.core.transactions.transitions import State
from aiokc.error_codes import ErrorCode
from aiokc.errors import ConnectionFailed
from aiokc.types import GroupMetadata, OffsetAndMetadata, TopicPartition

BACKOFF: Final = 0.1
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
GROUP: Final = GroupMetadata("g", 3, "member", None)
OFFSETS: Final = {T0: OffsetAndMetadata(7)}
GONE: Final = ConnectionFailed("broker 1: gone")
REQUESTS: Final = (InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn)

E = TypeVar("E")


class Producer:
    """``sent`` are the control requests, ``effects`` all effects, in their order."""

    def __init__(self, version: int) -> None:
        self.now = 1_000.0
        self.version = version
        self.machine = TransactionMachine("id", Backoff(BACKOFF, 1.0, Random(1), jitter=0.0))
        self.effects: list[Effect] = []
        self.sent: list[ControlRequest] = []
        self.epochs = iter(range(100))

    @property
    def state(self) -> State:
        return self.machine.state

    @property
    def last(self) -> ControlRequest:
        return self.sent[-1]

    def feed(self, event: Event) -> list[Effect]:
        effects = self.machine.on(event, self.now)
        self.effects += effects
        self.sent += [effect for effect in effects if isinstance(effect, REQUESTS)]
        return effects

    def answer(self, code: int = ErrorCode.NONE, *, version: int | None = None) -> list[Effect]:
        """The coordinator answers the last request; where it succeeds and has a new identity, with the next epoch."""
        renews = isinstance(self.last, InitProducerId) or (isinstance(self.last, EndTxn) and self.last.uses_v2)
        identity = ProducerIdentity(1, next(self.epochs)) if renews and not code else None
        known = self.version if version is None else version
        return self.feed(Answered(self.last, code, "", identity, known))

    def gets_no_answer(self) -> list[Effect]:
        return self.feed(NotAnswered(self.last, GONE))

    def settle(self) -> list[Effect]:
        """The sender has done what the last Settle wants."""
        step = next(effect.step for effect in reversed(self.effects) if isinstance(effect, Settle))
        return self.feed(Settled(step))

    def waits(self) -> list[Effect]:
        """Let time pass until the machine wants a Tick."""
        assert self.now < self.machine.deadline < self.now + 10, "it waits for nothing"
        self.now = self.machine.deadline
        return self.feed(Tick())

    def of(self, kind: type[E]) -> list[E]:
        return [effect for effect in self.effects if isinstance(effect, kind)]

    # Stories

    def ready(self) -> Producer:
        self.feed(Initialize())
        self.answer()
        return self

    def begun(self, *partitions: TopicPartition) -> Producer:
        """Begin a transaction; the partitions have been added, and a batch was sent to each."""
        self.ready().feed(Begin())
        return self.writes(*partitions)

    def writes(self, *partitions: TopicPartition) -> Producer:
        for partition in partitions:
            self.feed(Appended(partition))
            if not self.machine.uses_v2:
                self.answer()
            self.feed(Produced())
        return self

    def commits(self) -> Producer:
        """The application commits, and all batches are acknowledged: the EndTxn is out."""
        self.feed(Commit())
        self.settle()
        return self

    def stores(self, number: int = 1) -> list[Effect]:
        return self.feed(SendOffsets(number, OFFSETS, GROUP))


def kinds(effects: Iterable[object]) -> list[str]:
    return [type(effect).__name__ for effect in effects]
