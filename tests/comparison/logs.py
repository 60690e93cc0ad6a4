"""Topics with everything in them that a log can hold, written by librdkafka's producer."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any, Final

from confluent_kafka import Producer

from aiokc.testing.kafka import LocalKafka
from tests.producing import Message, produce

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
_SECONDS: Final = 30.0
_BEGIN_MS: Final = 1_700_000_000_000


def any_bytes(chance: Random) -> bytes | None:
    """Null, empty, or bytes around the lengths at which a length takes one more byte."""
    size = chance.choice((None, 0, 1, 5, 20, 63, 64, 65, 300, 8_191, 8_192))
    return None if size is None else chance.randbytes(size % 50) * (size // max(1, size % 50))


def any_headers(chance: Random) -> list[tuple[str, bytes | None]]:
    """Return None, or headers with empty, repeated or non-ASCII keys, and values that are null or empty."""
    if chance.random() < 0.5:
        return []
    keys = ("trace", "trace", "", "ключ-键-🔑", "x" * 70)
    return [(chance.choice(keys), chance.choice((None, b"", b"1", bytes(100)))) for _ in range(chance.randint(1, 4))]


def any_messages(chance: Random, count: int, partition: int, *, headers: bool = True) -> list[Message]:
    """Records with timestamps that do not ascend."""
    return [
        Message(
            any_bytes(chance),
            any_bytes(chance),
            any_headers(chance) if headers else (),
            timestamp=_BEGIN_MS + chance.randint(-5_000, 5_000),
            partition=partition,
        )
        for _ in range(count)
    ]


def write_codecs(
    kafka: LocalKafka,
    topic: str,
    chance: Random,
    count: int,
    *,
    config: Mapping[str, str] | None = None,
    codecs: tuple[str, ...] = CODECS,
    headers: bool = True,
    **options: object,
) -> int:
    """A partition for each codec, of several batches; return how many partitions there are."""
    kafka.create_topic(topic, partitions=len(codecs), config=config)
    for partition, codec in enumerate(codecs):
        messages = any_messages(chance, count, partition, headers=headers)
        produce(
            kafka.bootstrap,
            topic,
            messages,
            codec=codec,
            batch_num_messages=max(2, count // 7),
            linger_ms=50,
            **options,
        )
    return len(codecs)


#: A topic that is compacted at once, in small pieces: on a broker with a short `log.cleaner.backoff.ms`.
COMPACTED: Final = {
    "cleanup.policy": "compact",
    "segment.ms": "300",  # by the records' own time, a millisecond from one to the next
    "min.cleanable.dirty.ratio": "0.01",
    "min.compaction.lag.ms": "0",
    "delete.retention.ms": "0",
}


def write_compacted(kafka: LocalKafka, topic: str, chance: Random, count: int, config: Mapping[str, str]) -> int:
    """Few keys again and again, and deletions, in batches of which compaction leaves some records, or none."""
    codecs = ("none", "gzip", "lz4")
    kafka.create_topic(topic, partitions=len(codecs), config={**COMPACTED, **config})
    for partition, codec in enumerate(codecs):
        messages = [
            Message(
                None if chance.random() < 0.1 else chance.randbytes(chance.choice((0, 10, 300))),
                b"key %d" % chance.choice((chance.randrange(10), chance.randrange(count))),
                timestamp=_BEGIN_MS + number,
                partition=partition,
            )
            for number in range(count)
        ]
        produce(kafka.bootstrap, topic, messages, codec=codec, batch_num_messages=25, linger_ms=50)
    return len(codecs)


def write_big_records(kafka: LocalKafka, topic: str, chance: Random) -> int:
    """Records near the size that a broker takes, between small ones."""
    kafka.create_topic(topic, partitions=2)
    for partition, codec in enumerate(("none", "zstd")):
        sizes = (10, 900_000, 10, 700_000, 800_000, 10)
        messages = [Message(chance.randbytes(size), b"key", partition=partition) for size in sizes]
        produce(kafka.bootstrap, topic, messages, codec=codec)
    return 2


class Transactions:
    """A topic of two partitions with transactions that were committed, aborted, interleaved, and one that stays open.

    The open one lies in partition 1 only. ``close`` aborts it.
    """

    partitions: Final = 2

    def __init__(self, kafka: LocalKafka, topic: str, chance: Random, count: int) -> None:
        self._bootstrap, self._topic, self._chance, self._count = kafka.bootstrap, topic, chance, count
        kafka.create_topic(topic, partitions=self.partitions)
        first, second = self._producer("first"), self._producer("second")
        plain = Producer({"bootstrap.servers": kafka.bootstrap})
        for _ in range(3):
            for commit in (True, False):
                first.begin_transaction()
                second.begin_transaction()
                for producer in (first, second, plain, first):
                    self._write(producer, 0)
                    self._write(producer, 1)
                self._end(first, commit)
                self._write(second, 0)
                self._write(plain, 0)
                self._end(second, not commit)
        first.begin_transaction()  # a marker alone in a batch, with nothing behind it
        self._write(first, 0)
        self._end(first, False)
        self._open = second
        second.begin_transaction()
        self._write(second, 1)
        self._write(plain, 1)

    def close(self) -> None:
        self._end(self._open, False)

    def _producer(self, name: str) -> Any:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "transactional.id": f"{self._topic}-{name}",
                "transaction.timeout.ms": 300_000,
                "compression.type": self._chance.choice(CODECS),
            }
        )
        producer.init_transactions(_SECONDS)
        return producer

    def _write(self, producer: Any, partition: int) -> None:
        """Write some records; on return they are on the broker. In the log, transactions lie as they were written."""
        for message in any_messages(self._chance, self._chance.randint(1, self._count), partition):
            producer.produce(
                self._topic,
                value=message.value,
                key=message.key,
                headers=list(message.headers),
                timestamp=message.timestamp,
                partition=partition,
            )
        assert producer.flush(_SECONDS) == 0

    def _end(self, producer: Any, commit: bool) -> None:
        if commit:
            producer.commit_transaction(_SECONDS)
        else:
            producer.abort_transaction(_SECONDS)
