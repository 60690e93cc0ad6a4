"""What aiokc's own tests and benchmarks run against, for yours too.

``Cluster`` is a Kafka cluster in Python, in the test's own process, that breaks on demand: ``ApiKey``, ``ErrorCode``
and ``aiokc.testing.faults`` say how; ``NewRecord`` is a record to put into it. ``aiokc.testing.kafka`` is a local
Apache Kafka.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..error_codes import ErrorCode
from ..records import NewRecord
from .brokers.api_keys import ApiKey

if TYPE_CHECKING:
    from .cluster.embedded_cluster import Cluster

__all__ = ["ApiKey", "Cluster", "ErrorCode", "NewRecord"]


def __getattr__(name: str) -> object:
    if name == "Cluster":  # imported when first wanted: who starts a real Kafka does not pay for this one
        from .cluster.embedded_cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
