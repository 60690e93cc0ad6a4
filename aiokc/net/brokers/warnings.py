"""Warnings: what is wrong with a broker is logged, not at each attempt."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ...core.cluster.home_cluster import OtherCluster
from ...core.rate_limit import RateLimit, and_more
from ...errors import KafkaError
from ..addresses import Address

logger = logging.getLogger("aiokc.net")

_INTERVAL: Final = 10.0  # seconds between two warnings about the same broker
_FOREIGN_INTERVAL: Final = 600.0  # and between two that its address leads to another cluster: that may last for days


class Warnings:
    """Logs each error, unless the last one of its kind is too recent, with how many of it were held back."""

    def __init__(self) -> None:
        self._limit, self._foreign = RateLimit(_INTERVAL), RateLimit(_FOREIGN_INTERVAL)

    def warn(self, kind: object, error: KafkaError) -> None:
        limit = self._foreign if isinstance(error, OtherCluster) else self._limit
        held_back = limit.admit(kind, asyncio.get_running_loop().time())
        if held_back is not None:
            logger.warning("%s%s", error, and_more(held_back))

    def connected(self, address: Address) -> None:
        """The broker can be used again: let the next warning about it through."""
        self._limit.forget(address)
        self._foreign.forget(address)
