"""``TransactionalApplication``: sends in transactions, and commits or aborts them, in both styles of the API."""

from __future__ import annotations

import asyncio
from typing import Any

from aiokc import Producer
from aiokc.core.transactions.transitions import State
from aiokc.errors import KafkaError, ProduceError, RequestTimedOut, UsageError

from ..checking.history import CutShort, Failure
from .application import Application, Interrupted
from .events import Begun, Ended

#: How often an application asks for the end of a transaction before it makes another producer.
_MOST_CALLS = 20


class Finished(Exception):
    """The producer can't go on: the application makes another one."""


class _Undone(Exception):
    """The application wants its transaction to be aborted."""


class TransactionalApplication(Application):
    """One transaction after the other. A producer that can't go on is stopped, and another one is started."""

    _number = 0

    async def live(self) -> None:
        try:
            while not self.leaving:
                producer = await self._started()
                if producer is None:
                    break
                try:
                    await self.work(producer)
                except Finished as reason:
                    self.history.about(self.plan.name, f"makes another producer: {reason}")
                await self._stop(producer)
                self._kept.clear()
                transactional_id = str(self.plan.options.get("transactional_id"))
                if self.calm and transactional_id != "twins" and self.is_open(transactional_id):
                    self.history.add(Failure("dangling", f"{self.plan.name}: a transaction is open after stop()"))
                await asyncio.wait((self._leaving,), timeout=self.random.uniform(0.2, 2.0))
        except Exception as error:
            self.history.add(Failure("error", f"{self.plan.name}: {error!r}"))
        self.ended = True

    async def work(self, producer: Producer[bytes, bytes]) -> None:
        while not self.leaving:
            await asyncio.wait((self._leaving,), timeout=self.random.expovariate(1 / self.plan.pause))
            self._number += 1
            if self.random.random() < 0.5:
                await self._by_hand(producer)
            else:
                await self._in_a_block(producer)

    def _begun(self) -> None:
        self.transaction = self._number
        self.history.add(Begun(self.plan.name, self._number))

    def _over(self, how: str) -> None:
        if self.transaction is not None:
            self.history.add(Ended(self.plan.name, self._number, how))
        self.transaction = None

    async def _records(self, producer: Producer[bytes, bytes]) -> None:
        """Send some records, with all tasks. A call that is cancelled ends its task's part."""

        async def some(task: int) -> None:
            for _ in range(self.random.randint(1, self.plan.most_records)):
                await self.send_one(producer, task)

        outcomes = await asyncio.gather(*(some(task) for task in range(self.plan.tasks)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, Interrupted):
                raise outcome

    # async with

    async def _in_a_block(self, producer: Producer[bytes, bytes]) -> None:
        how, at_end = "aborted", [False]
        undo = self.random.random() < self.plan.aborts
        try:
            await self.call(self._block(producer, undo, at_end), None, "a transaction")
            how = "committed"
        except _Undone:
            pass
        except Interrupted:
            self.history.add(CutShort(self.plan.name, "transaction"))
            if at_end[0]:
                how = await self._committed(producer)
        except KafkaError as error:
            self.history.about(self.plan.name, f"the block raised {error!r}")
            self._check_alive(producer, error, "aborted" if not at_end[0] else "unknown")
            if at_end[0] and isinstance(error, RequestTimedOut):
                how = await self._committed(producer)
        finally:
            self._over(how)

    async def _block(self, producer: Producer[bytes, bytes], undo: bool, at_end: list[bool]) -> None:
        async with producer.transaction():
            self._begun()
            await self._records(producer)
            ended = self.loop.time()
            if undo:
                raise _Undone
            at_end[0] = True
        self.check_time(ended, 2 * self.block, "the end of a transaction")

    # By hand

    async def _by_hand(self, producer: Producer[bytes, bytes]) -> None:
        how = "aborted"
        try:
            await self.call(producer.begin_transaction(), self.block, "begin_transaction()")
        except Interrupted:
            self.history.add(CutShort(self.plan.name, "begin"))
            return await self._abort(producer) if self._is_open(producer) else None
        except KafkaError as error:
            self.history.about(self.plan.name, f"begin_transaction() raised {error!r}")
            return self._check_alive(producer, error, "aborted")
        self._begun()
        try:
            await self._records(producer)
            if self.random.random() < self.plan.aborts:
                await self._abort(producer)
            else:
                how = await self._committed(producer)
        finally:
            self._over(how)

    async def _committed(self, producer: Producer[bytes, bytes]) -> str:
        """Commit until the outcome is known, and return it: committed or aborted."""
        for _ in range(_MOST_CALLS):
            try:
                await self.call(producer.commit_transaction(), self.block, "commit_transaction()")
            except Interrupted:
                self.history.add(CutShort(self.plan.name, "commit"))
            except RequestTimedOut as error:
                self.history.about(self.plan.name, f"commit_transaction() raised {error!r}")
            except KafkaError as error:
                self.history.about(self.plan.name, f"commit_transaction() raised {error!r}")
                self._check_alive(producer, error, "unknown")
                if not isinstance(error, ProduceError) and isinstance(error, UsageError):
                    raise
                await self._abort(producer)
                return "aborted"
            else:
                return "committed"
        self._over("unknown")
        raise Finished("the outcome of a commit stays unknown")

    async def _abort(self, producer: Producer[bytes, bytes]) -> None:
        """Abort; a call that was cancelled may not even have begun, so it is repeated."""
        for _ in range(_MOST_CALLS):
            try:
                await self.call(producer.abort_transaction(), self.block, "abort_transaction()")
            except Interrupted:
                self.history.add(CutShort(self.plan.name, "abort"))
                continue
            except RequestTimedOut as error:
                self.history.about(self.plan.name, f"abort_transaction() raised {error!r}")
            except KafkaError as error:
                self.history.about(self.plan.name, f"abort_transaction() raised {error!r}")
                self._check_alive(producer, error, "aborted")
            return

    def _is_open(self, producer: Producer[bytes, bytes]) -> bool:
        return self._machine(producer).state in State.IN_TRANSACTION | State.ABORTABLE_ERROR

    def _machine(self, producer: Producer[bytes, bytes]) -> Any:
        driver = producer._runtime.transactions
        assert driver is not None
        return driver.machine

    def _check_alive(self, producer: Producer[bytes, bytes], error: Exception, how: str) -> None:
        """Raise Finished where the producer can't go on; the transaction ended as ``how``."""
        if self._machine(producer).state is State.FATAL_ERROR:
            self._over(how)
            raise Finished(repr(error))
