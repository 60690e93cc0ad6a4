"""The rides of the demo, and how they get into Kafka: through confluent-kafka, since aiokc does not produce."""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient

CITIES = ("Berlin", "Lisbon", "Oslo", "Prague", "Vienna")
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class Ride:
    """One taxi ride, as it stands in a record's value (JSON); ``at`` is its event time, ISO 8601 in UTC."""

    id: str
    customer: str
    city: str
    amount: float
    at: str

    @property
    def timestamp_ms(self) -> int:
        return round(datetime.fromisoformat(self.at).timestamp() * 1000)

    @property
    def minute(self) -> datetime:
        return datetime.fromisoformat(self.at).replace(second=0, microsecond=0)

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()


def rides(count: int, *, until_ms: int, minutes: int, seed: int) -> list[Ride]:
    """Return ``count`` different rides in the order of their event times, spread over the ``minutes`` before."""
    chance = random.Random(seed)
    start = until_ms - minutes * MINUTE_MS
    times = sorted(chance.randrange(start, until_ms) for _ in range(count))
    return [
        Ride(
            id=f"ride-{number:06}",
            customer=f"customer-{chance.randrange(800):03}",
            city=chance.choices(CITIES, weights=(5, 2, 1, 3, 4))[0],
            amount=round(chance.uniform(4, 60), 2),
            at=datetime.fromtimestamp(at / 1000, UTC).isoformat(timespec="milliseconds"),
        )
        for number, at in enumerate(times)
    ]


def per_minute_and_city(all_rides: Sequence[Ride]) -> Counter[tuple[datetime, str]]:
    """Return how many rides fall into each minute and city: what Spark has to find."""
    return Counter((ride.minute, ride.city) for ride in all_rides)


class Production:
    """Writes rides into a topic at an even pace; ``written`` is how many the brokers have acknowledged."""

    def __init__(self, bootstrap: str, topic: str, all_rides: Sequence[Ride], *, per_second: int) -> None:
        self.written = 0
        self._bootstrap, self._topic = bootstrap, topic
        self._rides, self._per_second = all_rides, per_second
        self._stop = threading.Event()

    @property
    def finished(self) -> bool:
        return self.written == len(self._rides)

    def stop(self) -> None:
        self._stop.set()

    def run(self) -> None:
        """Write all of them, and return when they are acknowledged. Blocks: it is for a thread."""
        # Idempotent, or a retry could write a ride twice; log_level: its first question often comes too early.
        options = {"bootstrap.servers": self._bootstrap, "enable.idempotence": True, "log_level": 3}
        producer = Producer(options)
        started = time.monotonic()
        for number, ride in enumerate(self._rides):
            wait = started + number / self._per_second - time.monotonic()
            if wait > 0.01:
                producer.poll(0)
                if self._stop.wait(wait):
                    producer.purge()
                    return
            producer.produce(
                self._topic,
                key=ride.customer.encode(),
                value=ride.to_json(),
                timestamp=ride.timestamp_ms,
                on_delivery=self._delivered,
            )
        producer.flush(30)
        if not self.finished:
            raise RuntimeError(f"only {self.written} of {len(self._rides)} rides were written within 30 s")

    def _delivered(self, error: object, message: object) -> None:
        if error is not None:
            raise KafkaException(error)
        self.written += 1


def delete_topic(bootstrap: str, topic: str) -> None:
    """Delete the demo's topic on a cluster that goes on living."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([topic])[topic].result(timeout=10)
