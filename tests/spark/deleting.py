"""Deleting the oldest records of a partition, as retention does without any client's request."""

from __future__ import annotations

from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient


def delete_records(bootstrap: str, topic: str, *, partition: int, before: int) -> None:
    """Make the log of this partition start at ``before``."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for deleted in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        deleted.result(30)
