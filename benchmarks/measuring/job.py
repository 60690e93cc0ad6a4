"""The messages between the harness and the process that measures, as JSON: Job and Measurement."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, TypedDict

from ..cases import Takes

# The same for every client that knows the setting; these are Java's defaults.
FETCH_MAX_BYTES: Final = 52_428_800
MAX_PARTITION_FETCH_BYTES: Final = 1_048_576
FETCH_MIN_BYTES: Final = 1
FETCH_MAX_WAIT_MS: Final = 500
CHECK_CRCS: Final = True

#: The mechanism of the cases over SASL_SSL.
SASL_MECHANISM: Final = "SCRAM-SHA-512"


class FetchSettings(TypedDict):
    """The options of clients that have Kafka's names in snake_case."""

    fetch_max_bytes: int
    max_partition_fetch_bytes: int
    fetch_min_bytes: int
    fetch_max_wait_ms: int
    check_crcs: bool


FETCH_SETTINGS: Final[FetchSettings] = {
    "fetch_max_bytes": FETCH_MAX_BYTES,
    "max_partition_fetch_bytes": MAX_PARTITION_FETCH_BYTES,
    "fetch_min_bytes": FETCH_MIN_BYTES,
    "fetch_max_wait_ms": FETCH_MAX_WAIT_MS,
    "check_crcs": CHECK_CRCS,
}


@dataclass(frozen=True, slots=True)
class Job:
    """Read all ``records`` records of the topic with one client, at most ``max_records`` at a time.

    ``takes`` is what the program takes of each: its key, value and offset ("all"), or its value alone ("value").
    ``cpu`` is the processor that the process is bound to; None: all processors. ``security_protocol`` is Kafka's;
    ``ca`` is the PEM file of the broker's certificate authority, and ``user`` logs in with SCRAM-SHA-512.
    """

    client: str
    bootstrap: str
    topic: str
    partitions: int
    records: int
    max_records: int
    cpu: int | None = None
    security_protocol: str = "PLAINTEXT"
    ca: str = ""
    user: str = ""
    password: str = ""
    takes: Takes = "all"

    @property
    def tls(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        return self.security_protocol.startswith("SASL")

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        return cls(**json.loads(text))


@dataclass(frozen=True, slots=True)
class Stalls:
    """How late timers of the event loop fired during the run, in milliseconds."""

    p50: float
    p99: float
    max: float


@dataclass(frozen=True, slots=True)
class Measurement:
    """What one process measured, and what it read.

    ``data_bytes`` is the size of all keys and values, or of all values; if the client rounds it, the error is at most
    ``data_bytes_error``. ``offset_sum`` is None for a client that shows no offsets.
    """

    seconds: float
    cpu_seconds: float
    peak_rss: int
    records: int
    data_bytes: int
    offset_sum: int | None
    data_bytes_error: int = 0
    stalls: Stalls | None = None

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Measurement:
        return cls.from_dict(json.loads(text))

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Measurement:
        stalls = fields["stalls"]
        return cls(**{**fields, "stalls": None if stalls is None else Stalls(**stalls)})
