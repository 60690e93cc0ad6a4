"""What brokers know of transactions that have not ended: DescribeProducers and ListTransactions (KIP-664)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from aiokc import TopicPartition
from aiokc.testing.kafka.jars import run_tool
from tests.suite.peers.java_programs import QUICK_JVM
from tests.suite.peers.kafka_python import kafka

_ENDED: Final = ("Empty", "CompleteCommit", "CompleteAbort", "Dead")


def open_transactions(bootstrap: str, partitions: Iterable[TopicPartition], ids: str) -> list[str]:
    """Return what is open in these partitions, and of the transactional ids that match ``ids``, a line each."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        states = admin.describe_producers([kafka.TopicPartition(tp.topic, tp.partition) for tp in partitions])
        found = [
            f"{tp.topic}-{tp.partition}: {producer}"
            for tp, state in states.items()
            for producer in state.active_producers
            if producer.current_transaction_start_offset >= 0
        ]
        listed = admin.list_transactions(transactional_id_pattern=ids)
        return found + [str(one) for some in listed.values() for one in some if one.state not in _ENDED]
    finally:
        admin.close()


def hanging_transactions(bootstrap: str, node_id: int) -> list[str]:
    """Return what kafka-transactions.sh finds in a broker's partitions that no coordinator will ever end."""
    said = run_tool(
        "org.apache.kafka.tools.TransactionsCommand",
        *("--bootstrap-server", bootstrap, "find-hanging", "--broker-id", str(node_id)),
        *("--max-transaction-timeout", "0"),  # minutes: also a young one
        jvm=QUICK_JVM,
        timeout=120,
    )
    header, *rows = said.splitlines()
    assert header.startswith("Topic"), said
    return [row for row in rows if row.strip()]
