"""Workers copy from topic to topic, with rebalances, kills and aborts: each record arrives exactly once."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.testing import Cluster

from ..virtually import virtually
from .workers import PARTITIONS, TOPICS, Trouble

PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "eager": {"partition_assignment_strategy": ["range"]},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}


async def read(cluster: Cluster) -> dict[int, list[bytes | None]]:
    """All committed records of the output, by partition."""
    async with Consumer(
        bootstrap_servers=cluster.bootstrap, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as reader:
        partitions = [TopicPartition("out", number) for number in range(PARTITIONS)]
        reader.assign(partitions)
        ends = await reader.end_offsets(partitions)
        assert all(ends[tp] == cluster.end_offset(*tp) for tp in partitions), "no transaction is left open"
        found: dict[int, list[bytes | None]] = {tp.partition: [] for tp in partitions}
        for tp in partitions:
            while await reader.position(tp) < ends[tp]:
                for at, records in (await reader.getmany(timeout_ms=200)).items():
                    found[at.partition] += [record.value for record in records]
        return found


def happens(protocol: str, seed: int, level: int, rounds: int = 25) -> None:
    async def story(cluster: Cluster) -> None:
        async with asyncio.timeout(7_200):
            trouble = Trouble(cluster, PROTOCOLS[protocol], seed)
            await trouble.run(rounds)
            await asyncio.sleep(30.0)  # transactions of workers that were killed time out
            trouble.check(await read(cluster))

    virtually(story, topics=TOPICS, features={"transaction.version": level})


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", [0, 1])
def test_each_record_arrives_exactly_once(protocol: str, seed: int) -> None:
    happens(protocol, seed, level=2 if seed % 2 == 0 else 0)


@pytest.mark.long
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_many_seeds(protocol: str) -> None:
    for seed in range(100, 200):
        happens(protocol, seed, level=2 if seed % 2 == 0 else 0)
