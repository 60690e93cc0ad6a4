"""A fault for Fetch: one partition is refused, the others are answered."""

from __future__ import annotations

from aiokc.error_codes import ErrorCode
from aiokc.testing.brokers.exchange import Exchange
from aiokc.wire.messages.fetch import FetchResponse


async def refuse_the_second(exchange: Exchange) -> FetchResponse:
    """A fault for Fetch: partition 1 of each topic may not be read; the others are answered as usual."""
    response = await exchange.handle()
    assert isinstance(response, FetchResponse)
    for topic in response.responses:
        for partition in topic.partitions:
            if partition.partition_index == 1:
                partition.error_code, partition.records = ErrorCode.TOPIC_AUTHORIZATION_FAILED, None
    return response
