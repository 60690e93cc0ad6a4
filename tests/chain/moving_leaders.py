"""Moving the leaders of partitions while all brokers are well: a new order of their replicas, and an election."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final

from aiokc.testing.kafka import LocalKafka
from tests.suite.peers.kafka_python import kafka as kafka_python

_PREFERRED: Final = 0


def move_leaders(kafka: LocalKafka, topics: Sequence[str], random: Random) -> None:
    """Have every partition of these topics led by another of its replicas."""
    admin = kafka_python.KafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    try:
        described = admin.describe_topics(list(topics))
        wanted: dict[kafka_python.TopicPartition, list[int]] = {}
        for topic in described:
            for partition in topic["partitions"]:
                replicas = list(partition["replica_nodes"])
                random.shuffle(replicas)
                if replicas[0] == partition["leader_id"]:
                    replicas.append(replicas.pop(0))
                wanted[kafka_python.TopicPartition(topic["name"], partition["partition_index"])] = replicas
        refused = {tp: why for tp, why in admin.alter_partition_reassignments(wanted).items() if why is not None}
        assert not refused, refused
        places: dict[str, list[int]] = {}
        for tp in wanted:
            places.setdefault(tp.topic, []).append(tp.partition)
        admin.elect_leaders(_PREFERRED, places, raise_errors=False)
    finally:
        admin.close()
