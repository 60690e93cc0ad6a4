"""What is measured in Spark: reads of whole topics, micro-batches of a few records, and an idle stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..cases import Case

#: The sources: Spark's own, aiokc's, one that hands Spark record batches made in advance (Spark's ceiling), and the
#: same while it fetches and drops the bytes of the topic (the ceiling of what reads from a broker on this machine).
SOURCES: Final[Sequence[str]] = ("kafka", "aiokc", "prebuilt", "drained")
#: The aim for aiokc's streams: rows/s as a share of each ceiling's.
CEILING_BAR: Final = 0.9
ALL: Final = "all"
TWO: Final = "value, offset"
#: Numbers of task slots; each has a session of its own.
SLOTS: Final = (1, 2)
BATCH: Final = "batch"
STREAM: Final = "availableNow"


def topics(records: int) -> dict[str, Case]:
    """Return the topics: ``records`` of 100 bytes, a fifth as many of 1 kB, two fifths as many compressed ones."""
    kinds = [("100B", 100, "none", 5), ("1kB", 1000, "none", 1), ("100B", 100, "lz4", 2), ("100B", 100, "zstd", 2)]
    return {
        f"{label}-{codec}": Case(f"{label}-{codec}", size, codec, records * share // 5)
        for label, size, codec, share in kinds
    }


@dataclass(frozen=True, slots=True)
class Read:
    """One way to read a topic to its end. The bar is the aim for aiokc: rows/s as a multiple of Spark's own source."""

    topic: str
    query: str
    columns: str
    bar: float

    @property
    def name(self) -> str:
        return f"{self.topic}, {self.query}, {self.columns}"


READS: Final = (
    Read("100B-none", BATCH, ALL, 3),
    Read("100B-none", BATCH, TWO, 5),
    Read("100B-none", STREAM, ALL, 3),
    Read("100B-none", STREAM, TWO, 5),
    Read("1kB-none", STREAM, ALL, 2),
    Read("100B-lz4", STREAM, ALL, 2),
    Read("100B-zstd", STREAM, ALL, 2),
)


@dataclass(frozen=True, slots=True)
class Variant:
    """A source with some options of its own, in the measurements of triggers."""

    name: str
    source: str
    options: Mapping[str, str]


VARIANTS: Final = {
    variant.name: variant
    for variant in (
        Variant("kafka", "kafka", {}),
        Variant("kafka, 10 ms", "kafka", {"kafka.fetch.max.wait.ms": "10"}),
        Variant("aiokc", "aiokc", {}),
        Variant("prebuilt", "prebuilt", {}),
    )
}
#: The partitions of the topics whose micro-batches are timed; each gets so many records at a time, but 5 at least.
PARTITIONS: Final = (1, 6, 50)
LEAST_RECORDS: Final = 5
#: The addBatch of aiokc may take at most this multiple of that of a variant of Spark's own source.
LATENCY_BARS: Final = {"kafka": 1 / 3, "kafka, 10 ms": 1.5}
