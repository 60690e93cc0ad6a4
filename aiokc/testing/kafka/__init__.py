"""A local Apache Kafka of one node or several, for tests, benchmarks, and by hand.

    with LocalKafka() as kafka:
        kafka.create_topic("events", partitions=6)
        ... kafka.bootstrap ...

    python -m aiokc.testing.kafka --nodes 3 --topic events:6

It needs Java 17 and Maven, which fetches Kafka's jars once (`jars.home`). ``AIOKC_BOOTSTRAP=host:port`` takes
the place of a plain single node: nothing is started or stopped then, and topics are created over there.
"""

from __future__ import annotations

from .jars import LocalKafkaError, libs, run_tool
from .local_kafka import LocalKafka
from .node import Node

__all__ = ["LocalKafka", "LocalKafkaError", "Node", "libs", "run_tool"]
