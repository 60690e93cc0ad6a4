"""The public names for running a local Apache Kafka, of one or several nodes: for tests, benchmarks, and by hand.

    with LocalKafka() as kafka:
        kafka.create_topic("events", partitions=6)
        ... kafka.bootstrap ...

    python -m aiokc.testing.kafka --nodes 3 --topic events:6

``SecureKafka`` has listeners with TLS and SASL, certificates, users, tokens and ACLs beside that.

It needs Java 17, and Maven, which fetches Kafka's jars once (into `jars.home`). With ``AIOKC_BOOTSTRAP=host:port`` a
plain single node is not started: the Kafka at that address takes its place, and topics are created there.
"""

from __future__ import annotations

from .jars import LocalKafkaError, libs, run_tool
from .local_kafka import LocalKafka
from .node import Node
from .secure.acls import Acl
from .secure_kafka import SecureKafka

__all__ = ["Acl", "LocalKafka", "LocalKafkaError", "Node", "SecureKafka", "libs", "run_tool"]
