"""Streams: decides where one starts, which offsets each micro-batch has, and what counts as data loss.

Spark calls initial(), then latest() and ranges() for each batch. After a restart it calls ranges() first, with offsets
of the checkpoint, to repeat a batch that was not finished.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Set
from typing import Final
from uuid import UUID

from aiokc import KafkaError, TopicPartition
from aiokc.errors import ConfigError, fresh

from .. import offsets
from ..cluster.driver import Cluster
from ..cluster.topics_view import TopicsView
from ..data_loss import CUT, DELETED, GONE, RECREATED, DataLoss, named_beyond, report
from ..offsets import OffsetJson, Offsets
from ..options.bounds import named_by
from ..options.source_options import SourceOptions
from .pace import Pace
from .readable import readable
from .resolve import resolve
from .unanchored import check_start_is_known

# How many partitions that are gone are remembered, those that went last: a pattern may find new topics every day.
_MOST_GONE: Final = 10_000


class StreamPlan:
    """Plans the batches of one streaming query, from its start or restart on. Spark calls it from one thread."""

    def __init__(
        self,
        options: SourceOptions,
        cluster: Cluster,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._options, self._clock = options, clock
        self._view = TopicsView(options, cluster, clock=clock, sleep=sleep)
        self._initial: Offsets | None = None
        self._unresolved: KafkaError | None = None
        self._targets: Offsets | None = None
        self._frozen: Offsets = {}  # the last target of each partition, also of those that are gone
        self._pace = Pace(clock=clock, sleep=sleep)
        self._ends: Offsets | None = None
        self._gone: dict[TopicPartition, tuple[int, UUID]] = {}  # where it was read up to, and of which topic
        self._last_batch = -math.inf  # the first batch after a start never waits for minOffsetsPerTrigger

    def freeze(self) -> None:
        """Fix the ends of the logs: later records belong to no batch. For trigger(availableNow=True)."""
        self._targets = self._view.ends()
        self._frozen = dict(self._targets)

    def initial(self) -> OffsetJson:
        """Return where the query starts. Spark asks twice, and must get the same answer twice.

        If the options no longer lead to a start (the group is gone, for instance), the answer is {}, and latest()
        raises the reason. It is not raised here, because Spark also asks before it repeats batch 0, and that batch
        begins where its anchor says.
        """
        if self._initial is None and self._unresolved is None:
            try:
                self._view.check_all_exist()
                self._initial = self._resolved_start()
            except KafkaError as error:
                self._unresolved = error
        return offsets.to_json(self._initial or {})

    def latest(self, start: OffsetJson, max_offsets: int | None = None, min_offsets: int | None = None) -> OffsetJson:
        """Return the end of a batch that begins at ``start``, or ``start`` itself if there are too few new offsets.

        A batch waits for ``min_offsets`` no longer than maxTriggerDelay, and not at all once the ends are frozen. Calls
        that follow each other closely sleep first. Raises DataLoss if the logs no longer reach ``start``, and the error
        because of which initial() found no start.
        """
        if self._targets is None:
            self._pace.keep()
        if not start and self._unresolved is not None:
            raise fresh(self._unresolved)
        self._unresolved = None  # not needed any more: ``start`` says where to go on
        reached = offsets.positions(start)
        due = reached | {tp: max(end, reached.get(tp, 0)) for tp, end in (self._targets or {}).items()}
        ends = self._ends_behind(due)
        if self._options.fail_on_data_loss:
            self._view.check_all_exist(besides=reached)
        for tp in reached.keys() & self._gone.keys():
            del self._gone[tp]  # it is back, and Spark has recorded a batch of it
        is_first = offsets.ANCHOR not in start and reached == self._initial
        begins = self._without_lost(reached, ends, due, is_first=is_first)
        new, are_whole = self._starts_of_new(ends.keys() - begins.keys(), reached, ends)
        self._view.forget_all_but({tp.topic for tp in reached.keys() | ends.keys() | self._gone.keys()})
        ends = {tp: end for tp, end in ends.items() if tp in begins or tp in new}
        is_idle = not is_first and not new and ends == reached
        # A recreated topic is reported only once, and what a new partition has lost is reported until a batch records
        # its start. So the batch that records where the query goes on after a loss must not wait for
        # minOffsetsPerTrigger.
        is_whole = are_whole and begins == reached and all(ends[tp] >= position for tp, position in reached.items())
        if is_whole and not is_idle and not is_first and min_offsets is not None:
            is_idle = self._are_too_few(begins | new, ends, min_offsets)
        self._pace.asked(leaders=self._view.leaders(), rounds=2 if new else 1, is_idle=is_idle)
        if not is_idle:
            self._last_batch = self._clock()
        if max_offsets is not None:
            ends = self._admitted(begins | new, ends, max_offsets)
        return start if is_idle else self._end_unlike(start, ends, new, begins | new if is_first else new)

    def _admitted(self, begins: Offsets, ends: Offsets, max_offsets: int) -> Offsets:
        """Return the ends of a batch of about ``max_offsets`` offsets, deleted ones not counted.

        A query is stopped for longer than its topics keep records, and goes on with failOnDataLoss=false. If the
        deleted offsets counted, batch after batch would have no rows, and partitions that have lost nothing would get
        next to nothing of each. With failOnDataLoss=true the query fails when it reads the batch.
        """
        admitted = offsets.admit(begins, ends, max_offsets)
        if admitted == ends or self._options.fail_on_data_loss:
            return admitted
        # One that is gone is told as a part of the batch.
        earliest = self._view.earliest((tp for tp in ends if begins[tp] < ends[tp]), {})
        left = {tp: min(max(first, begins[tp]), ends[tp]) for tp, first in earliest.items()}
        return offsets.admit(begins | left, ends, max_offsets)

    @staticmethod
    def _end_unlike(start: OffsetJson, ends: Offsets, new: Offsets, anchor: Offsets) -> OffsetJson:
        """Return the JSON of a batch's end. It differs from ``start``, which Spark would take for no batch.

        The two are equal if a topic was recreated right after the batch in which it was new, and is as long again.
        Then the last offset of each ``new`` partition waits for the next batch. An empty new topic has nothing to read.
        """
        end = offsets.to_json(ends, anchor)
        if end == start:
            waits = {tp: ends[tp] - 1 for tp, begin in new.items() if ends[tp] > begin}
            end = offsets.to_json(ends | waits, anchor)
        return end

    def batch_begins(self) -> None:
        """Note that the query has a new batch, perhaps only of another source."""
        self._pace.batch_begins()

    def known_ends(self) -> OffsetJson | None:
        """Return the ends of the logs that were last listed, or frozen; None before that."""
        ends = self._ends if self._targets is None else self._targets
        return None if ends is None else offsets.to_json(ends)

    def ranges(self, start: OffsetJson, end: OffsetJson) -> dict[TopicPartition, tuple[int, int]]:
        """Return the offsets to read for the batch from ``start`` to ``end``, without empty ranges.

        Raises DataLoss if the logs do not hold them, ConfigError if it is not known where the batch began.
        """
        # No batch: Spark compares the texts, and somebody has formatted that in the checkpoint anew. With the anchor
        # this is no start that was asked for again: a batch 0 of format('kafka') may end where "latest" is now.
        if start == end and offsets.ANCHOR in end:
            return {}
        begins, ends = offsets.positions(start) | offsets.anchor(end), offsets.positions(end)
        if self._is_batch_0(start) and offsets.ANCHOR not in end:
            initial, unresolved = self._initial or {}, self._unresolved
            check_start_is_known(ends, initial, unresolved, options=self._options, view=self._view)
        if not start and self._unresolved is not None and not ends.keys() <= begins.keys():
            raise fresh(self._unresolved)
        begins |= self._starts_without_anchor(ends.keys() - begins.keys(), start, ends)
        wanted = {tp: (begins[tp], until) for tp, until in sorted(ends.items()) if begins.get(tp, until) != until}
        starting = self._options.starting if self._is_batch_0(start) else None
        fail, known = self._options.fail_on_data_loss, self._ends or {}
        return readable(wanted, self._view, fail=fail, known=known, starting=starting)

    def topic_ids(self, ranges: Iterable[TopicPartition]) -> dict[str, UUID | None]:
        """Return the ids of the topics that these ranges are of."""
        return self._view.topic_ids(ranges)

    def _resolved_start(self) -> Offsets:
        bound = self._options.starting
        if bound is None:
            raise ConfigError("startingOffsets was not decided; options.for_stream() does it")
        return resolve(bound, self._view, self._view.ends() if self._targets is None else self._targets)

    def _is_batch_0(self, start: OffsetJson) -> bool:
        """Whether the batch from ``start`` is the first one: for it, Spark has asked where the query starts."""
        is_asked = self._initial is not None or self._unresolved is not None
        return is_asked and offsets.ANCHOR not in start and offsets.positions(start) == (self._initial or {})

    def _are_too_few(self, begins: Offsets, ends: Offsets, min_offsets: int) -> bool:
        waited = self._clock() - self._last_batch
        if self._targets is not None or waited * 1e3 >= self._options.max_trigger_delay_ms:
            return False
        return sum(end - begins[tp] for tp, end in ends.items()) < min_offsets

    def _ends_behind(self, due: Offsets) -> Offsets:
        """Return where the logs end now; if the ends are frozen, the frozen ones, or the end of a log that is shorter.

        ``due`` are the ends that the query has read or frozen already. What it has read of partitions that were only
        hidden, and are back, counts as well: it goes on there.
        """
        self._view.look_for(due)
        ends, listed_id = self._view.ends(), self._view.listed_id
        back = {
            tp: max(position, self._frozen.get(tp, position))
            for tp, (position, topic_id) in self._gone.items()
            if topic_id == listed_id(tp.topic)
        }
        due = back | due
        ends = self._ends = self._view.confirmed_ends(ends, due)
        if self._targets is not None:
            # freeze() does not know what was read. So it may have missed a partition that one broker had not heard of.
            ends = self._targets = {
                tp: min(until, ends[tp]) if tp in self._frozen else ends[tp] for tp, until in due.items() if tp in ends
            }
            self._frozen |= ends
        return ends

    def _without_lost(
        self, reached: Offsets, ends: Mapping[TopicPartition, int], due: Offsets, *, is_first: bool
    ) -> Offsets:
        """Return ``reached`` without partitions that are gone or recreated. Raise DataLoss for these and cut logs."""
        starting = self._options.starting if is_first else None
        recreated, kept = self._view.recreated(), dict(reached)
        for tp, position in sorted(reached.items()):
            until: int | None = None
            remedy = CUT
            if not self._options.choice.wants(tp):
                what, remedy = f"'{self._options.choice.option}' no longer names it", GONE
            elif tp not in ends:
                what, remedy = "it is gone", GONE
            elif tp.topic in recreated:
                what, remedy = f"its topic was deleted and created again: {recreated[tp.topic]}", RECREATED
            elif ends[tp] < position and (option := named_by(starting, tp)):
                what, remedy = named_beyond(option)
            elif ends[tp] < position:
                what = "its log ends before what was read already"
            elif ends[tp] < due[tp]:
                what, until = "its log ends before where this query was to end", due[tp]
            else:
                continue
            if tp not in ends or tp.topic in recreated:
                del kept[tp]
            if tp not in ends and tp.topic not in recreated:
                self._remember_gone(tp, position)
            available = self._view.log_ranges([tp]).get(tp) if tp in ends else None
            loss = DataLoss(tp, what, wanted=(position, until), available=available, remedy=remedy)
            report(loss, fail=self._options.fail_on_data_loss)
        return kept

    def _remember_gone(self, tp: TopicPartition, position: int) -> None:
        topic_id = self._view.known_id(tp.topic)
        if topic_id is None:
            return  # nothing could tell whether it is the same topic that comes back
        self._gone[tp] = position, topic_id
        if len(self._gone) > _MOST_GONE:
            del self._gone[next(iter(self._gone))]

    def _starts_without_anchor(self, new: Set[TopicPartition], start: OffsetJson, ends: Offsets) -> Offsets:
        """Return the starts of partitions that are new in a batch of Spark's own source, which writes no anchor.

        In a batch 0, all begin as the options say: these were not there when initial() was asked.
        """
        known = {tp.topic for tp in offsets.positions(start)}
        whole = set() if self._is_batch_0(start) else {tp for tp in new if self._is_due_from_0(tp, known)}
        return dict.fromkeys(whole, 0) | self._view.earliest(new - whole, ends)

    def _is_due_from_0(self, tp: TopicPartition, known: Set[str]) -> bool:
        """Whether a new partition is due from offset 0 on: it is a loss if its first records are deleted by then.

        A topic that was added to `subscribe` may be old: it may have lost its first records. One that
        `subscribePattern` finds is new, and so is a partition of a topic that the query has, or had (``known``),
        also if it was recreated.
        """
        return self._options.choice.topics is None or tp.topic in known

    def _starts_of_new(self, new: Iterable[TopicPartition], reached: Offsets, ends: Offsets) -> tuple[Offsets, bool]:
        """Return the starts of the partitions that the query does not have, and whether nothing of them is lost.

        They start at their earliest records; one that is deleted meanwhile has no start. One that was only hidden,
        since somebody took the permission to see its topic away and gave it back, goes on where it was.
        """
        starts, are_whole = self._view.earliest(new, ends), True
        known = {tp.topic for tp in reached.keys() | self._gone.keys()}
        for tp, earliest in sorted(starts.items()):
            wanted, what = 0, "the first records of this new partition were deleted before they could be read"
            position, topic_id = self._gone.get(tp, (0, None))
            if is_back := topic_id is not None and topic_id == self._view.known_id(tp.topic):
                wanted, what = position, "its log no longer reaches what was read before the partition was gone"
                starts[tp] = min(max(position, earliest), ends[tp])
            if starts[tp] != wanted and (is_back or self._is_due_from_0(tp, known)):
                loss = DataLoss(tp, what, wanted=(wanted, None), available=(earliest, ends[tp]), remedy=DELETED)
                report(loss, fail=self._options.fail_on_data_loss)
                are_whole = False
        return starts, are_whole
