"""A batch 0 without an anchor, which Spark's own source has planned: do the options still say where it began?"""

from __future__ import annotations

import logging

from aiokc import KafkaError
from aiokc.errors import ConfigError
from aiokc.types import named

from ..cluster.topics_view import TopicsView
from ..offsets import Offsets
from ..options.bounds import Bound, is_fixed, is_given
from ..options.source_options import SourceOptions

_logger = logging.getLogger(__name__)


def check_start_is_known(
    ends: Offsets, initial: Offsets, unresolved: KafkaError | None, *, options: SourceOptions, view: TopicsView
) -> None:
    """Raise ConfigError for such a batch, which has these ``ends``, if it may have had another start.

    ``initial`` is the start that the options lead to now; ``unresolved`` is the reason if they lead to none.
    """
    bound = options.starting
    if bound is None or not ends:
        return
    unknown = (
        "batch 0 of this checkpoint was planned by format('kafka') and is not finished. Where it began is in a "
        f"file that only that source can look for, and {bound.option} may say something else now: let "
        "format('kafka') finish that batch, or give the offsets in the checkpoint's file sources/0/0 as "
        "startingOffsets"
    )
    if not is_fixed(bound) or isinstance(unresolved, ConfigError):
        raise ConfigError(unknown) from unresolved
    if trimmed := _may_have_been_trimmed(bound, initial, ends, view):
        if options.fail_on_data_loss:
            raise ConfigError(unknown)
        where = named(trimmed, write=lambda tp: f"{tp} offset {trimmed[tp]}")
        _logger.warning("failOnDataLoss=false: going on from %s, although %s", where, unknown)


def _may_have_been_trimmed(bound: Bound, initial: Offsets, ends: Offsets, view: TopicsView) -> Offsets:
    """Return the earliest offsets of the logs that may have lost records since Spark's own source planned batch 0.

    In these the query would start at the earliest record, or before it, and this is not offset 0.
    """
    doubtful = {tp: at for tp, at in initial.items() if at > 0 and tp in ends}
    # One that is gone is told as a part of the batch.
    earliest = view.earliest((tp for tp in doubtful if not is_given(bound, tp)), {})
    return {tp: first for tp, first in earliest.items() if doubtful[tp] <= first}
