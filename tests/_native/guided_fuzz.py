"""Coverage-guided fuzzing of the decoder in C: mutated batches that reach new code are mutated further.

python -m tests._native.guided_fuzz [--rounds N | --seconds N] [--seed N]

It needs an extension that counts what runs (``sanitized``, ``make fuzz``). Every input is read in C and by the twin in
Python, which must agree; and into columns, whose memory the sanitizers watch. With the same seed and number of rounds a
run repeats exactly.
"""

from __future__ import annotations

import argparse
import ctypes
import random
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any, Final, NamedTuple

from aiokc._native import extension
from aiokc.errors import RecordError
from aiokc.records import COLUMNS, NOT_BEGUN, BatchHeader, split_batches
from aiokc.records.decode import read_payload
from aiokc.wire import decode, read_response_header
from aiokc.wire.messages.fetch import FetchRequest, FetchResponse

from .native_fuzz import MUTATIONS, changed_header, seeds, side_by_side
from .run_twin import Call, taken_outcome
from .twins import assert_same

GOLDEN: Final = Path(__file__).parent.parent / "wire/golden.txt"
_LIMIT: Final = 1 << 20
_MOST_ROWS: Final = 200
# Small ones are quicker, and a mutation of them hits something.
_LARGEST: Final = 4_000


class Input(NamedTuple):
    """A batch, and how it is read."""

    header: BatchHeader
    payload: bytes
    calls: tuple[tuple[int, int], ...] = ((100, 0), (100, 0))


class Coverage:
    """Which parts of the extension ran: see coverage.c."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(extension.__file__)

    def is_new(self) -> bool:
        """Return whether anything ran since the last call that had never run before."""
        return bool(self._library.coverage_is_new())

    @property
    def edges(self) -> int:
        return int(self._library.coverage_edges())


def real_batches() -> Iterator[Input]:
    """Return what a real broker answered to Fetch."""
    for line in GOLDEN.read_text().splitlines():
        api, asked, answered, *frames = line.split()
        if api != "Fetch":
            continue
        frame = memoryview(bytes.fromhex(frames[1]))
        _, start = read_response_header(frame, FetchRequest, int(asked))
        response = decode(FetchResponse, frame[start:], int(answered))
        for topic in response.responses:
            for partition in topic.partitions:
                for header, view in split_batches(partition.records or memoryview(b"")):
                    yield Input(header, read_payload(header, view, _LIMIT))


def mutated(chance: random.Random, corpus: list[Input]) -> Input:
    """Return a mutation of one of them; younger ones are chosen more often."""
    at = max(chance.randrange(len(corpus)), chance.randrange(len(corpus)))
    header, payload, calls = corpus[at]
    data = bytearray(payload)
    if chance.random() < 0.1:  # the beginning of one, the end of another
        other = chance.choice(corpus).payload
        data[chance.randint(0, len(data)) :] = other[chance.randint(0, len(other)) :]
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        if data:
            chance.choice(MUTATIONS)(chance, data, chance.randrange(len(data)))
    if chance.random() < 0.3:
        calls = (*((chance.choice((0, 1, 2, 100)), chance.choice((0, 50, 53, 900))) for _ in range(2)), *calls[-2:])
    return Input(changed_header(chance, header), bytes(data), calls)


def execute(given: Input, chance: random.Random) -> None:
    assert_same(extension, *given)
    into_columns(given, chance)


def into_columns(given: Input, chance: random.Random) -> None:
    """Fill columns from it, in steps, and drop them."""
    wanted = chance.sample(COLUMNS, chance.randint(1, len(COLUMNS)))
    builder = extension.ColumnBuilder(wanted, chance.choice(("ms", "us")), chance.choice((1 << 10, 0x7FFF_FFFF)))
    try:
        reader = extension.RecordReader(given.header, given.payload, topic="events", partition=3)
        for rows, start in given.calls:
            if builder.append(reader, start, chance.choice((60, 1 << 60)), rows, chance.choice((1, 100, 1 << 20))):
                assert builder.rows <= _MOST_ROWS * len(given.calls)
            if builder.is_full or chance.random() < 0.3:
                builder.finish().__arrow_c_array__()
    except RecordError:
        pass  # the twins are compared above; this tests memory from earlier batches
    batch = builder.finish()
    assert len(batch) <= _MOST_ROWS * len(given.calls)
    batch.__arrow_c_array__()
    batch.__arrow_c_stream__()
    _run_into_columns(given, builder, chance)


def _run_into_columns(given: Input, builder: extension.ColumnBuilder, chance: random.Random) -> None:
    """Do the same with a run: the batch twice, and changed where the headers are."""
    run = bytearray(side_by_side([given[:2]] * 2, chance))
    if chance.random() < 0.3:
        chance.choice(MUTATIONS)(chance, run, chance.randrange(61))
    view, at, start = memoryview(bytes(run)), 0, chance.choice((0, 53))
    extension.measure_run(view, start, chance.random() < 0.5, 1 << 20)
    for rows, _ in (*given.calls, (1_000, 0)):
        size, checks = chance.choice((1, 100, 1 << 20)), chance.random() < 0.1
        _, at, start, _ = builder.append_run(view, at, "t", 3, start, chance.choice((60, 1 << 60)), rows, size, checks)
        if chance.random() < 0.3:
            builder.finish().__arrow_c_array__()
    _records_of_run(view, given, chance)


def _records_of_run(view: memoryview, given: Input, chance: random.Random) -> None:
    if chance.random() < 0.2:
        calls = [Call(rows=rows, check_crcs=False) for rows, _ in (*given.calls, (1_000, 0))]
        start = chance.choice((0, 53))
        assert taken_outcome(True, bytes(view), start, calls) == taken_outcome(False, bytes(view), start, calls), given
    at, start, inside = 0, chance.choice((0, 53)), NOT_BEGUN
    for most, _ in (*given.calls, (1_000, 0)):
        if chance.random() < 0.05:  # no place that a call has returned
            inside = chance.randrange(200), chance.randrange(200) - 1, chance.randrange(10)
        records, at, inside, start, _ = extension.take_run(view, at, inside, "t", 3, start, most, chance.random() < 0.1)
        assert len(records) <= most
        _read_twice(records, chance)


def _read_twice(records: Any, chance: random.Random) -> None:
    """Read records that are made when they are read, and keep some; they must be the same when they are read again."""
    kept: list[tuple[object, str]] = []
    count = 0
    for record in records:
        count += 1
        kept.append((record, repr(record)) if chance.random() < 0.3 else (None, repr(record)))
        if chance.random() < 0.05:
            records.detach()
    assert count == len(records)
    assert all(record is None or repr(record) == was for record, was in kept)
    assert [repr(record) for record in records] == [was for _, was in kept]
    if count:
        assert [repr(records.first()), repr(records.last())] == [kept[0][1], kept[-1][1]]


def run(rounds: int | None, seconds: float | None, seed: int) -> str:
    """Look for this long, and return what was found."""
    chance = random.Random(seed)
    coverage = Coverage()
    corpus: list[Input] = []
    # A seed that runs nothing new is no seed.
    for given in [*(Input(*both) for both in seeds()), *real_batches()]:
        execute(given, chance)
        if coverage.is_new() and len(given.payload) <= _LARGEST:
            corpus.append(given)
    planted, at_first = len(corpus), coverage.edges
    assert planted > 3, "nothing to begin with"
    until = None if seconds is None else time.monotonic() + seconds
    done = 0
    for done in count():
        if done == rounds or (until is not None and time.monotonic() > until):
            break
        given = mutated(chance, corpus)
        execute(given, chance)
        if coverage.is_new() and len(given.payload) <= _LARGEST:
            corpus.append(given)
    assert len(corpus) > planted, "nothing new: the mutations, or the counting, are of no use"
    return (
        f"{done} inputs, seed {seed}: {coverage.edges} edges, {at_first} of them by {planted} seeds; "
        f"{len(corpus) - planted} inputs found new ones"
    )


def arguments(description: str | None) -> argparse.Namespace:
    """Return how long to look: ``rounds`` or ``seconds``, and the ``seed``."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    if given.rounds is None and given.seconds is None:
        given.rounds = 10_000
    return given


def main() -> None:
    given = arguments(__doc__)
    print(run(given.rounds, given.seconds, given.seed))


if __name__ == "__main__":
    main()
