"""Records for the tests, written by the producer of another library: confluent-kafka, that is librdkafka."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions

_FLUSH_SECONDS = 30.0


@dataclass(frozen=True)
class Message:
    """A record to produce. Without a partition the producer chooses one: by the key, or any."""

    value: bytes | None
    key: bytes | None = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    timestamp: int = 0  # ms since the epoch; 0: now
    partition: int = -1


@dataclass(frozen=True, order=True)
class Stored:
    """Where a record was stored."""

    partition: int
    offset: int


Messages: TypeAlias = Iterable[Message | bytes | None]


def produce(bootstrap: str, topic: str, messages: Messages, *, codec: str = "none", **config: object) -> list[Stored]:
    """Write these messages and wait until all are stored; return the place of each, in the order given.

    Plain bytes are values. `codec` is none, gzip, snappy, lz4 or zstd; `config` are librdkafka's options, with
    underscores for dots (batch_num_messages=1). Raises KafkaException for the first message that was refused.
    """
    producer = _producer(bootstrap, codec, config)
    return _write(producer, topic, messages)


def produce_in_transaction(
    bootstrap: str, topic: str, messages: Messages, *, commit: bool = True, codec: str = "none", **config: object
) -> list[Stored]:
    """Write these messages as one transaction, and commit or abort it; return the places of all messages.

    The partitions that it touched end with a control record: their last offset is one more than the last place.
    """
    producer = _producer(bootstrap, codec, {"transactional.id": f"{topic}-transaction", **config})
    producer.init_transactions(_FLUSH_SECONDS)
    producer.begin_transaction()
    stored = _write(producer, topic, messages)
    if commit:
        producer.commit_transaction(_FLUSH_SECONDS)
    else:
        producer.abort_transaction(_FLUSH_SECONDS)
    return stored


def add_partitions(bootstrap: str, topic: str, total: int) -> None:
    """Give a topic ``total`` partitions from now on. Afterwards the broker that is asked tells of all of them."""
    admin, deadline = AdminClient({"bootstrap.servers": bootstrap}), time.monotonic() + _FLUSH_SECONDS
    admin.create_partitions([NewPartitions(topic, total)])[topic].result(_FLUSH_SECONDS)
    # The controller has answered. A broker on a busy machine may hear of the partitions a moment later.
    while len(admin.list_topics(topic, timeout=_FLUSH_SECONDS).topics[topic].partitions) < total:
        assert time.monotonic() < deadline, f"{topic} has not grown to {total} partitions"
        time.sleep(0.05)


def _producer(bootstrap: str, codec: str, config: dict[str, object]) -> Any:
    options = {name.replace("_", "."): value for name, value in config.items()}
    return Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "acks": "all", **options})


def _write(producer: Any, topic: str, messages: Messages) -> list[Stored]:
    stored: dict[int, Stored] = {}
    errors: list[Exception] = []
    count = 0
    for count, given in enumerate(messages, 1):
        message = given if isinstance(given, Message) else Message(given)
        _enqueue(producer, topic, message, _Delivery(count - 1, stored, errors))
    unsent = producer.flush(_FLUSH_SECONDS)
    if errors:
        raise errors[0]
    assert not unsent, f"{unsent} of {count} records were not stored in {topic} after {_FLUSH_SECONDS:g} s"
    return [stored[index] for index in range(count)]


def _enqueue(producer: Any, topic: str, message: Message, delivery: _Delivery) -> None:
    while True:
        try:
            producer.produce(
                topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                timestamp=message.timestamp,
                partition=message.partition,
                on_delivery=delivery,
            )
            producer.poll(0)
            return
        except BufferError:  # librdkafka's queue is full: let it send some
            producer.poll(0.1)


@dataclass(frozen=True)
class _Delivery:
    index: int
    stored: dict[int, Stored]
    errors: list[Exception]

    def __call__(self, error: Any, message: Any) -> None:
        if error is not None:
            self.errors.append(KafkaException(error))
        else:
            self.stored[self.index] = Stored(message.partition(), message.offset())
