"""A query's topics as they are now: partitions, ends of the logs; asks again before it believes that one is gone."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from typing import Final, Literal, TypeVar
from uuid import UUID

from aiokc import EARLIEST, LATEST, TopicInfo, TopicPartition
from aiokc.errors import AuthorizationFailed, ConfigError, UnknownTopic
from aiokc.types import named

from ..data_loss import GONE, DataLoss, report
from ..offsets import Offsets
from ..options.source_options import SourceOptions
from .driver import Cluster

_logger = logging.getLogger(__name__)
T = TypeVar("T")

_MAX_AGE_SECONDS: Final = 2.0
# To look for a topic that is missing takes seconds: the client waits in case it has only just been created.
_MISSING_SECONDS: Final = 60.0
# How long high watermarks are kept: an open transaction may stop an idle query for long.
_MARKS_SECONDS: Final = 10.0
# How many former ids of recreated topics are remembered, the last ones: a topic may be recreated every hour.
_MOST_LEFT: Final = 10_000


class TopicsView:
    """Asks the cluster for the topics of one query; remembers their partitions for two seconds, and their ids."""

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options, self._cluster, self._clock, self._sleep = options, cluster, clock, sleep
        self._topics: dict[str, TopicInfo] = {}
        self._valid_until = clock()
        self._look_again_at = clock()  # for topics of the options that are missing
        self._ids: dict[str, UUID] = {}
        self._left: dict[UUID, None] = {}  # in the order in which they were left
        self._high_watermarks: tuple[Offsets, float] = ({}, clock())

    def partitions(self) -> list[TopicPartition]:
        """Return the partitions that the query reads and that exist."""
        if self._clock() >= self._valid_until:
            names = self._options.choice.topics
            self._topics = self._matching() if names is None else self._named(names)
            for name, info in self._topics.items():
                # From the first look on, which may be for a batch that Spark repeats after a restart: it takes its
                # time, and a topic that is recreated meanwhile must be told from the one that the batch was of.
                if info.topic_id is not None:
                    self._ids.setdefault(name, info.topic_id)
            self._valid_until = self._clock() + _MAX_AGE_SECONDS
        there = [TopicPartition(name, number) for name, info in self._topics.items() for number in info.partitions]
        return [tp for tp in there if self._options.choice.wants(tp)]

    def _matching(self) -> dict[str, TopicInfo]:
        wants = self._options.choice.wants_topic
        # As in Spark's own source, a pattern never matches Kafka's internal topics.
        return {name: info for name, info in self._cluster.topics(None).items() if wants(name) and not info.is_internal}

    def _named(self, names: Collection[str]) -> dict[str, TopicInfo]:
        """Return those of these topics that exist. The missing ones are looked for once in a while only."""
        if self._clock() < self._look_again_at:
            there = [name for name in names if name in self._topics]
            return self._cluster.topics(there) if there else {}
        found = self._cluster.topics(names)
        if len(found) < len(names):
            self._look_again_at = self._clock() + _MISSING_SECONDS
        return found

    def look_for(self, expected: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions that exist; ask again while an ``expected`` one seems to be gone.

        A broker that has just started may not know it yet. This does not ask again for a missing topic that is named
        in the options: the client itself has already waited for it.
        """
        wanted = [tp for tp in expected if self._options.choice.wants(tp)]
        there = set(self.partitions())
        for _ in range(self._options.offset_attempts):
            missing = [tp for tp in wanted if tp not in there and self._may_be_news(tp.topic)]
            if not missing:
                break
            _logger.warning("%s is missing from what a broker says; asking again", named(missing))
            self._sleep(self._options.offset_retry_ms / 1e3)
            self._valid_until = self._clock()
            there = set(self.partitions())
        return there

    def _may_be_news(self, topic: str) -> bool:
        return self._options.choice.topics is None or topic in self._topics

    def topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, UUID | None]:
        """Return the ids of these partitions' topics, as of the last call of ``recreated``, or of the first look.

        Not as they are now: a topic that was recreated since has other records at the offsets that are planned.
        """
        names = {tp.topic for tp in partitions}
        if not self._topics or not names <= self._topics.keys():
            self.partitions()  # a batch is planned before the first look: Spark repeats it after a restart
        return {name: self._ids.get(name) for name in names}

    def known_id(self, topic: str) -> UUID | None:
        """Return the id of this topic, as ``topic_ids`` does; the last known one, if it is gone."""
        return self._ids.get(topic)

    def listed_id(self, topic: str) -> UUID | None:
        """Return the id of this topic as it was listed last, recreated or not; None if it was not there."""
        return self._topics[topic].topic_id if topic in self._topics else None

    def forget_all_but(self, topics: Set[str]) -> None:
        """Forget the ids of topics that are neither listed nor among these: a pattern may find new ones every day."""
        for name in self._ids.keys() - self._topics.keys() - topics:
            del self._ids[name]

    def leaders(self) -> int:
        """Return how many brokers lead the query's partitions: each of them gets a request for the ends of its logs."""
        assigned = self._options.choice.partitions
        return len(
            {
                part.leader
                for name, info in self._topics.items()
                for number, part in info.partitions.items()
                if assigned is None or (name, number) in assigned
            }
        )

    def check_all_exist(self, besides: Iterable[TopicPartition] = ()) -> None:
        """Raise ConfigError if the options name a topic or partition that neither exists nor is in ``besides``."""
        choice, known = self._options.choice, set(besides)
        there = known | set(self.partitions())
        topics = self._topics.keys() | {tp.topic for tp in known}
        missing = [f"topic {topic!r}" for topic in sorted(choice.topics or ()) if topic not in topics]
        missing += [
            f"partition {tp}" for tp in sorted((choice.partitions or frozenset()) - there) if tp.topic in topics
        ]
        if missing:
            raise ConfigError(
                f"option '{choice.option}': no {', no '.join(missing)} on the cluster at "
                f"{self._options.client.bootstrap_servers}: create it, or correct its name"
            )

    def ends(self) -> Offsets:
        """Return the end of each partition's log, as far as the isolation level allows to read it.

        With `subscribePattern` and failOnDataLoss=false, a topic that the client may no longer describe is left out.
        """
        for _ in range(self._options.offset_attempts):
            try:
                return self._of_existing(self._latest, self.partitions())
            except AuthorizationFailed as error:
                # The permission was withdrawn since the partitions were listed: that topic is not among all topics now.
                if self._options.choice.topics is not None or self._options.fail_on_data_loss:
                    raise
                _logger.warning("%s; asking which topics are left", error)
                # A broker that has not heard of it yet would list the topic once more.
                self._sleep(self._options.offset_retry_ms / 1e3)
                self._valid_until = self._clock()
        return self._of_existing(self._latest, self.partitions())

    def earliest(self, partitions: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]) -> Offsets:
        """Return the first offset of each of these partitions that exists.

        If one is gone, all before its end in ``ends`` is lost: raises DataLoss, or warns with failOnDataLoss=false.
        """
        wanted = set(partitions)
        found = self._of_existing(self._earliest, wanted)
        self._report_gone(wanted - found.keys(), ends)
        return found

    def _report_gone(self, gone: Iterable[TopicPartition], ends: Mapping[TopicPartition, int]) -> None:
        for tp in sorted(gone):
            if (end := ends.get(tp, 0)) > 0:
                loss = DataLoss(tp, "it is gone", wanted=(0, end), available=None, remedy=GONE)
                report(loss, fail=self._options.fail_on_data_loss)

    def _earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._cluster.list_offsets(dict.fromkeys(partitions, EARLIEST))

    def _latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        return self._cluster.list_offsets(dict.fromkeys(partitions, LATEST))

    def _of_existing(
        self, ask: Callable[[list[TopicPartition]], dict[TopicPartition, T]], partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, T]:
        """Return what ``ask`` finds for these partitions, without those that are gone since they were listed.

        Topics may be deleted one after the other, each just after it was listed. So this raises UnknownTopic only if
        partitions are listed again and again that their leader does not know.
        """
        wanted, attempts = list(partitions), self._options.offset_attempts
        while True:
            try:
                return ask(wanted)
            except UnknownTopic:
                if not attempts:
                    raise
            self._valid_until = self._clock()
            there = self.look_for(wanted)
            left = [tp for tp in wanted if tp in there]
            attempts -= 1 if left == wanted else 0
            wanted = left

    def at_times(
        self, times: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], *, is_start: bool
    ) -> dict[TopicPartition, int | None]:
        """Return the first offset at or after each of these times in ms; None if there is no such record.

        A query may start behind an open transaction, and waits for its end. It does not end behind one: for what
        read_committed can't read yet, there is None. A partition that is gone is left out, and is a loss as in
        ``earliest``.
        """

        def ask(wanted: list[TopicPartition]) -> dict[TopicPartition, int | None]:
            isolation_level: Literal["read_uncommitted"] | None = "read_uncommitted" if is_start else None
            return self._cluster.offsets_at({tp: times[tp] for tp in wanted}, isolation_level=isolation_level)

        found = self._of_existing(ask, times)
        self._report_gone(times.keys() - found.keys(), ends)
        return found

    def committed(self, group_id: str, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | None]:
        """Return what this group has committed for each of these partitions; None if it has committed nothing."""
        return self._cluster.committed(group_id, partitions)

    def confirmed_ends(self, ends: Offsets, reached: Mapping[TopicPartition, int]) -> Offsets:
        """Return ``ends``; ask again, some times, for those that lie before what the query has ``reached``.

        Those of partitions that are gone by then are left out. The topics are listed again, too: a topic that was
        recreated since the last look is no log that was cut, and ``recreated`` tells the two apart.
        """
        # A leader that has just been elected may not know yet where its log ends (KAFKA-7703).
        for _ in range(self._options.offset_attempts):
            known = ends | self.held_back(ends, reached)
            behind = [tp for tp, position in reached.items() if known.get(tp, position) < position]
            if not behind:
                return known
            _logger.warning("the logs of %s end before what was expected; asking again", named(behind))
            self._sleep(self._options.offset_retry_ms / 1e3)
            self._valid_until = self._clock()
            self.partitions()
            # This list may be the first one with a topic that was recreated: its log is not the one whose end is known.
            stale = {*behind, *(tp for tp in ends if self._new_id(tp.topic) is not None)}
            others = {tp: end for tp, end in ends.items() if tp not in stale}
            ends = others | self._of_existing(self._latest, stale)
        return ends | self.held_back(ends, reached)

    def held_back(self, ends: Offsets, reached: Mapping[TopicPartition, int]) -> Offsets:
        """Return those of ``reached`` that lie in their log behind an open transaction (read_committed).

        With read_committed, a log seems to end at its first open transaction. Its high watermark shows whether the
        log has what the query has reached. What it has reached in a topic that was recreated is in no log.
        """
        if self._options.client.isolation_level != "read_committed":
            return {}
        behind = {
            tp: position
            for tp, position in reached.items()
            if ends.get(tp, position) < position and self._new_id(tp.topic) is None
        }
        marks, valid_until = self._high_watermarks
        are_known = all(marks.get(tp, -1) >= position for tp, position in behind.items())
        if behind and (not are_known or self._clock() >= valid_until):
            marks = self._of_existing(self._cluster.high_watermarks, behind)
            self._high_watermarks = marks, self._clock() + _MARKS_SECONDS
        return {tp: position for tp, position in behind.items() if marks.get(tp, -1) >= position}

    def log_ranges(
        self, partitions: Iterable[TopicPartition], ends: Mapping[TopicPartition, int] | None = None
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Return (earliest, latest) of each of these partitions that exists; latest is that of ``ends``, if given."""

        def ask(wanted: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
            if ends is None:
                return self._cluster.log_ranges(wanted)
            return {tp: (earliest, ends[tp]) for tp, earliest in self._earliest(wanted).items()}

        return self._of_existing(ask, partitions)

    def recreated(self) -> dict[str, str]:
        """Return the topics recreated (deleted and created again) since the last call, and their two ids (KIP-516).

        At the first call: since the first look.
        """
        changed: dict[str, str] = {}
        for name in self._topics:
            known, topic_id = self._ids.get(name), self._new_id(name)
            if topic_id is None:
                continue
            self._ids[name] = topic_id
            if known is not None:
                self._left[known] = None
                if len(self._left) > _MOST_LEFT:
                    del self._left[next(iter(self._left))]
                changed[name] = f"its id was {known} and is {topic_id}"
        return changed

    def _new_id(self, topic: str) -> UUID | None:
        """Return the id of this topic as it was listed last, if ``recreated`` does not know it yet; else None.

        Brokers learn of a new topic one by one. A broker that still names the old id must not count as another
        recreation, nor the next one that names the new id. Ids are random, so an old id never comes back.
        """
        topic_id = self.listed_id(topic)
        return None if topic_id == self._ids.get(topic) or topic_id in self._left else topic_id
