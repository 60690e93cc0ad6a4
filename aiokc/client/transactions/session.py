"""TransactionSession: what the sender of a transactional producer asks, and what it tells the transaction machine."""

from __future__ import annotations

from typing import Final

from ...core.produce.failure import Failure, Harm
from ...core.produce.identity import NOBODY, ProducerIdentity
from ...core.produce.session import Versions
from ...core.transactions.events import Appended, Produced, RecordFailed
from ...core.transactions.messages import PRODUCE
from ...core.transactions.transitions import State
from ...error_codes import ErrorCode
from ...errors import TransactionAbortable
from ...types import TopicPartition
from .driver import TransactionDriver


class TransactionSession:
    """The ProducerSession of a producer with transactions: each answer is that of the machine at this moment."""

    numbered: Final = True
    renumbers: Final = False  # a new epoch would begin another transaction without a word
    renumbers_unclear: Final = False
    trouble: Final = ""  # without an identity no transaction begins, and nothing is appended

    def __init__(self, transactional_id: str, driver: TransactionDriver) -> None:
        self.transactional_id: str | None = transactional_id
        self._driver = driver
        self._machine = driver.machine

    @property
    def identity(self) -> ProducerIdentity | None:
        identity = self._machine.identity
        return None if identity == NOBODY else identity

    @property
    def versions(self) -> Versions:
        return Versions(*PRODUCE[self._machine.uses_v2])

    @property
    def hurries(self) -> bool:
        return self._machine.state is State.COMMITTING_TRANSACTION

    @property
    def begun(self) -> int:
        return self._driver.begun

    @property
    def open_number(self) -> int:
        return self._driver.open_number

    @property
    def doom(self) -> Failure | None:
        return self._driver.doom

    def check_append(self) -> None:
        if self._machine.state is not State.IN_TRANSACTION:
            raise self._driver.refusal("send()")

    def appended(self, tp: TopicPartition) -> None:
        if not self._machine.has(tp):
            self._driver.feed(Appended(tp))

    def may_drain(self, tp: TopicPartition) -> bool:
        return self._machine.may_send(tp)

    def sent(self, tp: TopicPartition) -> None:
        if not self._machine.may_be_known:
            self._driver.feed(Produced())

    def failed(self, tp: TopicPartition, failure: Failure) -> None:
        ends_producer = failure.harm is Harm.PRODUCER
        first = next(iter(failure.records), 0)
        error = failure.producer_error() if ends_producer else failure.error_of(tp, first)
        if failure.code == ErrorCode.UNSUPPORTED_VERSION and self._machine.uses_v2:
            ends_producer = False  # transaction.version was lowered since the transaction began
            self._driver.requests.connect_anew()
            told = TransactionAbortable(f"{tp}: transaction.version of the brokers was lowered meanwhile: {error}")
            told.__cause__, error = error, told
        self._driver.feed(RecordFailed(error, ends_producer))

    def refused(self, error: Exception, begun: int) -> None:
        self._driver.refused(error, begun)

    def may_forget(self, used: ProducerIdentity) -> bool:
        """Before KIP-890 an epoch holds for many transactions: then partitions are kept until it changes."""
        return used != self._machine.identity

    def bump(self, lost: ProducerIdentity) -> ProducerIdentity | None:
        return None if self._machine.identity == lost else self.identity
