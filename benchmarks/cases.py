"""What is read (topics of JSON lines of one size), what a program takes of it, and the totals of a complete read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Final, Literal, TypeAlias

PARTITIONS: Final = 6
KEY_SIZE: Final = 8
#: Distinct values of a topic. Together they are much longer than a record batch, so no batch has one of them twice.
DISTINCT_VALUES: Final = 20_000

_LOG_WORDS: Final = """
    accepted address after amount basket before cache cancelled card charge checkout cleared closed connection
    created customer declined delivered expired failed first gateway handler invoice item ledger limit missing
    notified opened order paid partial payment pending picked queue quota received refund rejected replica retry
    returned session shipped signature slow stale stock timeout token total upstream verified voucher worker
"""


#: What the program takes of each record: its key, value and offset, or its value alone.
Takes: TypeAlias = Literal["all", "value"]


@dataclass(frozen=True, slots=True)
class Case:
    """One topic: ``records`` records with keys of KEY_SIZE bytes and values of exactly ``value_size`` bytes.

    ``security_protocol`` is how the clients connect, and ``takes`` is what the program does with the same records.
    """

    name: str
    value_size: int
    compression: str
    records: int
    security_protocol: str = "PLAINTEXT"
    takes: Takes = "all"

    @property
    def title(self) -> str:
        """What is read, in words."""
        size = f"{self.value_size} B" if self.value_size < 1000 else f"{self.value_size / 1000:g} kB"
        codec = "" if self.compression == "none" else f" {self.compression}"
        over = {"PLAINTEXT": "", "SSL": " over TLS", "SASL_SSL": " over TLS with SASL"}[self.security_protocol]
        return f"{size}{codec}{over}, {'value only' if self.takes == 'value' else 'key, value, offset'}"

    @property
    def secure(self) -> bool:
        """Whether clients connect by TLS or SASL."""
        return self.security_protocol != "PLAINTEXT"

    @property
    def topic(self) -> str:
        """Return a name with everything that the content depends on, so that a later run can use the topic again."""
        return f"benchmark-{self.value_size}-{self.compression}-{self.records}"

    @property
    def partition_records(self) -> list[int]:
        """Return how many records each partition has: record number i is in partition i % PARTITIONS."""
        return [len(range(partition, self.records, PARTITIONS)) for partition in range(PARTITIONS)]

    @property
    def data_bytes(self) -> int:
        """Return the bytes of all that the program takes: keys and values, or values alone."""
        return self.records * (self.value_size + (KEY_SIZE if self.takes == "all" else 0))

    @property
    def offset_sum(self) -> int:
        """Return the sum of all offsets. With the count, it shows that no record was read twice or never."""
        return sum(count * (count - 1) // 2 for count in self.partition_records)


def _case(label: str, value_size: int, compression: str, records: int) -> Case:
    return Case(f"{label}-{compression}", value_size, compression, records)


def _secure(label: str, value_size: int, records: int, protocol: str) -> Case:
    return Case(f"{label}-{protocol}", value_size, "none", records, protocol)


def _both(case: Case) -> tuple[Case, Case]:
    """The case whose program takes the value alone, and the one whose program takes key, value and offset."""
    return replace(case, name=f"{case.name}-value", takes="value"), case


#: Cases only for clients that name them: the decoders in Python, which are too slow for the other cases.
SPECIAL: Final = frozenset({"100B-few"})
CASES: Final = {
    case.name: case
    for case in (
        *_both(_case("100B", 100, "none", 2_000_000)),
        *_both(_case("100B", 100, "lz4", 2_000_000)),
        *_both(_case("100B", 100, "zstd", 2_000_000)),
        *_both(_case("1kB", 1000, "none", 500_000)),
        *_both(_case("1kB", 1000, "lz4", 500_000)),
        *_both(_case("1kB", 1000, "zstd", 500_000)),
        _secure("100B", 100, 2_000_000, "SSL"),
        _secure("100B", 100, 2_000_000, "SASL_SSL"),
        _secure("1kB", 1000, 500_000, "SSL"),
        _secure("1kB", 1000, 500_000, "SASL_SSL"),
        Case("100B-few", 100, "none", 200_000),
    )
}
#: Cases that are measured only if the command line names them: they tell little that the others do not.
BY_NAME: Final = frozenset(
    name for name in CASES if name.startswith(("1kB-lz4", "1kB-zstd")) or name.endswith("SASL_SSL")
)
#: The cases that need a broker with TLS.
SECURE: Final = frozenset(case.name for case in CASES.values() if case.secure)


def json_lines(size: int, count: int, random: Random) -> Sequence[bytes]:
    """Return ``count`` log-like JSON objects of exactly ``size`` bytes, which must have room for the fixed fields."""
    return [_json_line(size, random) for _ in range(count)]


def _json_line(size: int, random: Random) -> bytes:
    event = {
        "id": f"{random.getrandbits(40):010x}",
        "user": random.randrange(100_000),
        "ms": random.randrange(1, 5_000),
        "msg": "",
    }
    room = size - len(json.dumps(event, separators=(",", ":")))
    if room < 0:
        raise ValueError(f"a JSON line needs {size - room} bytes for its fixed fields, {size} are too few")
    words = _LOG_WORDS.split()
    text = ""
    while len(text) < room:
        text += f"{random.choice(words)} {random.randrange(100)} "
    event["msg"] = text[:room]
    return json.dumps(event, separators=(",", ":")).encode()
