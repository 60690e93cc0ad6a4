"""Ten thousand keys go to the partitions that Java's producer and librdkafka's choose for them."""

from __future__ import annotations

from asyncio import to_thread
from pathlib import Path
from random import Random

import pytest

from aiokc.core.partitioning.key_partitions import KeyPartition, consistent_random, murmur2_random
from aiokc.records.encoding.murmur2 import murmur2
from aiokc.testing import Cluster
from tests.producing import Message, produce
from tests.suite.peers.java_programs import answers_of

KEYS = 10_000


def keys(random: Random) -> list[bytes]:
    """Keys of all lengths around a word's, of any bytes, and some as applications have them."""
    short = [random.randbytes(random.randint(0, 70)) for _ in range(KEYS // 2)]
    return short + [f"customer-{random.randint(0, 10**9)}".encode() for _ in range(KEYS - len(short))]


@pytest.mark.kafka
def test_java_chooses_the_same() -> None:
    random = Random(21)
    cases = [(key, random.choice([1, 6, 7, 64, 1_000, 100_003])) for key in keys(random)]
    oracle = Path(__file__).with_name("JavaKeyPartitions.java")
    given = "\n".join(f"{key.hex()} {count}" for key, count in cases)
    answers = [tuple(map(int, line.split())) for line in answers_of(oracle, given)]
    assert answers == [((murmur2(key) ^ 1 << 31) - (1 << 31), murmur2_random(key, count)) for key, count in cases]


@pytest.mark.parametrize(
    ("name", "choose"), [("murmur2_random", murmur2_random), ("consistent_random", consistent_random)]
)
async def test_librdkafka_chooses_the_same(name: str, choose: KeyPartition) -> None:
    some = [key for key in keys(Random(22)) if key]
    async with Cluster(topics={"keyed": 64}) as cluster:
        messages = [Message(b"v", key) for key in some]
        places = await to_thread(produce, cluster.bootstrap, "keyed", messages, partitioner=name)
    assert [place.partition for place in places] == [choose(key, 64) for key in some]
