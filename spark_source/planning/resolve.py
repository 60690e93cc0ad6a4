"""Turns the start and the end of a query (``bounds.py``) into offsets, by asking the cluster."""

from __future__ import annotations

from collections.abc import Mapping

from aiokc import EARLIEST, LATEST, TopicPartition
from aiokc.errors import ConfigError
from aiokc.types import named

from ..cluster.topics_view import TopicsView
from ..offsets import Offsets
from ..options.bounds import AtCommitted, AtTime, Bound, spread


def resolve(bound: Bound, view: TopicsView, ends: Offsets) -> Offsets:
    """Return ``bound`` as offsets of the partitions in ``ends``, where "latest" means these ends.

    Raises ConfigError if the options leave a partition without an offset.
    """
    return as_offsets(looked_up(bound, view, ends), view, ends)


def looked_up(bound: Bound, view: TopicsView, ends: Offsets) -> Offsets:
    """Return ``bound`` for each partition in ``ends``; EARLIEST and LATEST stay as they are. Raises ConfigError.

    A partition that is looked up by a time is left out if it is gone, which is a loss (``TopicsView.at_times``).
    """
    if isinstance(bound, AtCommitted):
        return _committed(bound, view, ends)
    if isinstance(bound, AtTime):
        return _at_times(bound, view, spread(bound, ends), ends)
    return spread(bound, ends)


def as_offsets(wanted: Offsets, view: TopicsView, ends: Offsets) -> Offsets:
    """Return ``wanted`` with the first offset of the log for EARLIEST, and that of ``ends`` for LATEST.

    A partition to read from its EARLIEST record is left out if it is gone, which is a loss (``TopicsView.earliest``).
    """
    earliest = view.earliest((tp for tp, at in wanted.items() if at == EARLIEST), ends)
    there = {tp: at for tp, at in wanted.items() if at != EARLIEST or tp in earliest}
    return {tp: ends[tp] if at == LATEST else earliest.get(tp, at) for tp, at in there.items()}


def _committed(bound: AtCommitted, view: TopicsView, ends: Mapping[TopicPartition, int]) -> Offsets:
    committed = view.committed(bound.group_id, ends)
    found = {tp: bound.otherwise if offset is None else offset for tp, offset in committed.items()}
    missing = [tp for tp, offset in found.items() if offset is None]
    if missing:
        raise ConfigError(
            f"startingOffsets=committed: group {bound.group_id!r} has committed nothing for {named(missing)}; say "
            "where these start in 'startingOffsetsDefault' (earliest; in a stream, latest)"
        )
    return {tp: offset for tp, offset in found.items() if offset is not None}


def _at_times(bound: AtTime, view: TopicsView, wanted: Offsets, ends: Offsets) -> Offsets:
    said = {tp: at for tp, at in wanted.items() if at < 0}  # EARLIEST or LATEST, where the JSON has no time
    found = view.at_times({tp: at for tp, at in wanted.items() if at >= 0}, ends, is_start=bound.is_start)
    offsets = {tp: bound.no_match if offset is None else offset for tp, offset in found.items()}
    missing = [tp for tp, offset in offsets.items() if offset is None]
    if missing:
        where = named(missing, write=lambda tp: f"{tp} (asked for {wanted[tp]})")
        raise ConfigError(
            f"{bound.option}: no record is that young in {where}; give an earlier time, or start there at "
            "the end with startingOffsetsByTimestampStrategy=latest"
        )
    return said | {tp: offset for tp, offset in offsets.items() if offset is not None}
