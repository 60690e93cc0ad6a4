"""Which parts of planned ranges the logs still hold, for batches and for streams: what is missing is data loss."""

from __future__ import annotations

from collections.abc import Mapping, Set

from aiokc import TopicPartition

from ..cluster.topics_view import TopicsView
from ..data_loss import within
from ..options.bounds import Bound, named_by


def readable(
    wanted: Mapping[TopicPartition, tuple[int, int]],
    view: TopicsView,
    *,
    fail: bool,
    known: Mapping[TopicPartition, int] | None = None,
    from_earliest: Set[TopicPartition] = frozenset(),
    starting: Bound | None = None,
    ending: Bound | None = None,
) -> dict[TopicPartition, tuple[int, int]]:
    """Return the parts of these ranges that the logs hold, without empty ones. Raises DataLoss if that is not all.

    ``known`` are the ends of the logs as they were a moment ago: if they cover all ranges, the ends are not listed
    again. A range that is ``from_earliest`` starts where its log starts now. ``starting`` and ``ending`` are what the
    options say, if it is they that say where the ranges start and end.
    """
    if known and all(known.get(tp, -1) >= until for tp, (_, until) in wanted.items()):
        available = view.log_ranges(wanted, known)
    else:
        logs = view.log_ranges(wanted)
        latest = view.confirmed_ends({tp: log[1] for tp, log in logs.items()}, {tp: wanted[tp][1] for tp in logs})
        available = {tp: (log[0], latest[tp]) for tp, log in logs.items() if tp in latest}
    kept = {
        tp: within(
            tp,
            wanted[tp],
            available.get(tp),
            fail=fail,
            from_earliest=tp in from_earliest,
            named=(named_by(starting, tp), named_by(ending, tp)),
        )
        for tp in wanted
    }
    return {tp: (start, until) for tp, (start, until) in kept.items() if start < until}
