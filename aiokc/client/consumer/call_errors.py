"""What a call of the application has to raise, and when: before records, while it waits, or once a call has records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Set

from ...config import ConsumerConfig
from ...core.cluster.snapshot import known_error
from ...core.subscription.mode import Mode
from ...core.subscription.state import Subscription
from ...errors import ConsumerClosed, KafkaError, UsageError, fresh
from ...types import TopicPartition
from ..cluster.cluster_client import ClusterClient
from ..fetch.collector import FetchCollector
from ..group.assignment_source import AssignmentSource
from ..group.rebalance_listener import ListenerCalls
from ..positions.finder import PositionFinder


class CallErrors:
    """The errors that the parts of a consumer keep until a call of the application may raise them.

    ``is_stopping``: whether stop() was called: from then on only the listener may still be handed anything.
    """

    def __init__(
        self,
        cluster_client: ClusterClient[ConsumerConfig],
        subscription: Subscription,
        source: AssignmentSource,
        listener: ListenerCalls,
        finder: PositionFinder,
        collector: FetchCollector,
        *,
        is_stopping: Callable[[], bool],
    ) -> None:
        self._cluster_client = cluster_client
        self._subscription = subscription
        self._source = source
        self._listener = listener
        self._finder = finder
        self._collector = collector
        self._is_stopping = is_stopping
        self._complained_of = 0  # the version of the cluster snapshot whose topic errors were raised last

    def check(self, only: frozenset[TopicPartition] | None = None) -> None:
        """Raise ConsumerClosed unless running, what ended the background, UsageError where ``only`` is not assigned."""
        self._cluster_client.check()
        if self._is_stopping() and not self._listener.is_inside():
            raise ConsumerClosed("stopping: nothing more is handed out")
        for tp in only or ():
            self._subscription[tp]  # raises for one that is not assigned, or not any more

    def before_records(self, only: frozenset[TopicPartition] | None) -> None:
        """Raise the errors that come before any record, and run the callbacks that are due."""
        self._listener.raise_error()  # The listener may have failed to seek: no record before that is raised.
        self.check(only)
        self._source.run_callbacks()

    def after_waiting(self, only: frozenset[TopicPartition] | None) -> None:
        """Raise the errors that come before any record and have come up while other tasks ran."""
        self._listener.raise_error()
        self.check(only)

    def raise_any(self, of: Collection[TopicPartition] | None = None) -> None:
        """Raise what the application must know: a fatal group error, a missing offset, no permission, no login.

        With ``of``, an error about other partitions than these is left to another call.
        """
        self._cluster_client.raise_refusal()
        self._raise_group_error()
        if (error := self._finder.errors.take(of, of_blocked=self._listener.is_inside())) is not None:
            raise fresh(error)
        self._raise_topic_error(None if of is None else {tp.topic for tp in of})

    def raise_of_assignment(self) -> None:
        """Raise what prevents an assignment: as ``raise_any``, without errors about positions."""
        self._cluster_client.raise_refusal()
        self._raise_group_error()
        self._raise_topic_error()

    def raise_held_back(self, only: frozenset[TopicPartition] | None) -> None:
        """Raise the errors that an earlier call held back, since it had records to return."""
        self._cluster_client.raise_refusal()
        self._collector.raise_held_back(only)
        if (error := self._finder.errors.take(of_blocked=False)) is not None:
            raise fresh(error)
        cluster = self._cluster_client.metadata.cluster
        if cluster.errors and cluster.version != self._complained_of:
            self._complained_of = cluster.version  # or every other call of a busy application would raise it again
            self._raise_topic_error()

    @property
    def assignment_trouble(self) -> KafkaError | None:
        """What prevents the assignment at the moment; None where that is not known."""
        return self._source.report().last_error or self._cluster_client.metadata.error

    def _raise_group_error(self) -> None:
        if self._subscription.mode is Mode.NONE:
            raise UsageError("nothing to read: call subscribe() or assign() first")
        self._source.raise_error()

    def _raise_topic_error(self, of: Set[str] | None = None) -> None:
        cluster = self._cluster_client.metadata.cluster
        if not cluster.errors:
            return
        if of is None:
            of = self._subscription.topics or {tp.topic for tp in self._subscription.assigned}
        if (error := known_error(cluster, of)) is not None:
            raise fresh(error)
