"""Numbers go through processes that are killed, paused and replaced, on brokers that are, too: each comes out once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from aiokc.testing.kafka import LocalKafka

from .chain import FAULTS, Chain

PROTOCOLS: Final[dict[str, dict[str, Any]]] = {
    "classic": {"session_timeout_ms": 6_000, "heartbeat_interval_ms": 500},
    "cooperative": {
        "session_timeout_ms": 6_000,
        "heartbeat_interval_ms": 500,
        "partition_assignment_strategy": ["cooperative-sticky"],
    },
    "consumer": {"group_protocol": "consumer"},
}


async def run(chain: Chain, rounds: list[list[str]], random: Random, *, pause: float) -> None:
    try:
        await chain.start()
        for faults in rounds:
            await chain.suffer(faults, random, pause=pause)
        await chain.finish()
    finally:
        await chain.close()
        print(*chain.story, *(f"by itself {why}" for why in chain.ended), sep="\n")
    print(len(chain.ledger.inputs), "records")
    assert not chain.ledger.wrong()


@pytest.mark.timeout(180)
@pytest.mark.parametrize("protocol", PROTOCOLS)
async def test_each_record_comes_through_once(
    three_nodes: LocalKafka, topic_name: str, protocol: str, tmp_path: Path
) -> None:
    random = Random(21)
    await run(Chain(three_nodes, topic_name, PROTOCOLS[protocol], random, tmp_path), [[*FAULTS]], random, pause=0.5)


@pytest.fixture(scope="module", params=[0, 2], ids=["v0", "v2"])
def own(request: pytest.FixtureRequest) -> Iterator[LocalKafka]:
    """Three brokers at a level of transaction.version, which soon end what takes too long."""
    quick = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}
    version = ("--feature", f"transaction.version={request.param}")
    with LocalKafka(nodes=3, config=quick, format_args=version) as kafka:
        yield kafka


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("seed", [1])
async def test_each_record_comes_through_once_for_long(
    own: LocalKafka, topic_name: str, protocol: str, seed: int, tmp_path: Path
) -> None:
    random = Random(seed)
    rounds = [random.sample(FAULTS, len(FAULTS)) for _ in range(4)]
    await run(Chain(own, topic_name, PROTOCOLS[protocol], random, tmp_path), rounds, random, pause=2.0)
