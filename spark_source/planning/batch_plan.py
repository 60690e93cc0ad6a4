"""Batch queries: decides which offsets one reads, once, in the driver, when Spark plans the query."""

from __future__ import annotations

from collections.abc import Mapping, Set
from uuid import UUID

from aiokc import EARLIEST, LATEST, TopicPartition
from aiokc.errors import ConfigError

from ..cluster.driver import Cluster
from ..cluster.topics_view import TopicsView
from ..options.bounds import AtOffset
from ..options.source_options import SourceOptions
from .readable import readable
from .resolve import as_offsets, looked_up, resolve


def batch_ranges(
    options: SourceOptions, cluster: Cluster
) -> tuple[dict[TopicPartition, tuple[int, int]], Set[TopicPartition], Mapping[str, UUID | None]]:
    """Return (from, until) for each partition that has something to read, which start at "earliest", and topic ids.

    A task reads those at "earliest" from the first record that exists when it reads: what retention deletes until then
    is no loss. Raises ConfigError for a topic or partition that does not exist and for a range that ends before it
    starts, DataLoss if a log does not hold its range.
    """
    view = TopicsView(options, cluster)
    view.check_all_exist()
    ends = view.ends()
    begin = looked_up(options.starting or AtOffset("startingOffsets", EARLIEST), view, ends)
    starts, from_earliest = as_offsets(begin, view, ends), {tp for tp, at in begin.items() if at == EARLIEST}
    if not isinstance(options.starting, AtOffset | None):
        # Records may have come since the ends were listed. Then a start may lie behind an end: it was found by the
        # time of such a record, or a member of the group has committed beyond it.
        ends |= {tp: end for tp, end in view.ends().items() if tp in ends}
    ends |= view.held_back(ends, starts)
    ending = options.ending or AtOffset("endingOffsets", LATEST)
    stops = resolve(ending, view, ends)
    starts = {tp: start for tp, start in starts.items() if tp in stops}  # the others are gone since, and were told
    if ending != AtOffset("endingOffsets", LATEST):
        for tp, start in starts.items():
            if start > stops[tp]:
                raise ConfigError(f"the end of {tp} ({stops[tp]}) lies before its start ({start}): correct one of them")
    wanted = {tp: (start, stops[tp]) for tp, start in sorted(starts.items()) if start != stops[tp]}
    ranges = readable(
        wanted,
        view,
        fail=options.fail_on_data_loss,
        from_earliest=from_earliest,
        starting=options.starting,
        ending=ending,
    )
    return ranges, from_earliest & ranges.keys(), view.topic_ids(ranges)
