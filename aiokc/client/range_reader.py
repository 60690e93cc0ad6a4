"""Reading ranges of offsets, without a group and without a subscription."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from ..core.subscription import Subscription
from ..errors import ConfigError, RequestTimedOut
from ..types import PartitionRecords, TopicPartition
from .fetcher import Fetcher
from .link import ClusterLink
from .metadata import Metadata
from .supervisor import Supervisor

# The most records of one step: enough to make the step's cost vanish, few enough to stay within some MB of them.
_RECORDS_AT_ONCE = 4096


async def read_ranges(
    link: ClusterLink, ranges: Mapping[TopicPartition, tuple[int, int]], *, timeout: float
) -> AsyncIterator[PartitionRecords]:
    """Yield the records of ``{partition: (from, until)}``, each partition's in order.

    A range ends by position: offsets at its end that hold no record (control records, aborted or compacted ones) end
    it as well. Raises OffsetOutOfRange where the log does not hold a range's start any more, RequestTimedOut, naming
    where it stands, after ``timeout`` seconds without progress, and ConsumerClosed when the link is stopped meanwhile.
    """
    subscription = Subscription()
    subscription.assign(tp for tp, (start, until) in checked(ranges).items() if start < until)
    for tp in subscription.assigned:
        subscription.seek(tp, ranges[tp][0])
        subscription.read_until(tp, ranges[tp][1])
    metadata = link.metadata
    fetcher = Fetcher(link.config, link.pool, metadata, subscription, link.random)
    collector = fetcher.collector
    background = Supervisor("aiokc range reader")
    background.ended.followed_by(fetcher.arrived)
    link.background.ended.followed_by(fetcher.arrived)
    metadata.changed.followed_by(fetcher.wake)
    background.start([fetcher.run])
    try:
        loop = asyncio.get_running_loop()
        progress = loop.time()
        while subscription.assigned:
            link.check()
            background.check()
            await collector.decode(_RECORDS_AT_ONCE)
            before = {tp: position.position for tp, position in subscription.assigned.items()}
            batch = collector.take(_RECORDS_AT_ONCE)
            after = {tp: position.position for tp, position in subscription.assigned.items()}
            if after != before:
                progress = loop.time()
            for tp, records in batch.items():
                until = ranges[tp][1]
                if records[-1].offset >= until:
                    records = [record for record in records if record.offset < until]
                yield PartitionRecords(tp, records, min(after[tp], until))
                progress = loop.time()  # however long the caller took over these
            if subscription.replace(tp for tp, offset in after.items() if offset < ranges[tp][1]):
                fetcher.wake.notify()  # what is buffered behind the end of a range makes room
                continue
            if after != before or collector.has_undecoded():
                continue
            collector.user_waits(None)
            if not await fetcher.arrived.wait(progress + timeout - loop.time()):
                raise _stuck(subscription, timeout, metadata)
    finally:
        metadata.changed.not_followed_by(fetcher.wake)
        link.background.ended.not_followed_by(fetcher.arrived)
        await background.stop()


def checked(ranges: Mapping[TopicPartition, tuple[int, int]]) -> Mapping[TopicPartition, tuple[int, int]]:
    """Raise ConfigError for a range that can't be one."""
    for tp, (start, until) in ranges.items():
        if not 0 <= start <= until:
            raise ConfigError(f"{tp}: ({start}, {until}) is no range of offsets; 0 <= from <= until must hold")
    return ranges


def _stuck(subscription: Subscription, timeout: float, metadata: Metadata) -> RequestTimedOut:
    where = "; ".join(
        f"{tp} at offset {position.position} of the range's end {position.until}"
        f" (its log ends at {'unknown' if position.high_watermark is None else position.high_watermark})"
        for tp, position in sorted(subscription.assigned.items())
    )
    error = RequestTimedOut(f"no progress for {timeout:.3g} s: {where}")
    error.__cause__ = metadata.error
    return error
