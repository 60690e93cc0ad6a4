"""Builds what health() and metrics() of a producer return from what its parts know: no request, no await."""

from __future__ import annotations

from ...config import ProducerConfig
from ...core.produce.accumulator import RecordAccumulator
from ...core.produce.partition_queue import PartitionQueue
from ...errors import KafkaError, fresh
from ...observation import PartitionTrouble, ProducerHealth, ProducerMetrics
from ...types import TopicPartition
from ..cluster.cluster_client import ClusterClient
from ..produce.memory import MemoryWaiters
from ..produce.sender import Sender
from ..produce.unobserved import Unobserved
from ..transactions.driver import TransactionDriver


def health(
    cluster_client: ClusterClient[ProducerConfig],
    accumulator: RecordAccumulator,
    memory: MemoryWaiters,
    transactions: TransactionDriver | None,
) -> ProducerHealth:
    now = cluster_client.now()
    session = accumulator.session
    error = cluster_client.background.error
    if error is None and session.doom is not None and session.doom.ends_producer:
        error = session.doom.producer_error()
    last_error = _of_transaction(transactions) or cluster_client.metadata.error or cluster_client.pool.trouble(now)
    oldest, troubled = None, dict[TopicPartition, PartitionTrouble]()
    for queue in accumulator.queues.active:
        created = [batch.created for batch in queue.snapshot()]
        if created:
            oldest = min(created) if oldest is None else min(oldest, *created)
            if (trouble := _trouble(accumulator, queue, len(created), now - min(created), now)) is not None:
                troubled[queue.tp] = trouble
    identity = session.identity
    return ProducerHealth(
        running=cluster_client.running and cluster_client.background.alive,
        error=None if error is None else fresh(error),
        last_error=None if last_error is None else fresh(last_error),
        oldest_unanswered_age_ms=None if oldest is None else (now - oldest) * 1e3,
        buffered_bytes=accumulator.used,
        memory_waiters=len(memory),
        producer_id=-1 if identity is None else identity.producer_id,
        epoch=-1 if identity is None else identity.epoch,
        transaction_state=None if transactions is None else transactions.machine.state.name,
        troubled=troubled,
        cluster_id=cluster_client.metadata.cluster.cluster_id,
        stopped=cluster_client.stopped,
    )


def _of_transaction(transactions: TransactionDriver | None) -> KafkaError | None:
    """Why the last control request has failed, while there is one to send; None where nothing is wrong."""
    if transactions is None or not transactions.machine.has_work:
        return None
    return transactions.requests.error


def longest_trouble(accumulator: RecordAccumulator, now: float) -> str:
    """Return what keeps those records from being stored that have waited longest; "" where nothing is known of it."""
    queue = min(accumulator.queues.active, key=lambda queue: queue.oldest, default=None)
    trouble = None if queue is None else _trouble(accumulator, queue, 1, now - queue.oldest, now)
    return "" if queue is None or trouble is None else f"{queue.tp}: {trouble.error}"


def _trouble(
    accumulator: RecordAccumulator, queue: PartitionQueue, batches: int, age: float, now: float
) -> PartitionTrouble | None:
    """Return what keeps a partition's records from being stored; None where nothing does, as far as that is known."""
    first = next(iter(list(queue.waiting)), None)
    comes_back = first is not None and first.attempts > 0
    text = accumulator.session.trouble or accumulator.queues.trouble_of(queue)
    retry_in: float | None = None
    if first is not None and comes_back:
        text = text or first.last_error
        retry_in = max(0.0, first.retry_at - now) * 1e3
    elif not text:  # under way again: what it was refused by may be over, and nobody knows yet
        again = next((one for one in list(queue.in_flight) if one.outcome is None and one.last_code), None)
        text = "" if again is None else again.last_error
    if queue.lost_sequence or queue.unresolved:
        text = text or "its sequences were lost: it begins anew once nothing is in flight"
    if not text:
        return None
    return PartitionTrouble(error=text, batches=batches, age_ms=age * 1e3, retry_in_ms=retry_in)


def metrics(
    config: ProducerConfig,
    cluster_client: ClusterClient[ProducerConfig],
    accumulator: RecordAccumulator,
    sender: Sender,
    memory: MemoryWaiters,
    unobserved: Unobserved,
) -> ProducerMetrics:
    counted = accumulator.counters
    # First: so another thread than the loop's never finds more records with an outcome than records.
    stored, failed = counted.stored, dict(counted.failed)
    of_partitions = accumulator.queues.counted()
    return ProducerMetrics(
        records=of_partitions.appended,
        acknowledged=stored,
        failed=failed,
        unobserved_failures=unobserved.count,
        batches=counted.batches,
        bytes=counted.batch_bytes,
        batch_fill=counted.batch_bytes / counted.batches / config.effective_batch_size
        if counted.batches and config.effective_batch_size
        else None,
        compression_ratio=counted.batch_bytes / counted.payload_bytes if counted.payload_bytes else None,
        records_per_batch=counted.batch_records / counted.batches if counted.batches else None,
        linger=counted.lingered.snapshot(),
        retries=counted.retries,
        splits=counted.splits,
        expired=counted.expired,
        renumbered=of_partitions.renumbered,
        epoch_bumps=of_partitions.begun_anew,
        requests=sender.requests.answered.snapshot(),
        failed_requests=sender.requests.failed,
        buffered_bytes=accumulator.used,
        buffered_records=sum(batch.count for queue in accumulator.queues.active for batch in queue.snapshot()),
        memory_waiters=len(memory),
        nodes=cluster_client.pool.metrics,
    )
