"""One run of ``aiokc produce``: reads, sends, waits for what was sent, and says what became of it."""

from __future__ import annotations

import os
import stat
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Final, Literal, TextIO, TypeAlias

from aiokc.errors import KafkaError
from aiokc.types import partition_count

from ..output.progress import Progress, progress
from ..problems import Problem, cut
from .encoding import Unencodable
from .lines import Splitter, chunks, content
from .sending import Sending

if TYPE_CHECKING:
    from aiokc import Producer
    from aiokc.admin import TopicDescription

    from ..context import Context
    from .records import Shape

Committed: TypeAlias = Literal["yes", "no", "maybe"]

#: How long a command that Ctrl-C has ended goes on to send what it has read.
_INTERRUPTED_MS: Final = 5_000
#: In JSON a byte may take six characters, and a record a little more than its key and value.
_JSON_FACTOR: Final = 8
_JSON_BESIDE: Final = 1 << 16


class Production:
    """Sends the input to ``topic`` by ``producer``, which it starts and stops."""

    def __init__(
        self, context: Context, producer: Producer[bytes, bytes], topic: TopicDescription, shape: Shape
    ) -> None:
        self._context, self._producer, self._topic, self._shape = context, producer, topic.name, shape
        self._sending = Sending(producer, topic.name, partition_count(topic.partitions))
        self._is_transaction: bool = context.args.transaction
        self._committed: Committed = "no"
        most = producer.config.max_request_size
        self._most = most * _JSON_FACTOR + _JSON_BESIDE if context.args.json else most

    async def run(self) -> None:
        """Send the input, up to the first failure, and say what became of it. Ctrl-C goes on as it came."""
        await self._producer.start(timeout_ms=self._context.timeout_ms)
        try:
            await self._send_all()
            # By then each record has its outcome: that is what the option means.
            await self._stop(self._producer.config.delivery_timeout_ms + 1_000)
        except BaseException:
            self._context.say(f"interrupted after {counted(self._sending.sent)}")
            await self._stop(_INTERRUPTED_MS)  # where it is the second call, it ends at once
            raise
        finally:
            self._tell()

    async def _send_all(self) -> None:
        if not self._is_transaction:
            await self._read()
            return
        try:
            await self._producer.begin_transaction()
            await self._read()
            if self._sending.causes:
                return
            # Where an abort has taken all failed records along, no send() came after it that would have raised its
            # cause: the commit does.
            self._committed = "no" if self._sending.failures else "maybe"
            await self._producer.commit_transaction()
            self._committed = "yes"
        except KafkaError as error:
            self._sending.failed("the transaction", error)
            if not error.may_be_committed:
                self._committed = "no"

    async def _stop(self, timeout_ms: int) -> None:
        """Send what was appended, or abort the transaction that is open; then each record has its outcome."""
        try:
            await self._producer.stop(timeout_ms=timeout_ms)
        except KafkaError as error:  # the transaction's end is not known: what it means is told below
            if not self._sending.failures:
                self._sending.failed("the transaction", error)
        self._sending.settle()

    def _tell(self) -> None:
        sending, context = self._sending, self._context
        sending.tell(context)
        if not self._is_transaction or self._committed == "yes":
            of_all = "" if sending.stored == sending.sent else f"{sending.stored} of "
            became = f"stored in {self._topic}"
            if self._producer.config.acks == 0:  # no broker answers, also where it has refused them
                became = f"sent to {self._topic}: with acks=0 nobody knows which are stored"
            context.say(f"{of_all}{counted(sending.sent)} {became}")
        elif self._committed == "maybe":
            context.say("nobody knows whether the transaction was committed: look with 'aiokc cat' before a retry")
        else:
            context.say("the transaction was aborted: readers with isolation_level=read_committed see none of it")

    async def _read(self) -> None:
        if self._context.args.file:
            await self._read_files(self._context.args.file)
        else:
            await self._read_lines()

    async def _read_lines(self) -> None:
        context, stdin = self._context, self._context.system.stdin
        if context.system.is_terminal(stdin):
            context.say("each line is a record; Ctrl-D ends")
        splitter, number, done = Splitter(context.args.delimiter), 0, 0
        with self._bar(_size_of(stdin)) as bar:
            async for data in chunks(stdin):
                for line in splitter.feed(data):
                    number += 1
                    if not await self._send(f"line {number}", line):
                        return
                if len(splitter.rest) > self._most:
                    self._sending.failed(f"line {number + 1}", Unencodable(f"is longer than {self._most} bytes"))
                if not self._sending.settle():
                    return
                bar.reached(done := done + len(data))
            if splitter.rest:
                await self._send(f"line {number + 1}", splitter.rest)

    async def _read_files(self, names: list[str]) -> None:
        with self._bar(len(names), in_bytes=False) as bar:
            for done, name in enumerate(names):
                where = cut(name)
                try:
                    data = await content(self._context.system.stdin, name, self._most + 1)
                except OSError as error:
                    self._sending.failed(where, Problem(error.strerror or str(error)))
                    return
                if len(data) > self._most:
                    self._sending.failed(where, Unencodable(f"is longer than {self._most} bytes"))
                    return
                if not (await self._send(where, data) and self._sending.settle()):
                    return
                bar.reached(done + 1)

    async def _send(self, where: str, data: bytes) -> bool:
        """Send the record that ``data`` stands for; return whether to go on."""
        try:
            record = self._shape.record(data)
        except Unencodable as error:
            return self._sending.failed(where, error)
        return record is None or await self._sending.send(where, record)

    def _bar(self, total: int | None, *, in_bytes: bool = True) -> AbstractContextManager[Progress]:
        context = self._context
        is_typed = not context.args.file and context.system.is_terminal(context.system.stdin)
        return progress(
            *(context.system, context.terminal, self._topic, total),
            quiet=context.args.quiet or is_typed,
            shows_records=False,
            in_bytes=in_bytes,
        )


def counted(records: int) -> str:
    """Return a number of records in words."""
    return f"{records} record" if records == 1 else f"{records} records"


def _size_of(stream: TextIO) -> int | None:
    """Return how many bytes a stream has, if it is a file."""
    try:
        status = os.fstat(stream.fileno())
    except (OSError, ValueError):  # a stream without a file, in tests
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
