"""Numbers go through processes that are killed, paused and replaced, on brokers that are, too: each comes out once."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any, Final

import pytest

from aiokc.testing.kafka import LocalKafka
from benchmarks.clients.franz_go import find_go
from tests.written.open_transactions import hanging_transactions
from tests.written.segments import dump, wrong_batches

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

_BUILD_SECONDS: Final = 900

#: A sample of the faults: of processes, and of brokers.
OF_COPIERS: Final = ("copier_is_killed", "copier_is_replaced", "copier_is_paused", "writer_is_killed")
SOME: Final = ("broker_is_killed", "leaders_move")


async def run(chain: Chain, rounds: list[list[str]], random: Random, *, pause: float) -> None:
    """Have these faults happen. Then every record has come through once, and no transaction is open."""
    try:
        await chain.start()
        for faults in rounds:
            await chain.suffer(faults, random, pause=pause)
        await chain.finish()
    finally:
        await chain.close()
        print(*chain.story, *(f"a copier ended by itself: {why}" for why in chain.ended), sep="\n")
    print(len(chain.ledger.inputs), "records")
    assert not chain.ledger.wrong()


@pytest.mark.timeout(600)
async def test_each_record_comes_through_once(three_nodes: LocalKafka, topic_name: str, tmp_path: Path) -> None:
    """Two chains at once, with both protocols of groups; what happens to brokers happens to both."""
    async with asyncio.TaskGroup() as running:
        for seed, (protocol, faults) in enumerate({"classic": OF_COPIERS, "consumer": [*OF_COPIERS, *SOME]}.items()):
            random = Random(seed)
            chain = Chain(three_nodes, f"{topic_name}-{protocol}", PROTOCOLS[protocol], random, tmp_path, longest=2.0)
            running.create_task(run(chain, [random.sample(faults, len(faults))], random, pause=0.5))


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
    """Besides, the files of every replica are as they must be, and Kafka's own tool finds no hanging transaction."""
    random = Random(seed)
    rounds = [random.sample(FAULTS, len(FAULTS)) for _ in range(4)]
    chain = Chain(own, topic_name, PROTOCOLS[protocol], random, tmp_path, longest=10.0)
    await run_for_long(chain, rounds, random)


async def run_for_long(chain: Chain, rounds: list[list[str]], random: Random) -> None:
    await run(chain, rounds, random, pause=2.0)
    kafka = chain.kafka
    replicas = await asyncio.to_thread(dump, kafka, *chain.topics)
    for (tp, _), batches in replicas.items():
        assert list(wrong_batches(batches)) == []
        assert batches == replicas[tp, kafka.nodes[0].id]
    for node in kafka.nodes:
        assert await asyncio.to_thread(hanging_transactions, kafka.bootstrap, node.id) == []


@pytest.fixture(scope="module")
def franz_go(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """The copier on franz-go, built. Its packages come through Go's module proxy, once."""
    go = find_go()
    if go is None and pytestconfig.getoption("--without-peers"):
        pytest.skip("without Go")
    assert go is not None, "no Go toolchain is here (https://go.dev/dl)"
    program: Path = tmp_path_factory.mktemp("franz_go") / "copier"
    source = Path(__file__).parent / "franz_go"
    subprocess.run([go, "build", "-o", program, "."], cwd=source, timeout=_BUILD_SECONDS, check=True)
    return program


@pytest.mark.long
@pytest.mark.timeout(_BUILD_SECONDS + 900)
@pytest.mark.parametrize("protocol", ["classic", "cooperative"])
async def test_franz_go_and_aiokc_copy_in_one_group(
    own: LocalKafka, franz_go: Path, topic_name: str, protocol: str, tmp_path: Path
) -> None:
    """Each aborts, commits and loses partitions beside the other, and the brokers know both by the same names."""
    random = Random(2)
    faults = [fault for fault in FAULTS if fault != "copier_is_replaced"]  # it names its error otherwise
    rounds = [random.sample(faults, len(faults)) for _ in range(2)]
    options = {"partition_assignment_strategy": ["range"], **PROTOCOLS[protocol]}
    chain = Chain(own, topic_name, options, random, tmp_path, longest=10.0, other_copier=franz_go)
    await run_for_long(chain, rounds, random)
    print(chain.ledger.commits_of_others, "transactions of franz-go")
    assert chain.ledger.commits_of_others
