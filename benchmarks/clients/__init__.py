"""The clients under measurement. Each module has ``consume(job, stopwatch)``: a function, or a coroutine function.

It connects, and learns what it must to send its first Fetch; starts the stopwatch; assigns all partitions of the topic
from offset 0, without a group; takes ``job.max_records`` records at a time until it has ``job.records``, touching
each; stops the stopwatch; closes; returns the Tally.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Client:
    """One row of each case. ``loop`` is "asyncio", "uvloop", or None for a client that blocks its thread.

    ``distribution`` is what its version is looked up by; ``crc`` says whether it verifies the batches' checksums.
    """

    name: str
    label: str
    module: str
    distribution: str
    loop: str | None
    crc: str


_AIOKC_CRC: Final = "yes (check_crcs)"
_AIOKAFKA_CRC: Final = "yes (check_crcs)"
_LIBRDKAFKA_CRC: Final = "yes (check.crcs=true; its default is false)"

CLIENTS: Final = {
    client.name: client
    for client in (
        Client("aiokc", "aiokc getmany", "aiokc_getmany", "aiokc", "asyncio", _AIOKC_CRC),
        Client("aiokc-uvloop", "aiokc getmany, uvloop", "aiokc_getmany", "aiokc", "uvloop", _AIOKC_CRC),
        Client("aiokafka", "aiokafka getmany", "aiokafka_getmany", "aiokafka", "asyncio", _AIOKAFKA_CRC),
        Client("aiokafka-uvloop", "aiokafka getmany, uvloop", "aiokafka_getmany", "aiokafka", "uvloop", _AIOKAFKA_CRC),
        Client(
            "confluent-aio", "confluent AIOConsumer", "confluent_aio", "confluent-kafka", "asyncio", _LIBRDKAFKA_CRC
        ),
        Client("confluent", "confluent consume", "confluent_consume", "confluent-kafka", None, _LIBRDKAFKA_CRC),
        Client("kafka-python", "kafka-python poll", "kafka_python_poll", "kafka-python", None, "yes (check_crcs)"),
        Client("java", "Java ConsumerPerformance", "consumer_performance", "", None, "yes (check.crcs=true)"),
    )
}

#: The client that the others are compared with.
REFERENCE: Final = "aiokc"
