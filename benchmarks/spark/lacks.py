"""Checks whether a run in Spark may be published: no rows are missing, and each rests on enough rounds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from ..cases import Case
from .cases import LEAST_RECORDS, PARTITIONS, READS, SLOTS, SOURCES, VARIANTS
from .measure import IDLE, Found

LEAST_ROUNDS: Final = 5
LEAST_TRIGGERS: Final = 3
LEAST_TRIGGER_ROUNDS: Final = 2


#: What a measurement is of, its task slots, and its source or variant.
Row: TypeAlias = tuple[str, int, str]


def lacks(found: Sequence[Found], topics: Mapping[str, Case]) -> Iterator[str]:
    """Yield a line for each missing row, and for each figure that is impossible."""
    rounds: dict[Row, set[int]] = defaultdict(set)  # a round that is there twice counts once
    for each in found:
        rounds[each.what, each.slots, each.who].add(each.round)
    for row, least in _least_rounds().items():
        if len(rounds[row]) < least:
            what, slots, who = row
            yield f"{what}, {slots} slots, {who}: {len(rounds[row])} rounds and not {least}"
    read_rows = {read.name: topics[read.topic].records for read in READS}
    batch_rows = {_micro_batches(partitions): max(partitions, LEAST_RECORDS) for partitions in PARTITIONS}
    for each in found:
        named = f"{each.what}, {each.slots} slots, {each.who}, round {each.round}"
        if each.rows != read_rows.get(each.what, each.rows):
            yield f"{named}: {each.rows} rows and not {read_rows[each.what]}"
        if each.what in batch_rows and each.rows < LEAST_TRIGGERS * batch_rows[each.what]:
            yield f"{named}: {each.rows // batch_rows[each.what]} micro-batches and not {LEAST_TRIGGERS}"
        if each.cpu < 0 or (each.what != "idle" and each.cpu == 0):
            yield f"{named}: {each.cpu:g} s of CPU"


def _least_rounds() -> dict[Row, int]:
    """Return all rows of a whole run, with the least number of rounds of each."""
    reads = {(read.name, slots, who): LEAST_ROUNDS for read in READS for slots in SLOTS for who in SOURCES}
    batches = {(_micro_batches(n), max(SLOTS), who): LEAST_TRIGGER_ROUNDS for n in PARTITIONS for who in VARIANTS}
    return reads | batches | {("idle", max(SLOTS), who): LEAST_ROUNDS for who in IDLE}


def _micro_batches(partitions: int) -> str:
    return f"{partitions} partitions"
