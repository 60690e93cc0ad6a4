"""What every process of the chain has said and what the topics hold in the end, and what is wrong with it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

#: Partition, offset and value of a record.
Row: TypeAlias = tuple[int, int, str]


@dataclass
class Ledger:
    """``acked`` and ``failed``: what the writers were told of each of their values.

    ``readings`` has a list for each life of the reader. ``inputs`` and ``outputs`` are what the topics hold at the end
    for those that read committed records. ``commits_of_others`` counts the transactions of copiers on other clients.
    """

    acked: list[Row] = field(default_factory=list)
    failed: dict[str, tuple[str, str]] = field(default_factory=dict)
    readings: list[list[Row]] = field(default_factory=list)
    inputs: list[Row] = field(default_factory=list)
    outputs: list[Row] = field(default_factory=list)
    commits_of_others: int = 0

    def hear(self, said: dict[str, Any]) -> None:
        """Note what a process has said."""
        self.acked += [(partition, offset, value) for value, partition, offset in said.get("acked", ())]
        self.failed |= {value: (persisted, why) for value, persisted, why in said.get("failed", ())}
        self.commits_of_others += said.get("committed") is True  # ours say how many
        if "read" in said:
            self.readings[-1] += [(partition, offset, value) for partition, offset, value in said["read"]]

    def wrong(self) -> list[str]:
        """Return what an exactly-once chain does not do, a line each; nothing if all is well."""
        return [*self._wrong_input(), *self._wrong_output(), *self._wrong_readings()]

    def _wrong_input(self) -> Iterable[str]:
        yield from _twice("the input has", (value for _, _, value in self.inputs))
        there = set(self.inputs)
        yield from (f"acknowledged, and not there: {row}" for row in self.acked if row not in there)
        yield from _twice("acknowledged", (value for _, _, value in self.acked))
        values = {value for _, _, value in self.inputs}
        for value, (persisted, why) in self.failed.items():
            if persisted == "no" and value in values:
                yield f"failed with persisted='no', and there: {value}: {why}"
        yield from _unordered("the input", ((partition, *_number(value)) for partition, _, value in self.inputs))

    def _wrong_output(self) -> Iterable[str]:
        expected = Counter(f"{partition}:{offset}:{value}" for partition, offset, value in self.inputs)
        found = Counter(value for _, _, value in self.outputs)
        yield from (f"not copied: {value}" for value in expected - found)
        yield from (f"copied {found[value]} times: {value}" for value in found - expected)
        copied = [(partition, value.split(":")) for partition, _, value in self.outputs]
        yield from _unordered("the output", ((partition, source, int(at)) for partition, (source, at, _) in copied))

    def _wrong_readings(self) -> Iterable[str]:
        """Each life of the reader has seen the beginning of each partition, as it still is at the end."""
        held = _by_partition(self.outputs)
        for number, reading in enumerate(self.readings):
            for partition, rows in _by_partition(reading).items():
                expected = held[partition][: len(rows)]
                if rows != expected:
                    at = next(i for i, row in enumerate(rows) if i >= len(expected) or row != expected[i])
                    there = expected[at] if at < len(expected) else "nothing"
                    yield f"reading {number}: {rows[at]}, where read_committed has {there} in the end"


def _twice(what: str, values: Iterable[str]) -> Iterable[str]:
    yield from (f"{what} {count} times: {value}" for value, count in Counter(values).items() if count > 1)


def _unordered(what: str, numbered: Iterable[tuple[int, str, int]]) -> Iterable[str]:
    """In each partition, the numbers of each source ascend."""
    last: dict[tuple[int, str], int] = defaultdict(lambda: -1)
    for partition, source, number in numbered:
        if number < last[partition, source]:
            yield f"{what}, partition {partition}: {source}, {number} after {last[partition, source]}"
        last[partition, source] = number


def _number(value: str) -> tuple[str, int]:
    source, _, number = value.rpartition("-")
    return source, int(number)


def _by_partition(rows: Sequence[Row]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        found[row[0]].append(row)
    return found
