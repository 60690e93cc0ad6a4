"""The part of the public Consumer that looks at itself: lag, log ends, health and metrics. None of it asks a broker."""

from __future__ import annotations

from typing import Any

from ...config.checks import check_observer
from ...observation import Health, Metrics
from ...observer import Observer
from ...types import TopicPartition
from ..arguments import checked_partition
from .health import health, metrics, standing_still
from .poll import Poll
from .runtime import ConsumerRuntime


class Introspection:
    """What a Consumer knows about itself. These calls never wait."""

    _runtime: ConsumerRuntime
    _poll: Poll[Any, Any]

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets lie between the position and the end: the last stable offset with read_committed.

        With read_uncommitted the end is the high watermark. The figure is as of the last fetch; the call sends no
        request. None before the first fetch, or without a position. Raises UsageError where ``partition`` is not
        assigned.
        """
        return self._runtime.subscription[checked_partition(partition)].lag(self._runtime.read_committed)

    def highwater(self, partition: TopicPartition) -> int | None:
        """The high watermark: the offset behind the last record that all in-sync replicas have.

        highwater(), last_stable_offset() and last_poll_timestamp() send no request. Each returns None before the first
        answer to a Fetch of ``partition``, and raises UsageError where that is not assigned. ``end_offsets()`` asks the
        leader.
        """
        return self._runtime.subscription[checked_partition(partition)].high_watermark

    def last_stable_offset(self, partition: TopicPartition) -> int | None:
        """The offset up to which all transactions are complete: where ``isolation_level="read_committed"`` ends.

        None where the broker does not tell it: brokers up to Kafka 0.10 never do, and no broker does with
        ``isolation_level="read_uncommitted"``.
        """
        return self._runtime.subscription[checked_partition(partition)].last_stable_offset

    def last_poll_timestamp(self, partition: TopicPartition) -> int | None:
        """When a broker last answered a Fetch of ``partition``, in ms since the epoch: highwater() is as of then.

        An answer without news counts, too. While the consumer does not fetch the partition (it is paused, or enough is
        buffered), the time stands still. ``health().last_poll_age_ms`` says when the application last polled.
        """
        heard_at = self._runtime.fetcher.heard_at(checked_partition(partition))
        return None if heard_at is None else int(heard_at * 1e3)

    def health(self) -> Health:
        """Return the consumer's state at this moment: for a liveness probe, or a log line. Never raises, no request.

        Any thread may call it.
        """
        runtime = self._runtime
        now = runtime.cluster_client.now()
        still = standing_still(runtime.subscription, runtime.fetcher, now, read_committed=runtime.read_committed)
        return health(
            runtime.cluster_client,
            runtime.subscription,
            runtime.polls,
            runtime.source.report(),
            has_assignment=runtime.has_assigned,
            stalled=runtime.stalls.look(still, now),
            refusal=runtime.fetcher.refusal(now),
        )

    def metrics(self, *, per_partition: bool = True) -> Metrics:
        """Return what the consumer has done since it was made, and the lag of each partition. Sends no request.

        With ``per_partition=False`` the figures by partition are summed up by topic (see Metrics). Any thread may call
        it.
        """
        runtime = self._runtime
        return metrics(
            runtime.cluster_client,
            runtime.subscription,
            runtime.polls,
            runtime.fetcher,
            runtime.source.report(),
            runtime.listener.counters,
            runtime.loop_lag.late.snapshot(),
            self._poll.stream.uncounted,
            read_committed=runtime.read_committed,
            per_partition=per_partition,
        )

    def observe(self, observer: Observer) -> None:
        """Tell ``observer`` of each batch, commit and rebalance from now on, beside the option ``observer``.

        Raises ConfigError for what is no Observer. One that is added twice is told once; its ``least_seconds`` is read
        again.
        """
        check_observer("observer", observer)
        self._runtime.observers.add(observer)
        self._runtime.changes.notify()

    def no_longer_observe(self, observer: Observer) -> None:
        """Undo ``observe()``; does nothing for an object that is no observer of this consumer."""
        self._runtime.observers.remove(observer)
