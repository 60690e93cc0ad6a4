"""TransactionalLoop: from topic to topic exactly once: a batch's results and its offsets are committed as one."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import copy
from typing import Any, Final, Generic, TypeAlias

import anyio

from ...core.backoff import Backoff, retry_backoff
from ...core.subscription.position import is_of_another_topic
from ...error_codes import ErrorCode
from ...errors import (
    CommitFailed,
    ConfigError,
    ConsumerClosed,
    DeliveryTimedOut,
    KafkaError,
    MetadataMissing,
    RebalanceInProgress,
    RecordRefused,
    RequestTimedOut,
    TransactionAbortable,
    TransactionAborted,
    UsageError,
    shown,
)
from ...types import ConsumerRecords, K, OffsetAndMetadata, TopicPartition, V, named
from ..aio.complaints import Complaints
from ..consumer.consumer import Consumer
from ..producer.producer import Producer
from ..transactions.driver import TransactionDriver

logger = logging.getLogger("aiokc.transactions")

#: What the application makes of a batch; it sends the results by the loop's producer. What it returns is not used.
Process: TypeAlias = Callable[[ConsumerRecords[K | None, V | None]], object]

#: What comes of a rebalance, of a transaction that took too long, or of brokers that are away. The same batch may
#: succeed at the next attempt, here or at the member that has its partitions by then.
_PASSES: Final = (CommitFailed, RebalanceInProgress, TransactionAbortable, TransactionAborted, DeliveryTimedOut)

#: A record was refused for the sake of its transaction, which is no more, or can't go on: the next one may.
_CURED_BY_ABORT: Final = (
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,  # the transactional id was idle for transactional.id.expiration.ms
    ErrorCode.INVALID_TXN_STATE,
    ErrorCode.TRANSACTION_ABORTABLE,
    ErrorCode.UNSUPPORTED_VERSION,
    # The broker has lost the sequences of the producer, which begin at 0 in the next epoch.
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.UNKNOWN_TOPIC_ID,  # the topic was recreated: what is sent from now on is for the new one
)


class TransactionalLoop(Generic[K, V]):
    """Reads by a consumer, and writes by a producer, in one transaction for each batch (KIP-98, KIP-447).

        loop = TransactionalLoop(consumer, producer)

        async def process(batch):
            for records in batch.values():
                for record in records:
                    await producer.send("totals", record.value, record.key)

        await loop.run(process)

    Each batch is processed, its results are sent, and its offsets are committed in the same transaction: readers with
    isolation_level="read_committed" see the results of each input record once, whatever ends this process or moves its
    partitions. ``process`` itself may run several times for a record, so its effects elsewhere are not exactly once.
    The batch is committed as a whole, also where ``process`` takes partitions out of the dict that it is given.

    The consumer needs a group_id, isolation_level="read_committed" and enable_auto_commit=False, and the producer a
    transactional_id that no other running member has. Brokers 2.5 or newer. With auto_offset_reset="latest", records
    that come before the first commit of their partition can be missed at a rebalance: "earliest" misses none.
    """

    def __init__(self, consumer: Consumer[K, V], producer: Producer[Any, Any]) -> None:
        """Raises ConfigError where an option of consumer or producer does not allow exactly-once processing."""
        _check_options(consumer, producer)
        #: How many batches were committed, and how many attempts were aborted. One whose commit has no answer counts
        #: as soon as the loop knows what became of it: before it takes the next batch.
        self.committed = 0
        self.aborted = 0
        self._consumer = consumer
        self._producer = producer
        self._backoff: Backoff = retry_backoff(producer.config, producer._runtime.cluster_client.random)
        self._complaints = Complaints(logger)
        self._is_running = False
        self._is_stopping = False
        self._waits: anyio.CancelScope | None = None  # around the wait for records, and what comes before it
        #: The partitions of a batch whose transaction was not committed, as far as this loop knows.
        self._undone: frozenset[TopicPartition] = frozenset()
        self._in_doubt = False  # whether nobody knows yet if the last attempt was committed
        self._is_checked = False  # that the brokers can tell a zombie's offsets
        self._is_one_cluster = False  # that consumer and producer are clients of one cluster
        #: What ``process`` has raised while nothing was wrong with the transaction: no attempt of the loop cures it.
        self._raised: Exception | None = None
        self._missing: MetadataMissing | None = None  # what the next batch waits for, since send_soon() can't
        self._found: set[tuple[str, int]] = set()  # what was waited for since the last commit, and is there

    def stop(self) -> None:
        """Have run() return once the batch that is being processed, if any, is committed or aborted.

        Where none is running, the next one returns before it reads anything: a signal may come before the task of run()
        has begun, or while the application handles what run() has raised.
        """
        self._is_stopping = True
        if self._waits is not None:
            self._waits.cancel()

    async def run(self, process: Process[K, V], *, max_records: int | None = None) -> None:
        """Process batches of up to ``max_records`` (default: the consumer's max_poll_records) until stop().

        ``process`` is a function, plain or async. What it raises aborts the batch's transaction and is raised here; the
        batch comes again with the next run(). So does a batch whose run() was cancelled. After rebalances, transactions
        that took too long, and failures of the transaction that a retry may cure, the loop goes on by itself.
        Partitions that are assigned already begin at the offsets that their group has committed. Raises what getmany()
        raises, ProducerFenced where another producer has taken over the transactional_id, MetadataMissing where no
        broker knows a topic or partition that ``process`` sends to, ConfigError where the two are clients of different
        clusters, BufferFull where what it sends by send_soon() does not fit into buffer_memory, UnsupportedVersion for
        brokers before 2.5, and ProducerClosed when the producer is stopped. Returns also when the consumer is stopped.
        """
        if not callable(process):
            raise ConfigError(f"process must be a function of a batch, plain or async, not {type(process).__name__}")
        if self._is_running:
            raise UsageError("run() is running in another task: a loop runs once at a time")
        self._is_running = True
        # Another loop over this consumer may have ended without knowing what became of its last batch.
        self._undone |= self._consumer.assignment()
        self._missing = None
        self._found.clear()
        try:
            while not self._is_stopping:
                try:
                    await self._round(process, max_records)
                except ConsumerClosed:
                    if not self._consumer._runtime.stopped:
                        raise
                    return
                except Exception as error:
                    if not self._passes(error):
                        raise
                    text = "a batch was not committed, and is processed again: %s"
                    self._complaints.warn(_kind(error), text, error)
                    await asyncio.sleep(self._backoff.next())
        finally:
            self._is_running = self._is_stopping = False
            self._raised = None

    async def _round(self, process: Process[K, V], max_records: int | None) -> None:
        batch = await self._next_batch(max_records)
        if not batch.ends:
            return
        try:
            async with self._producer.transaction() as transaction:
                # Its own one: it may take partitions out as it processes them. They are committed, or come again.
                await self._process(process, copy(batch))
                await transaction.send_offsets(batch, self._consumer.group_metadata())
                self._refuse_given_up(batch)
        except BaseException:
            self._in_doubt = self._driver.has_untold_commit
            if not self._in_doubt:
                self.aborted += 1
            self._rewind(batch)
            raise
        self._note_commit()

    def _note_commit(self) -> None:
        self.committed += 1
        self._backoff.reset()
        self._found.clear()

    async def _process(self, process: Process[K, V], batch: ConsumerRecords[K | None, V | None]) -> None:
        try:
            result = process(batch)
            if inspect.isasyncgen(result) or inspect.isgenerator(result):
                raise ConfigError("process is a generator, whose body nothing runs: it must not yield")
            if inspect.isawaitable(result):
                await result
        except Exception as error:
            # What has failed of the transaction, a send() say, is known to it by now. All else is the application's
            # own, whatever its class: a timeout of a call to another cluster tells nothing of this one.
            if self._driver.machine.error is None:
                self._raised = error
            raise

    async def _check_brokers(self) -> None:
        """Raise UnsupportedVersion before the first batch is processed for nothing."""
        self._producer._runtime.check_running()
        group_id, seconds = self._consumer.config.group_id, self._producer.config.max_block_ms / 1e3
        try:
            await self._driver.requests.check_group(group_id or "", seconds)
        except KafkaError as error:
            if not error.retriable:
                raise
            logger.warning("the brokers' version is not known yet: %s", error)  # send_offsets() looks at it, too
        else:
            self._is_checked = True

    def _check_clusters(self) -> None:
        """Raise ConfigError before the first batch is taken: its offsets would be stored in the wrong cluster.

        A coordinator there does not know the consumer's generation: each attempt would be aborted, and tried again.
        With a batch in hand this would be too late: who goes on with this consumer would never see its records.
        """
        if self._is_one_cluster:
            return
        read = self._consumer._runtime.cluster_client.metadata.cluster.cluster_id
        written = self._producer._runtime.cluster_client.metadata.cluster.cluster_id
        if read is None or written is None:
            return
        if read != written:
            raise ConfigError(
                f"TransactionalLoop: the consumer reads from cluster {shown(read)}, and the producer writes to cluster "
                f"{shown(written)}: a transaction holds the offsets and the results, and is of one cluster"
            )
        self._is_one_cluster = True

    @contextmanager
    def _until_closed(self) -> Iterator[None]:
        """Let the block end with either client, and raise that it is closed: a wait for the other one knows nothing of
        it, and would go on until its own deadline.
        """
        with self._producer._runtime.cluster_client.call(), self._consumer._runtime.cluster_client.call():
            yield

    @property
    def _driver(self) -> TransactionDriver:
        driver = self._producer._runtime.transactions
        assert driver is not None, "the producer has a transactional_id"
        return driver

    def _passes(self, error: Exception) -> bool:
        """Whether the same batch may succeed later, here or elsewhere. Of a TaskGroup, each error has to."""
        is_own = error is self._raised
        return all(self._one_passes(one, is_own) for one in _leaves(error))

    def _one_passes(self, error: Exception, is_own: bool) -> bool:
        if is_own:
            return isinstance(error, MetadataMissing) and self._waits_for(error)
        if isinstance(error, MetadataMissing):
            return not self._is_nowhere(error)
        if isinstance(error, RecordRefused):
            return error.code in _CURED_BY_ABORT
        if isinstance(error, TransactionAborted) and isinstance(error.__cause__, Exception):
            return self._passes(error.__cause__)  # a record that was not sent, because another one had failed
        return isinstance(error, _PASSES) or (isinstance(error, KafkaError) and error.retriable)

    def _is_nowhere(self, error: MetadataMissing) -> bool:
        """Whether brokers have said, for as long as a send waits, that there is no such topic or partition."""
        cluster = self._producer._runtime.cluster_client.metadata.cluster
        is_known = cluster.topics.get(error.topic) is not None
        is_refused = cluster.errors.get(error.topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return isinstance(error.__cause__, RequestTimedOut) and (is_known or is_refused)

    def _waits_for(self, error: MetadataMissing) -> bool:
        """send_soon() does not wait for a topic or partition: then the loop does, once, before it processes again.

        What was there after that wait, and is missing all the same, is so in another cluster, of which the loop knows
        nothing.
        """
        if (error.topic, error.partition) in self._found:
            return False
        self._missing = error
        return True

    async def _find_missing(self) -> None:
        """Return once the metadata have what the last attempt lacked. Raises MetadataMissing after max_block_ms."""
        if (missing := self._missing) is None:
            return
        partition = None if missing.partition < 0 else missing.partition
        with self._until_closed():
            await self._producer._runtime.routes.find(
                missing.topic, partition, self._producer.config.max_block_ms / 1e3
            )
        self._found.add((missing.topic, missing.partition))
        self._missing = None

    async def _next_batch(self, max_records: int | None) -> ConsumerRecords[K | None, V | None]:
        """Return the next batch; an empty one if stop() has ended the wait for it, or for what comes before it."""
        with anyio.CancelScope() as self._waits:
            if not self._is_stopping:
                if not self._is_checked:
                    with self._until_closed():
                        await self._check_brokers()
                await self._recover()
                await self._find_missing()
                self._check_clusters()
                with self._until_closed():
                    return await self._consumer.getmany(max_records=max_records)
        return ConsumerRecords()

    def _refuse_given_up(self, batch: ConsumerRecords[K | None, V | None]) -> None:
        """Raise CommitFailed where the group has taken partitions of the batch away: others may be reading them. And
        where the metadata say that a topic was recreated: before TxnOffsetCommit 6 the transaction has its offsets by
        the topic's name.
        """
        runtime = self._consumer._runtime
        if runtime.subscription.by_topics and (gone := runtime.subscription.given_up(batch.assignment_tokens)):
            raise CommitFailed(
                ErrorCode.ILLEGAL_GENERATION, f"{named(gone)}: the group has given these partitions to others meanwhile"
            )
        cluster = runtime.cluster_client.metadata.cluster
        offsets = batch.next_offsets.items()
        if former := {tp for tp, offset in offsets if is_of_another_topic(offset, cluster.topic_id(tp.topic))}:
            why = "the topic was deleted and created again: the offsets of the old one mean nothing in the new one"
            raise CommitFailed(ErrorCode.UNKNOWN_TOPIC_ID, f"{named(former)}: {why}")

    def _rewind(self, batch: ConsumerRecords[K | None, V | None]) -> None:
        """Go back to where the batch begins. A partition that was given up since begins at its committed offset.

        One whose topic was recreated since begins at the beginning of the new log: the seek names the topic that the
        batch was read from.
        """
        ends = batch.ends
        self._undone |= ends.keys()
        gone = self._consumer._runtime.subscription.given_up(batch.assignment_tokens)
        for tp, records in batch.items():
            if records and tp in ends and tp not in gone:  # an interceptor may have put records under another partition
                self._consumer.seek(tp, OffsetAndMetadata(records[0].offset, topic_id=ends[tp].topic_id))

    async def _recover(self) -> None:
        """After a batch that was not committed, as far as this loop knows: find out, and go on at the group's offsets.

        The commit may have been carried out although its call was cancelled, or had no answer.
        """
        if not self._undone:
            return
        # The producer's own calls end with the producer, and tell then what may have become of the commit.
        with self._consumer._runtime.cluster_client.call():
            await _settle(self._producer, self._driver)
        if self._in_doubt:
            self._in_doubt = False
            if self._driver.has_committed:
                self._note_commit()
            else:
                self.aborted += 1
        subscription = self._consumer._runtime.subscription
        mine = {tp: subscription[tp].assignment_token for tp in self._undone & self._consumer.assignment()}
        if mine:
            with self._until_closed():
                committed = await self._consumer.committed(*mine)
            # One that went away meanwhile, and came back, begins where its group is by now. The answer may be older.
            gone = subscription.given_up(mine)
            for tp, offset in committed.items():
                if offset is not None and tp not in gone:
                    self._consumer.seek(tp, offset)
        self._undone = frozenset()


def _leaves(error: Exception) -> Iterator[Exception]:
    """Return the errors of an ExceptionGroup, also of those in it; of all else, itself."""
    if isinstance(error, ExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _kind(error: Exception) -> frozenset[object]:
    """Return what tells a warning of this error from others: classes and codes.

    By the class alone, a rebalance would hide for half a minute that the input topic was recreated: both are
    CommitFailed. A commit does not end that half minute: if each batch failed once, each would have its line.
    """
    return frozenset((type(one), getattr(one, "code", None)) for one in _leaves(error))


async def _settle(producer: Producer[Any, Any], driver: TransactionDriver) -> None:
    """Return when the last transaction is committed or aborted: a commit whose outcome nobody has got is asked for."""
    if driver.has_untold_commit:
        try:
            await producer.commit_transaction()
        except Exception:
            if not driver.is_abortable:
                raise
    if driver.is_abortable:
        await producer.abort_transaction()


def _check_options(consumer: object, producer: object) -> None:
    if not isinstance(consumer, Consumer) or not isinstance(producer, Producer):
        given = f"{type(consumer).__name__}, {type(producer).__name__}"
        raise ConfigError(f"TransactionalLoop({given}): give it a Consumer, and then a Producer")
    wrong = [
        (consumer.config.group_id is None, "the consumer needs a group_id: its offsets are committed for that group"),
        (
            consumer.config.isolation_level != "read_committed",
            'the consumer needs isolation_level="read_committed": records of aborted transactions must not count',
        ),
        (
            consumer.config.enable_auto_commit,
            "the consumer needs enable_auto_commit=False: its offsets are committed with the results",
        ),
        (producer.config.transactional_id is None, "the producer needs a transactional_id"),
    ]
    for is_wrong, why in wrong:
        if is_wrong:
            raise ConfigError(f"TransactionalLoop: {why}")
    transaction, session = producer.config.transaction_timeout_ms, consumer.config.session_timeout_ms
    # With the consumer protocol, the brokers say how long a session is.
    if transaction >= session and consumer.config.effective_group_protocol != "consumer":
        logger.warning(
            "transaction_timeout_ms=%d is not below session_timeout_ms=%d: if this process dies, the member that gets "
            "its partitions may have to wait for the end of its transaction",
            transaction,
            session,
        )
