"""What a process is told that produces, as JSON, and the settings that are the same for every producer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import cycle, islice
from random import Random
from typing import Final, TypedDict

from ..cases import DISTINCT_VALUES, json_lines

# Java's defaults.
BATCH_SIZE: Final = 16_384
BUFFER_MEMORY: Final = 33_554_432
MAX_REQUEST_SIZE: Final = 1_048_576
LINGER_MS: Final = 5
MAX_IN_FLIGHT: Final = 5

_SEED: Final = 20_110_111


class ProduceSettings(TypedDict):
    """The options of producers that have Kafka's names in snake_case."""

    batch_size: int
    buffer_memory: int
    max_request_size: int
    linger_ms: int
    max_in_flight_requests_per_connection: int


PRODUCE_SETTINGS: Final[ProduceSettings] = {
    "batch_size": BATCH_SIZE,
    "buffer_memory": BUFFER_MEMORY,
    "max_request_size": MAX_REQUEST_SIZE,
    "linger_ms": LINGER_MS,
    "max_in_flight_requests_per_connection": MAX_IN_FLIGHT,
}


@dataclass(frozen=True, slots=True)
class ProduceJob:
    """Write ``records`` values of ``value_size`` bytes to the topic, idempotently, with acks=all."""

    client: str
    bootstrap: str
    topic: str
    partitions: int
    records: int
    value_size: int
    compression: str

    def values(self) -> Iterator[bytes]:
        """The values of all records, which are the same few thousand again and again."""
        return islice(cycle(self.distinct()), self.records)

    def distinct(self) -> Sequence[bytes]:
        return json_lines(self.value_size, DISTINCT_VALUES, Random(_SEED))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ProduceJob:
        return cls(**json.loads(text))
