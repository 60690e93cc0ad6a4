"""Resets a position that the log does not hold: out of range (auto_offset_reset), truncated away, or recreated."""

from __future__ import annotations

import logging
from collections.abc import Callable

from ...core.fetch.buffer import FetchBuffer
from ...core.fetch.response import Answer
from ...core.subscription.offset_reset import OffsetReset
from ...core.subscription.position import PartitionPosition, PositionState
from ...core.subscription.state import Subscription
from ...errors import LogTruncated, OffsetOutOfRange
from ...types import EARLIEST, TopicPartition
from ..aio.complaints import Complaints
from .validator import Ending

logger = logging.getLogger("aiokc.offsets")


class PositionResets:
    """Resets such a position as ``reset`` says; if that says "none", the application gets an error, and has to seek.

    Every reset is logged as a warning. Where the new offset is looked up, TimestampPositions names both offsets then;
    what is wrong is told here: of one partition of each topic in 30 s, since a topic may lose all of them at once.
    ``clock`` gives seconds since the epoch.
    """

    def __init__(
        self, subscription: Subscription, buffer: FetchBuffer, reset: OffsetReset, clock: Callable[[], float]
    ) -> None:
        self._subscription = subscription
        self._buffer = buffer
        self._reset = reset
        self._clock = clock
        self._complaints = Complaints(logger)

    def out_of_range(self, answer: Answer, position: PartitionPosition, node_id: int) -> bool:
        """The log of broker ``node_id`` does not hold the offset asked for. Return False for another Fetch, but later.

        It is False if fetched records before that offset are still to be handed out: those come first. It is True where
        the application gets an error, and where the new position is looked up: no Fetch is sent meanwhile.
        """
        tp, offset = answer.target.tp, answer.target.offset
        if offset != position.position:
            return False
        timestamp = self._reset.timestamp(self._clock())
        if timestamp is None:
            self._buffer.fail(tp, position, OffsetOutOfRange({tp: offset}, _found(position, node_id)))
            return True
        text = "%s: offset %d is not in the log (%s); looking up where to go on"
        self._complaints.warn((tp.topic, "range"), text, tp, offset, _found(position, node_id))
        self._subscription.await_reset(tp, timestamp, lost=True)
        return True

    def truncated(self, tp: TopicPartition, position: PartitionPosition, ending: Ending | None) -> None:
        """Before the position, at ``ending`` (None: not known where), the log diverges from what was read."""
        offset = position.position
        timestamp = self._reset.timestamp(self._clock())
        if timestamp is None:
            safe = {tp: ending.offset} if ending is not None else {}
            self._buffer.fail(tp, position, LogTruncated({tp: offset}, safe))
        elif ending is None:
            text = "%s: the log was truncated before offset %d; looking up where to go on"
            self._complaints.warn((tp.topic, "truncated"), text, tp, offset)
            self._subscription.await_reset(tp, timestamp, lost=True)
        else:
            logger.warning(
                "%s: the log was truncated under offset %d: what was read from offset %d on is gone; going on there",
                tp,
                offset,
                ending.offset,
            )
            topic_id = position.topic_id
            self._subscription.seek(
                tp, ending.offset, ending.epoch, topic_id=topic_id, checked_epoch=ending.leader_epoch
            )

    def recreated(self, tp: TopicPartition, token: int) -> None:
        """The topic was recreated: a position in the old log means nothing in the new one (KIP-516).

        Every reset goes to the beginning: "latest" would skip the records written before this client heard of the new
        topic.
        """
        position = self._subscription.get(tp, token)
        if position is None:
            return
        offset = position.position
        if self._reset.timestamp(self._clock()) is None:
            if position.state is PositionState.AWAIT_VALIDATION:
                self._subscription.validated(tp, None)  # no leader's answer about the old log matters any more
            self._buffer.drop(tp)
            self._buffer.fail(
                tp, position, LogTruncated({tp: offset}, {tp: 0}, "the topic was deleted and created again")
            )
            return
        logger.warning(
            "%s: the topic was deleted and created again: leaving offset %d for the beginning of the new log",
            tp,
            offset,
        )
        self._subscription.begin_anew(tp, EARLIEST)


def _found(position: PartitionPosition, node_id: int) -> str:
    """What earlier answers said about the log; the OFFSET_OUT_OF_RANGE answer itself does not say."""
    start, end = position.log_start_offset, position.high_watermark
    if start is None or end is None:
        return f"so says broker {node_id}"
    return f"so says broker {node_id}, whose log had offsets {start} to {end} before"
