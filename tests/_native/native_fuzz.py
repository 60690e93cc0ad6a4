"""Mutated batches without an end, for the decoder in C and its twin: a run of its own, made for sanitizers.

python -m tests._native.native_fuzz [ROUNDS [SEED]]
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from aiokc._native import extension
from aiokc.records import COLUMNS, BatchHeader, NewRecord, _pure, _pure_columns
from aiokc.records.batch import HEADER, PREFIX_SIZE

from .run_twin import Call, assert_same_run
from .twins import Outcome, assert_same, batch, column_outcome

# The limits of a call of append: all that is left.
_END: Final = (1 << 63) - 1
_ALL: Final = (0, _END, 1_000, 1 << 40)

Mutation: TypeAlias = Callable[[random.Random, bytearray, int], None]

# Where numbers change their sign, grow by a byte, or never end.
_TELLING: Final = (0x00, 0x01, 0x02, 0x0D, 0x0E, 0x7E, 0x7F, 0x80, 0x81, 0xFE, 0xFF)


def _set(chance: random.Random, data: bytearray, at: int) -> None:
    data[at] = chance.choice(_TELLING) if chance.random() < 0.7 else chance.randrange(256)


def _flip(chance: random.Random, data: bytearray, at: int) -> None:
    data[at] ^= 1 << chance.randrange(8)


def _insert(chance: random.Random, data: bytearray, at: int) -> None:
    data[at:at] = bytes(chance.choices(_TELLING, k=chance.randint(1, 11)))


def _delete(chance: random.Random, data: bytearray, at: int) -> None:
    del data[at : at + chance.randint(1, 8)]


def _cut(_: random.Random, data: bytearray, at: int) -> None:
    del data[at:]


def _lengthen_a_number(_: random.Random, data: bytearray, at: int) -> None:
    """The same number in one more byte."""
    if data[at] < 0x80:
        data[at : at + 1] = bytes([data[at] | 0x80, 0])


MUTATIONS: Final[tuple[Mutation, ...]] = (_set, _set, _set, _flip, _insert, _delete, _cut, _lengthen_a_number)


def seeds() -> list[tuple[BatchHeader, bytes]]:
    """Batches with all that a record can have, small, so that a mutation hits what matters."""
    headers = (("h", b"1"), ("", None), ("ü\U0001f600", b""))
    batches = [
        [NewRecord(None)],
        [NewRecord(b"v", b"k", headers, 5)],
        [NewRecord(b"v" * i, b"k" if i % 2 else None, headers[: i % 4], 1_000 - i) for i in range(8)],
        [NewRecord(b"x" * 70, b"y" * 64, offset_delta=delta) for delta in (3, 900, 70_000)],
        [NewRecord(b"", b"", timestamp=stamp) for stamp in (0, (1 << 63) - 1, -1)],
        [NewRecord(b"v" * i, b"k" * (i % 40) if i % 3 else None) for i in range(0, 150, 3)],
        [NewRecord(b"large" * 60_000, b"k", headers)] * 5,
    ]
    return [batch(records, base_offset=50) for records in batches]


def changed_header(chance: random.Random, header: BatchHeader) -> BatchHeader:
    """Return a header as read_header accepts it, sometimes with wrong values."""
    if chance.random() < 0.7:
        return header
    count = max(0, header.record_count + chance.randint(-2, 2))
    return header._replace(
        record_count=count,
        last_offset_delta=max(0, count - 1, header.last_offset_delta + chance.choice((-3, -1, 0, 5))),
        attributes=chance.choice((0, 8)),
        base_timestamp=chance.choice((-1, 0, (1 << 63) - 1, -(1 << 63))),
    )


def run(rounds: int, seed: int) -> Counter[str]:
    """Compare both decoders on ``rounds`` mutated batches, and count the outcomes."""
    chance = random.Random(seed)
    batches = seeds()
    ends: Counter[str] = Counter()
    for number in range(rounds):
        header, payload = batches[-1] if number % 500 == 0 else chance.choice(batches[:-1])
        data = bytearray(payload)
        for _ in range(chance.choice((0, 1, 1, 2, 3, 6))):
            if data:
                chance.choice(MUTATIONS)(chance, data, chance.randrange(len(data)))
        calls = [
            (chance.choice((0, 1, 2, 100)), chance.choice((0, 0, 50, 53, 900))) for _ in range(chance.randrange(4))
        ]
        header = changed_header(chance, header)
        found = assert_same(extension, header, bytes(data), [*calls, (100, 0), (100, 0)])
        if number % 8 == 0:
            _compare_columns(chance, header, bytes(data))
        if number % 8 == 4:
            _compare_runs(chance, [(header, bytes(data)), chance.choice(batches[:-1])])
        ends[_end(found)] += 1
    return ends


def _compare_columns(chance: random.Random, header: BatchHeader, payload: bytes) -> None:
    """Do the same with columns, some of them, and some rows first."""
    names = chance.sample((*COLUMNS, "leader_epoch"), chance.randint(1, 9))
    calls = [(chance.choice((0, 0, 53)), chance.choice((_END, 56)), chance.choice((1, 3, 100)), 1 << 20), _ALL, _ALL]
    unit = chance.choice(("ms", "us"))
    in_c = column_outcome(extension, extension, header, payload, calls, names, unit)
    in_python = column_outcome(_pure, _pure_columns, header, payload, calls, names, unit)
    assert in_c == in_python, f"{header!r}, {payload!r}, {calls!r}, {names!r}, {unit!r}"


def _compare_runs(chance: random.Random, batches: Sequence[tuple[BatchHeader, bytes]]) -> None:
    """Do the same with a run of them; a header may be changed, too."""
    mutated = bytearray(side_by_side(batches, chance))
    if chance.random() < 0.5:
        chance.choice(MUTATIONS)(chance, mutated, chance.randrange(min(len(mutated), 200)))
    calls = [Call(rows=chance.choice((1, 3, 100)), until=chance.choice((_END, 56, 70_080)), check_crcs=False)]
    names = chance.sample((*COLUMNS, "leader_epoch"), chance.randint(1, 9))
    assert_same_run(bytes(mutated), chance.choice((0, 0, 53)), [*calls, *[Call(check_crcs=False)] * 3], names)


def side_by_side(batches: Sequence[tuple[BatchHeader, bytes]], chance: random.Random) -> bytes:
    """These batches as a log has them: most of them with the length that they have, each behind the one before."""
    data, offset = b"", batches[0][0].base_offset
    for header, payload in batches:
        if chance.random() < 0.9:
            header = header._replace(batch_length=HEADER.size - PREFIX_SIZE + len(payload), base_offset=offset)
        data += HEADER.pack(*header) + payload
        offset = header.next_offset
    return data


def _end(found: Outcome) -> str:
    if not any(isinstance(part, tuple) for part in found):
        return "read"
    return "read in part" if any(isinstance(part, list) and part for part in found) else "refused"


def main() -> None:
    rounds, seed = (*map(int, sys.argv[1:]), *(20_000, 1)[len(sys.argv) - 1 :])
    ends = run(rounds, seed)
    print(f"{rounds} batches, seed {seed}: {dict(ends)}")
    if set(ends) != {"read", "read in part", "refused"}:
        raise AssertionError("batches of one kind only: the mutations are of no use")


if __name__ == "__main__":
    main()
