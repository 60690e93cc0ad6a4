"""The public names for testing a consumer: an embedded Kafka cluster that injects faults on demand.

``Cluster`` is a Kafka cluster in Python, in the test's own process. ``ApiKey`` and ``ErrorCode`` name the requests to
intercept and the errors to answer; ``aiokc.testing.faults`` has all other faults of requests. ``NewRecord`` is a record
to append. ``aiokc.testing.kafka`` runs a local Apache Kafka. aiokc's own tests and benchmarks run against both.
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
    if name == "Cluster":  # imported at first use: a program that starts a real Kafka does not pay for this import
        from .cluster.embedded_cluster import Cluster

        return Cluster
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
