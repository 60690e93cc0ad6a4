"""Batch queries: decides which offsets one reads, once, in the driver, when Spark plans the query."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Set
from uuid import UUID

from aiokc import EARLIEST, LATEST, TopicPartition
from aiokc.errors import ConfigError

from ..cluster.driver import Cluster
from ..cluster.topics_view import TopicsView
from ..offsets import Offsets
from ..options.bounds import AtOffset, Bound, contradict
from ..options.source_options import SourceOptions
from .readable import readable
from .resolve import as_offsets, looked_up, resolve

_logger = logging.getLogger(__name__)


def batch_ranges(
    options: SourceOptions, cluster: Cluster
) -> tuple[dict[TopicPartition, tuple[int, int]], Set[TopicPartition], Mapping[str, UUID | None]]:
    """Return (from, until) for each partition that has something to read, which start at "earliest", and topic ids.

    A task reads those at "earliest" from the first record that exists when it reads: what retention deletes until then
    is no loss. Raises ConfigError for a topic or partition that does not exist and for options whose end lies
    before their start, DataLoss if a log does not hold its range.
    """
    view = TopicsView(options, cluster)
    view.check_all_exist()
    ends = view.ends()
    view.check_all_exist()  # one that was deleted since the first look is left out of the ends
    begin = looked_up(options.starting or AtOffset("startingOffsets", EARLIEST), view, ends)
    starts, from_earliest = as_offsets(begin, view, ends), {tp for tp, at in begin.items() if at == EARLIEST}
    if not isinstance(options.starting, AtOffset | None):
        # Records may have come since the ends were listed. Then a start may lie behind an end: it was found by the
        # time of such a record, or a member of the group has committed beyond it.
        ends |= {tp: end for tp, end in view.ends().items() if tp in ends}
    ends |= view.confirmed_ends(ends, starts)  # those that are gone by now stay: readable() tells of them
    ending = options.ending or AtOffset("endingOffsets", LATEST)
    stops = resolve(ending, view, ends)
    # Those without a stop are gone since, and were told.
    wanted = {tp: (start, stops[tp]) for tp, start in sorted(starts.items()) if tp in stops and start != stops[tp]}
    ranges = readable(
        _without_reversed(wanted, options.starting, ending, ends),
        view,
        fail=options.fail_on_data_loss,
        from_earliest=from_earliest,
        starting=options.starting,
        ending=ending,
    )
    return ranges, from_earliest & ranges.keys(), view.topic_ids(ranges)


def _without_reversed(
    wanted: Mapping[TopicPartition, tuple[int, int]], starting: Bound | None, ending: Bound, ends: Offsets
) -> dict[TopicPartition, tuple[int, int]]:
    """Return these ranges without those that end before they start. Raise ConfigError if the options say it so.

    Otherwise there is nothing to read: the group has read beyond the time at which the query ends, for instance, or
    retention has deleted all records before that end. A range that starts beyond its log stays: that is a loss.
    """
    kept: dict[TopicPartition, tuple[int, int]] = {}
    for tp, (start, stop) in wanted.items():
        if start > stop and contradict(starting, ending, tp):
            raise ConfigError(f"the end of {tp} ({stop}) lies before its start ({start}): correct one of them")
        if stop < start <= ends[tp]:
            _logger.info("nothing to read in %s: its end (%d) lies before its start (%d)", tp, stop, start)
        else:
            kept[tp] = start, stop
    return kept
