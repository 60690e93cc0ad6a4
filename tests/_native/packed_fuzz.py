"""Coverage-guided fuzzing of what unpacks compressed batches: mutated payloads that reach new code are mutated further.

python -m tests._native.packed_fuzz [--rounds N | --seconds N] [--seed N]

As guided_fuzz, with payloads of each codec. Whatever C unpacks, by a library or with the packages in Python, must be
what records/compression.py makes of it; the sanitizers watch the memory.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from itertools import count
from typing import Final, NamedTuple

import cramjam

from aiokc.records import Codec, NewRecord, encode_batch
from aiokc.records.batch import HEADER, PREFIX_SIZE
from aiokc.records.compression import compress

from .guided_fuzz import Coverage, arguments
from .native_fuzz import MUTATIONS
from .twins import batch
from .unpack_twin import LIBRARIES, assert_same_unpacked, xerial

_LIMIT: Final = 200_000  # more than a block of zstd, which is all that its header tells
_LARGEST: Final = 2_000
# Numbers that headers have, and that do not come by changing a byte.
_SIZES: Final = (0, 1, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFF, 1 << 16, 1 << 22)


class Input(NamedTuple):
    """A compressed payload, and how much a batch may hold."""

    codec: Codec
    payload: bytes
    limit: int = _LIMIT


def seeds() -> list[Input]:
    """Small payloads of each writer's kind, with literals, matches, blocks that are stored, and checksums."""
    noise = random.Random(1).randbytes(300)
    found = []
    for records in ([b"v"], [b"aiokc " * 40] * 3, [noise], [noise[:50] + bytes(200) + noise[50:90]] * 2, [b"ab" * 900]):
        _, payload = batch(NewRecord(value) for value in records)
        found += [Input(codec, compress(codec, payload)) for codec in Codec if codec != Codec.NONE]
        found.append(Input(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(payload))))
        found.append(Input(Codec.SNAPPY, xerial(payload, 100)))
        found.append(Input(Codec.ZSTD, bytes(cramjam.zstd.compress(payload))))
        checked = cramjam.lz4.Compressor(content_checksum=True, block_linked=False)
        checked.compress(payload)
        found.append(Input(Codec.LZ4, bytes(checked.finish())))
    return found


def mutated(chance: random.Random, corpus: list[Input]) -> Input:
    """Return a mutation of one of them; younger ones are chosen more often."""
    at = max(chance.randrange(len(corpus)), chance.randrange(len(corpus)))
    codec, payload, limit = corpus[at]
    data = bytearray(payload)
    if chance.random() < 0.1:  # the beginning of one, the end of another
        other = chance.choice(corpus).payload
        data[chance.randint(0, len(data)) :] = other[chance.randint(0, len(other)) :]
    for _ in range(chance.choice((0, 1, 1, 1, 2, 4))):
        if not data:
            break
        where = chance.randrange(min(len(data), 24)) if chance.random() < 0.5 else chance.randrange(len(data))
        if chance.random() < 0.1:
            data[where : where + 4] = chance.choice(_SIZES).to_bytes(4, chance.choice(("little", "big")))
        else:
            chance.choice(MUTATIONS)(chance, data, where)
    return Input(codec, bytes(data), chance.choice((limit, _LIMIT, chance.randrange(_LIMIT))))


_PLAIN: Final = encode_batch([NewRecord(b"v")])


def execute(given: Input, chance: random.Random) -> int:
    """Unpack a batch of it, twice side by side, and return how much of it was unpacked."""
    header = bytearray(_PLAIN[: HEADER.size])
    header[8:12] = (HEADER.size - PREFIX_SIZE + len(given.payload)).to_bytes(4, "big")
    header[22] = given.codec
    packed = bytes(header) + given.payload
    return assert_same_unpacked(packed * 2, given.limit, chance.choice((0, 1 << 20)), check_crcs=False)


def run(rounds: int | None, seconds: float | None, seed: int) -> str:
    """Look for this long, and return what was found."""
    chance = random.Random(seed)
    coverage = Coverage()
    corpus: list[Input] = []
    for given in seeds():
        assert execute(given, chance), f"a seed that is not unpacked: {given!r}"
        if coverage.is_new():
            corpus.append(given)
    planted, at_first = len(corpus), coverage.edges
    until = None if seconds is None else time.monotonic() + seconds
    ends: Counter[str] = Counter()
    done = 0
    for done in count():
        if done == rounds or (until is not None and time.monotonic() > until):
            break
        given = mutated(chance, corpus)
        ends[f"{given.codec.name.lower()} {'unpacked' if execute(given, chance) else 'refused'}"] += 1
        if coverage.is_new() and len(given.payload) <= _LARGEST:
            corpus.append(given)
    assert len(corpus) > planted, "nothing new: the mutations, or the counting, are of no use"
    return (
        f"{done} payloads, seed {seed}, libraries {sorted(LIBRARIES.values())}: {coverage.edges} edges, {at_first} of "
        f"them by {planted} seeds; {len(corpus) - planted} payloads found new ones; {dict(ends)}"
    )


def main() -> None:
    given = arguments(__doc__)
    print(run(given.rounds, given.seconds, given.seed))


if __name__ == "__main__":
    main()
