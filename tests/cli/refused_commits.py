"""Commits that the coordinator refuses for one partition."""

from __future__ import annotations

from aiokc.error_codes import ErrorCode
from aiokc.testing.brokers.exchange import Exchange


async def refuse_partition_1(exchange: Exchange) -> None:
    """Answer that the offsets are committed, but for those of each topic's partition 1."""
    response = await exchange.handle()
    for topic in response.topics:  # type: ignore[union-attr]
        for partition in topic.partitions:
            if partition.partition_index == 1:
                partition.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
    await exchange.answer(response)
