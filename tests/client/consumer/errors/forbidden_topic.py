"""A topic that the consumer may not read."""

from __future__ import annotations

from typing import Any

from aiokc.error_codes import ErrorCode
from aiokc.testing.brokers.exchange import Exchange


async def forbid_u(exchange: Exchange) -> Any:
    """Return the metadata for who may not see the topic "u"."""
    response: Any = await exchange.handle()
    for topic in response.topics:
        if topic.name == "u":
            topic.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return response
