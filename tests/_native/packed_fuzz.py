"""Coverage-guided fuzzing of what unpacks compressed batches: mutated payloads that reach new code are mutated further.

python -m tests._native.packed_fuzz [--rounds N | --seconds N] [--seed N]

As guided_fuzz, with payloads of each codec. Whatever C unpacks, by a library or with the packages in Python, must be
what records/compression.py makes of it; the sanitizers watch the memory. To look for a library takes longer than to
unpack a payload: so many payloads are unpacked without libraries, and then the same ones with them.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from typing import Final, NamedTuple

import cramjam

from aiokc.records import Codec, NewRecord, encode_batch
from aiokc.records.batch import HEADER, PREFIX_SIZE
from aiokc.records.compression import compress

from .guided_fuzz import Coverage, arguments
from .native_fuzz import MUTATIONS
from .twins import batch
from .unpack_twin import LIBRARIES, assert_is_right, unpacked, use_libraries, xerial

_LIMIT: Final = 200_000  # more than a block of zstd, which is all that its header tells
_LARGEST: Final = 2_000
_TOGETHER: Final = 100
# Numbers that headers have, and that do not come by changing a byte.
_SIZES: Final = (0, 1, 0x7FFF_FFFF, 0x8000_0000, 0x8000_0001, 0xFFFF_FFFF, 1 << 16, 1 << 22)


class Input(NamedTuple):
    """A compressed payload, how much a batch may hold, how much is unpacked at once, and how many batches there are.

    A batch alone ends where the memory ends, so that the sanitizer sees a read behind it. What reads behind the first
    of two reads the second.
    """

    codec: Codec
    payload: bytes
    limit: int = _LIMIT
    at_once: int = 1 << 20
    batches: int = 2


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


def _below(chance: random.Random, end: int) -> int:
    """Return a number below ``end``. It takes a third of the time of randrange, and there are ten for each payload."""
    return int(chance.random() * end)


def mutated(chance: random.Random, corpus: list[Input]) -> Input:
    """Return a mutation of one of them; younger ones are chosen more often."""
    codec, payload, limit, *_ = corpus[max(_below(chance, len(corpus)), _below(chance, len(corpus)))]
    data = bytearray(payload)
    if chance.random() < 0.1:  # the beginning of one, the end of another
        other = corpus[_below(chance, len(corpus))].payload
        data[_below(chance, len(data) + 1) :] = other[_below(chance, len(other) + 1) :]
    for _ in range((0, 1, 1, 1, 2, 4)[_below(chance, 6)]):
        if not data:
            break
        where = _below(chance, min(len(data), 24) if chance.random() < 0.5 else len(data))
        if chance.random() < 0.1:
            size = _SIZES[_below(chance, len(_SIZES))]
            data[where : where + 4] = size.to_bytes(4, "little" if chance.random() < 0.5 else "big")
        else:
            MUTATIONS[_below(chance, len(MUTATIONS))](chance, data, where)
    limit = (limit, _LIMIT, _below(chance, _LIMIT))[_below(chance, 3)]
    return Input(codec, bytes(data), limit, (0, 1 << 20)[chance.random() < 0.5], 1 + (chance.random() < 0.3))


_PLAIN: Final = encode_batch([NewRecord(b"v")])


def packed_batches(given: Input) -> bytes:
    """Return one batch of it, or more side by side."""
    header = bytearray(_PLAIN[: HEADER.size])
    header[8:12] = (HEADER.size - PREFIX_SIZE + len(given.payload)).to_bytes(4, "big")
    header[22] = given.codec
    return (bytes(header) + given.payload) * given.batches


def execute(inputs: list[Input], coverage: Coverage) -> tuple[list[Input], list[int]]:
    """Unpack all of them, without and with libraries. Return those that ran new code, and how much was unpacked."""
    new: dict[int, Input] = {}
    all_packed, all_found = [packed_batches(given) for given in inputs], [(-1, b"")] * len(inputs)
    for use in (False, True):
        use_libraries(use)
        for at, (given, packed) in enumerate(zip(inputs, all_packed, strict=True)):
            found = unpacked(packed, given.limit, given.at_once, check_crcs=False)
            if found != all_found[at]:
                assert_is_right(found, packed, given.limit, check_crcs=False)
                all_found[at] = found
            if coverage.is_new():
                new[at] = given
    return [new[at] for at in sorted(new)], [taken for taken, _ in all_found]


def run(rounds: int | None, seconds: float | None, seed: int) -> str:
    """Look for this long, and return what was found."""
    chance = random.Random(seed)
    coverage = Coverage()
    corpus, taken = execute(seeds(), coverage)
    assert all(taken), "a seed that is not unpacked"
    planted, at_first = len(corpus), coverage.edges
    until = None if seconds is None else time.monotonic() + seconds
    ends: Counter[tuple[Codec, bool]] = Counter()
    done = 0
    while (rounds is None or done < rounds) and (until is None or time.monotonic() < until):
        count = _TOGETHER if rounds is None else min(_TOGETHER, rounds - done)
        inputs = [mutated(chance, corpus) for _ in range(count)]
        new, taken = execute(inputs, coverage)
        corpus += [given for given in new if len(given.payload) <= _LARGEST]
        ends.update((given.codec, size > 0) for given, size in zip(inputs, taken, strict=True))
        done += count
    assert len(corpus) > planted, "nothing new: the mutations, or the counting, are of no use"
    found = {f"{codec.name.lower()} {'unpacked' if ok else 'refused'}": ends[codec, ok] for codec, ok in sorted(ends)}
    return (
        f"{done} payloads, seed {seed}, libraries {sorted(LIBRARIES.values())}: {coverage.edges} edges, {at_first} of "
        f"them by {planted} seeds; {len(corpus) - planted} payloads found new ones; {found}"
    )


def main() -> None:
    given = arguments(__doc__)
    print(run(given.rounds, given.seconds, given.seed))


if __name__ == "__main__":
    main()
