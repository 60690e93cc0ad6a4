"""The producers that are measured. A module has a function or coroutine, such as ``produce(job, stopwatch)``, for each.

It connects, and gets the topic's metadata. It starts the stopwatch, hands over ``job.records`` values without a key,
waits until the broker has acknowledged each of them, and stops the stopwatch. Then it closes the producer. A record
that fails raises.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ProducerClient:
    """One row of each case. ``loop`` is "asyncio", "uvloop", or None for a producer that blocks its thread.

    ``share`` is the part of a case's records that it sends: with a call of Python's for each, all would take too long.
    """

    name: str
    label: str
    module: str
    function: str
    loop: str | None
    share: float = 1.0


_FEW: Final = 0.2

PRODUCERS: Final = {
    client.name: client
    for client in (
        ProducerClient("send_many", "aiokc send_many", "aiokc_calls", "send_many", "asyncio"),
        ProducerClient("send_many-uvloop", "aiokc send_many, uvloop", "aiokc_calls", "send_many", "uvloop"),
        ProducerClient("send_soon", "aiokc send_soon", "aiokc_calls", "send_soon", "asyncio", _FEW),
        ProducerClient("send_soon-uvloop", "aiokc send_soon, uvloop", "aiokc_calls", "send_soon", "uvloop", _FEW),
        ProducerClient("send", "aiokc send", "aiokc_calls", "send", "asyncio", _FEW),
        ProducerClient("send-uvloop", "aiokc send, uvloop", "aiokc_calls", "send", "uvloop", _FEW),
        ProducerClient("aiokafka", "aiokafka send", "aiokafka_calls", "send", "asyncio", _FEW),
        ProducerClient("aiokafka-batch", "aiokafka send_batch", "aiokafka_calls", "send_batch", "asyncio", _FEW),
        ProducerClient("confluent", "confluent produce", "confluent_calls", "produce", None),
        ProducerClient("confluent-aio", "confluent AIOProducer", "confluent_calls", "aio_produce", "asyncio", _FEW),
        ProducerClient("java", "Java ProducerPerformance", "java", "produce", None),
        ProducerClient("franz-go", "franz-go Produce", "franz_go", "produce", None),
    )
}

#: The producer that the others are compared with.
PRODUCER_REFERENCE: Final = "send_many"
