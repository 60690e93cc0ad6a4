"""Which partition a key goes to: the vectors of Java's own tests, and what must hold for every key."""

from __future__ import annotations

from zlib import crc32

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiokc.config import ProducerConfig
from aiokc.core.partitioning.key_partitions import (
    consistent_random,
    key_partition,
    murmur2_random,
    no_key,
)
from aiokc.records.encoding.murmur2 import murmur2, murmur2_in_python

VECTORS = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
    (b"", 275646681),
]


@pytest.mark.parametrize(("key", "signed"), VECTORS)
def test_murmur2_is_java_s(key: bytes, signed: int) -> None:
    assert murmur2(key) == murmur2_in_python(key) == signed & 0xFFFF_FFFF


def test_the_sign_is_cleared_and_not_turned() -> None:
    assert murmur2_random(b"21", 6) == 0
    assert abs(-973932308) % 6 == 2
    assert -973932308 % 6 == 4


@given(st.binary(max_size=70))
def test_the_same_in_c_and_in_python(key: bytes) -> None:
    assert murmur2(key) == murmur2_in_python(key)
    assert 0 <= murmur2(key) < 1 << 32


@given(st.binary(max_size=20), st.integers(1, 100_000))
def test_a_key_has_one_of_the_partitions(key: bytes, count: int) -> None:
    for choose in (murmur2_random, consistent_random):
        partition = choose(key, count)
        assert partition == choose(key, count)
        assert partition is None or 0 <= partition < count
    assert murmur2_random(key, count) is not None


def test_what_is_no_key() -> None:
    assert murmur2_random(None, 6) is None
    assert murmur2_random(b"", 6) == (275646681 & 0x7FFF_FFFF) % 6
    assert consistent_random(None, 6) is None
    assert consistent_random(b"", 6) is None
    assert consistent_random(b"key", 1 << 31) == crc32(b"key") % (1 << 31)


def test_the_option_chooses() -> None:
    assert key_partition(ProducerConfig()) is murmur2_random
    assert key_partition(ProducerConfig(partitioner="consistent_random")) is consistent_random
    assert key_partition(ProducerConfig(partitioner_ignore_keys=True)) is no_key
    assert key_partition(ProducerConfig(partitioner=lambda *_: None)) is no_key
    assert no_key(b"key", 6) is None
