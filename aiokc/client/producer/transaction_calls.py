"""The part of Producer that is about transactions: transaction(), and begin, commit and abort by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from ...errors import KafkaError, UsageError
from ...types import GroupMetadata
from ..transactions.driver import TransactionDriver
from ..transactions.transaction import Offsets, Transaction, send_offsets
from .runtime import ProducerRuntime


class TransactionCalls:
    """Transactions of a producer with a ``transactional_id`` (KIP-98). All others raise UsageError."""

    _runtime: ProducerRuntime
    _seconds: Callable[[float | None], float]

    def transaction(self) -> Transaction:
        """Return a transaction for ``async with``: it begins with the block, commits at its end, or aborts.

        What the block raises makes it abort. A producer has one transaction at a time.
        """
        return Transaction(self._driver("transaction()"), self._seconds(None))

    async def begin_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Begin a transaction: what is sent from here on belongs to it. An abort that still goes on is waited for.

        ``timeout_ms`` is by default max_block_ms, here and in the other calls.
        """
        driver, deadline = self._driver("begin_transaction()"), self._deadline(timeout_ms)
        await driver.begin(deadline)

    async def commit_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Send what is buffered, and commit; return once the coordinator has committed, and callbacks were called.

        Raises the first error of the transaction's records and offsets, if any has failed: then abort it. Raises
        RequestTimedOut where nobody knows yet whether it is committed, and goes on asking. After that, and after a call
        that was cancelled, call commit_transaction() again: it waits for the same commit, and tells its outcome. Where
        nobody will ever know, since a request to commit had no clear answer, and its repetition was refused for good or
        the producer was stopped, the error's ``may_be_committed`` is true.
        """
        driver, deadline = self._driver("commit_transaction()"), self._deadline(timeout_ms)
        await driver.commit(deadline)

    async def abort_transaction(self, *, timeout_ms: float | None = None) -> None:
        """Abort: what was not sent yet fails by TransactionAborted, and no reader of committed records sees the rest.

        A call that is cancelled, or takes too long, does not end the abort; the next transaction waits for it.
        """
        driver, deadline = self._driver("abort_transaction()"), self._deadline(timeout_ms)
        await driver.abort(deadline)

    async def send_offsets_to_transaction(
        self, offsets: Offsets, group_metadata: GroupMetadata, *, timeout_ms: float | None = None
    ) -> None:
        """Commit these offsets of a group, each the *next* one to read, if and when the transaction commits (KIP-447).

        ``offsets`` may be what one getmany() returned; ``group_metadata`` is the consumer's ``group_metadata()``, asked
        for when the records were returned: by it the group's coordinator refuses the offsets of a member that the group
        has gone on without. Then this raises CommitFailed, and the transaction must be aborted. So it must after a call
        that was cancelled, or had no answer in time (TransactionAbortable), since nobody knows what became of the
        offsets; and after ConfigError for a wrong argument, since none were sent.

        The coordinator gets topics by name, whatever ``topic_id`` the offsets have: of a topic that was recreated since
        they were read, they are stored for the new one. TransactionalLoop looks at the ids before it commits.

        Brokers before Kafka 2.5 know no member: UnsupportedVersion there, and the transaction must be aborted, unless
        ``group_metadata`` is ``GroupMetadata(group_id)`` alone, by which no zombie is refused.
        """
        call, deadline = "send_offsets_to_transaction()", partial(self._deadline, timeout_ms)
        await send_offsets(self._driver(call), offsets, group_metadata, deadline, call)

    def _deadline(self, timeout_ms: float | None) -> float:
        return asyncio.get_running_loop().time() + self._seconds(timeout_ms)

    def _driver(self, call: str) -> TransactionDriver:
        driver = self._runtime.transactions
        if driver is None:
            raise UsageError(f"{call} needs a transactional_id: give the producer one")
        try:
            self._runtime.check_running()
        except KafkaError as error:  # stopped: no call will tell any more what became of a commit
            error.may_be_committed = driver.may_be_committed
            raise
        return driver
