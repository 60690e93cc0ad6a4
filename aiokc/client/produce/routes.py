"""Routes: which partitions a topic has, and which of them each record goes to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from dataclasses import replace
from numbers import Integral
from random import Random
from typing import Any, Final

from ...config import ProducerConfig
from ...core.cluster.snapshot import Cluster, known_error
from ...core.partitioning.key_partitions import key_partition
from ...core.partitioning.sticky_choice import StickyChoice, TopicLoad
from ...core.produce.accumulator import RecordAccumulator
from ...core.produce.partition_queue import PartitionQueue
from ...error_codes import ErrorCode
from ...errors import MetadataMissing, PartitioningFailed, RequestTimedOut, fresh, shown
from ...net.user_errors import USER_ERRORS
from ...records.encoding.batch_builder import KEYS_CHOOSE_BY_MURMUR2, KEYS_CHOOSE_NOTHING, KEYS_STOP
from ...types import TopicInfo, TopicPartition, partition_count
from ..aio.time_slice import let_others_run
from ..cluster.metadata import Metadata

# To forget so many topics takes a millisecond at most, unless they have very many partitions.
_AT_ONCE: Final = 100
_NO_SUCH_TOPIC: Final = (
    ": no broker knows that topic (UNKNOWN_TOPIC_OR_PARTITION), or creates it (auto.create.topics.enable): create it"
)


class TopicRoute:
    """One topic as the newest metadata have it. ``queues`` are its partitions in order, also of those that the metadata
    lack; ``available`` are the numbers of those with a leader.

    ``appenders`` are the batches that send_many() appends to; those that are not open any more refuse records by
    themselves. ``quick`` appends to open batches what send_soon() is given, if that is simple: see QuickSends.
    """

    __slots__ = ("appenders", "available", "info", "queues", "quick", "sticky", "topic", "used_at")

    def __init__(self, topic: str, info: TopicInfo, queues: list[PartitionQueue], sticky: StickyChoice) -> None:
        self.topic, self.info, self.queues, self.sticky = topic, info, queues, sticky
        self.available = tuple(  # the application's partitioner gets it
            number
            for number in range(len(queues))
            if (known := info.partitions.get(number)) is not None and known.leader is not None
        )
        self.appenders = [queue.appender for queue in queues]
        self.quick: Any = None  # a TopicAppender of the extension
        self.used_at = 0.0


class Routes:
    """The routes of all topics that the producer has sent to lately; the metadata follow these topics (KIP-526)."""

    def __init__(
        self,
        config: ProducerConfig,
        metadata: Metadata,
        accumulator: RecordAccumulator,
        random: Random,
        check: Callable[[], None],
        *,
        slow_nodes: Callable[[float], Collection[int]],
        wake: Callable[[], None],
    ) -> None:
        """``check`` raises what every call raises: the producer is closed, its background has ended.

        ``slow_nodes`` returns the brokers that have been able to take nothing for so many seconds. ``wake`` has the
        sender tell of batches that have failed.
        """
        self._config = config
        self._metadata = metadata
        self._accumulator = accumulator
        self._random = random
        self._check = check
        self._slow_nodes = slow_nodes
        self._wake = wake
        self._interest = metadata.interest(may_create=True)
        self._routes: dict[str, TopicRoute] = {}
        self._topics: dict[str, float] = {}  # when each was last asked for
        self._kept: dict[str, int] = {}  # of how many partitions, at most, the accumulator keeps the queues
        self._identity = accumulator.session.identity  # under which all of these were tried to be let go of
        self._key_partition = key_partition(config)
        #: How ``append_records`` chooses partitions; None: it can't, the application's partitioner does.
        self.keys_mode: int | None = {
            "murmur2_random": KEYS_CHOOSE_NOTHING if config.partitioner_ignore_keys else KEYS_CHOOSE_BY_MURMUR2,
            "consistent_random": KEYS_STOP,
        }.get(config.partitioner if isinstance(config.partitioner, str) else "")
        self._partitioner = None if isinstance(config.partitioner, str) else config.partitioner
        self._keep = config.metadata_max_idle_ms / 1e3

    def known(self, topic: str) -> TopicRoute | None:
        """Return the topic's route, if the metadata have it. Raises what the brokers have refused about the topic."""
        cluster = self._metadata.cluster
        info = cluster.topics.get(topic)
        route = self._routes.get(topic)
        if route is None or route.info is not info:
            if info is None or not info.partitions:
                self._raise_refusal(cluster, topic)
                return None
            if topic not in self._topics:  # forgotten as idle: the snapshot still has it, and nothing refreshes that
                self.follow(topic)
            route = self._routes[topic] = self._made(topic, info, route)
        return route

    def again(self, route: TopicRoute) -> TopicRoute:
        """Return the topic's route after a wait, in which it may have been forgotten as idle."""
        topic = route.topic
        if (known := self.known(topic)) is not None:
            return known
        # No request names a topic that was forgotten: the record would wait for a leader until it expires. With its
        # route the topic is not forgotten again while the record waits.
        self.follow(topic)
        # The topic may have been recreated before the metadata lost it. Then its queues have the new id, and what is
        # appended with the former one would fail as soon as the metadata are complete again.
        self._routes[topic] = made = self._made(topic, replace(route.info, topic_id=None), route)
        return made

    def _made(self, topic: str, info: TopicInfo, old: TopicRoute | None) -> TopicRoute:
        count = partition_count(info.partitions)
        self._kept[topic] = max(count, self._kept.get(topic, 0))  # recreated, a topic may have fewer than before
        queues = [self._accumulator.queue(TopicPartition(topic, number)) for number in range(count)]
        for queue in queues:  # what is appended from now on is for this topic, and not for one that was deleted
            self._accumulator.learn_topic_id(queue, info.topic_id)
        if self._accumulator.finished:  # what waited for the topic that was deleted
            self._wake()
        if old is None:
            return TopicRoute(topic, info, queues, StickyChoice(self._config.effective_batch_size, self._random))
        route = TopicRoute(topic, info, queues, old.sticky)
        if len(old.queues) == len(queues):
            route.quick = old.quick  # sends may go by the old route until the metadata are refreshed: it counts them
        else:
            self.settle(old)
        return route

    def _raise_refusal(self, cluster: Cluster, topic: str) -> None:
        error = known_error(cluster, [topic]) if topic in cluster.errors else None
        if error is not None:
            raise fresh(error)

    def follow(self, topic: str) -> None:
        """Have the metadata follow the topic from now on."""
        is_new = topic not in self._topics
        self._topics[topic] = asyncio.get_running_loop().time()
        if is_new:
            self._interest.set(self._topics)

    async def find(self, topic: str, partition: int | None, timeout: float) -> TopicRoute:
        """Return the topic's route as soon as it is known, and has the partition.

        Raises MetadataMissing after ``timeout`` seconds, and what the brokers refuse about the topic.
        """

        def look(cluster: Cluster) -> TopicRoute | None:
            self._check()
            self.follow(topic)  # each time: it must not be forgotten as idle while a call waits for it
            route = self.known(topic)
            return route if route is not None and (partition is None or partition < len(route.queues)) else None

        what = f"topic {topic!r}" if partition is None else f"partition {partition} of topic {topic!r}"
        try:
            return await self._metadata.wait_for(look, timeout, what)
        except RequestTimedOut as error:
            cluster, why = self._metadata.cluster, ""
            if cluster.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                why = _NO_SUCH_TOPIC
            elif partition is not None and (info := cluster.topics.get(topic)) is not None:
                why = f"; the topic has {partition_count(info.partitions)} partitions"
            raise self.missing(topic, partition, f"{error}{why}") from error

    def look_again(self) -> None:
        """Something is not in the metadata that may have appeared since."""
        self._metadata.request_missing()

    def missing(self, topic: str, partition: int | None, why: str = "") -> MetadataMissing:
        """Return the error for a topic or partition that no metadata name."""
        if not why and self._metadata.cluster.errors.get(topic) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            why = f"not known{_NO_SUCH_TOPIC}"
        why = why or "not known yet: await partitions_for() once before send_soon(), which does not wait for metadata"
        return MetadataMissing(why, topic=topic, partition=-1 if partition is None else partition)

    # Choosing a partition

    def choose(self, route: TopicRoute, key: bytes | None, value: bytes | None) -> int | None:
        """Return the partition that the partitioner or the key decides on; None: the choice is sticky.

        The number may be one that the topic does not have (yet). Raises PartitioningFailed.
        """
        count = len(route.queues)
        if self._partitioner is None:
            return self._key_partition(key, count)
        try:
            chosen = self._partitioner(route.topic, key, value, range(count), route.available)
        except USER_ERRORS as error:
            raise PartitioningFailed(f"the partitioner raised {type(error).__name__}", topic=route.topic) from error
        if chosen is None:
            return None
        number: Any = chosen
        if isinstance(number, bool) or not isinstance(number, Integral) or number < 0:
            raise PartitioningFailed(f"the partitioner returned {shown(number)}, no partition", topic=route.topic)
        return int(number)

    def stick(self, route: TopicRoute, size: int) -> PartitionQueue:
        """Return the partition that a record without a key goes to now, which takes ``size`` bytes at most."""
        sticky, accumulator = route.sticky, self._accumulator
        if sticky.partition is not None and sticky.partition < len(route.queues):
            queue, opened = route.queues[sticky.partition], None
            if queue.waiting:
                opened = accumulator.look_at(queue)
                if accumulator.grown:
                    sticky.appended(accumulator.grown, is_open=opened is not None)
            if sticky.partition is not None:
                if not sticky.leaves(size) or (opened is not None and opened.fits(size)):
                    return queue
                if opened is not None:
                    accumulator.seal(queue)
        return route.queues[sticky.choose(self._load(route))]

    def settle(self, route: TopicRoute) -> None:
        """Take note of what was appended to the topic's batches in C, before others append to them by the thousand."""
        if route.quick is None or not route.quick.appended:
            return
        route.quick.appended = 0
        for queue in route.queues:
            self._accumulator.look_at(queue)
            if queue.tp.partition == route.sticky.partition and self._accumulator.grown:
                self.stuck(route, queue)

    def stuck(self, route: TopicRoute, queue: PartitionQueue) -> None:
        """A record was appended to what ``stick`` returned: maybe the next one goes elsewhere."""
        route.sticky.appended(self._accumulator.grown, is_open=queue.appender is not None)

    def _load(self, route: TopicRoute) -> TopicLoad:
        count, near = len(route.queues), self._near(route)
        if not self._config.partitioner_adaptive_partitioning_enable:
            return TopicLoad(count, route.available, near=near)
        queues = {number: len(queue.waiting) for number, queue in enumerate(route.queues) if queue.was_used}
        patience = self._config.partitioner_availability_timeout_ms / 1e3
        slow = self._partitions_of(route, self._slow_nodes(patience)) if patience else ()
        # Where nothing waits, only the next batch can show whether the broker takes something again.
        slow = [number for number in slow if route.queues[number].waiting]
        return TopicLoad(count, route.available, queues, slow, near)

    def _near(self, route: TopicRoute) -> list[int]:
        """The partitions whose leader is in this client's rack, where that counts (KIP-1123)."""
        if not self._config.partitioner_rack_aware:
            return []
        brokers = self._metadata.cluster.brokers.values()
        return self._partitions_of(route, {node.node_id for node in brokers if node.rack == self._config.client_rack})

    @staticmethod
    def _partitions_of(route: TopicRoute, nodes: Collection[int]) -> list[int]:
        return [number for number in route.available if route.info.partitions[number].leader in nodes]

    # Idle topics

    async def run(self) -> None:
        """After each refresh of the metadata, forget the topics that nothing was sent to for metadata_max_idle_ms."""
        loop = asyncio.get_running_loop()
        while True:
            await self._metadata.changed.wait()
            long_ago, idle = loop.time() - self._keep, list[str]()
            for topic, asked_at in list(self._topics.items()):
                route = self._routes.get(topic)
                used_at = asked_at if route is None else max(asked_at, route.used_at)
                if used_at <= long_ago and not (route is not None and any(route.queues)):
                    del self._topics[topic]
                    self._routes.pop(topic, None)
                    idle.append(topic)
            self._interest.set(self._topics)
            if self._identity != self._accumulator.session.identity:  # what had to be kept under another one need not
                self._identity = self._accumulator.session.identity
                idle = list(self._kept)
            await self._let_go(idle)

    async def _let_go(self, topics: list[str]) -> None:
        """Forget the queues of those topics that have no route. Some can't be forgotten before the next identity."""
        for count, topic in enumerate(topics, 1):
            is_idle = topic in self._kept and topic not in self._routes  # it may be back
            if is_idle and self._accumulator.forget(topic, self._kept[topic]):
                del self._kept[topic]
            if count % _AT_ONCE == 0:
                await let_others_run()
