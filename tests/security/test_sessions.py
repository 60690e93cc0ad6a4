"""Sessions that end (KIP-368): a member reads on over many of them, with one login after the other, and no reconnect.

On the listener SHORT a session lasts 4 s. The broker closes the connection of a client that has not authenticated again
by then, at the client's next request.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import signal
import sys
from typing import Any

import pytest

from aiokc import Consumer, Producer, RebalanceListener, TopicPartition
from aiokc.testing.kafka import Acl, SecureKafka
from tests.producing import produce

from .actors.counting_proxy import CountingProxy
from .actors.held import Held
from .ways import Way

pytestmark = pytest.mark.every_kafka

# Requests wait for the renewal from 0.2 s before the end of such a session on. One that the machine holds up for longer
# on its way to the broker comes too late, and the broker closes the connection: that is no mistake of the client's.
ON_THE_WAY = 0.1

MECHANISMS = [Way("SHORT", mechanism) for mechanism in ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")]


class Rebalances(RebalanceListener):
    """Counts the assignments, and the revocations."""

    def __init__(self) -> None:
        self.assigned = 0
        self.revoked = 0
        self.settled = asyncio.Event()

    async def on_partitions_assigned(self, partitions: frozenset[TopicPartition]) -> None:
        self.assigned += 1
        self.settled.set()

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.revoked += bool(partitions)


@pytest.fixture(autouse=True)
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "aiokc.net")
    caplog.set_level(logging.DEBUG, "aiokc.produce")  # why a batch is sent again
    return caplog


def too_late(said: pytest.LogCaptureFixture) -> int:
    """Return how many connections of all clients of the test a broker has closed at the end of their session."""
    return sum("at the end of its SASL session" in record.getMessage() for record in said.records)


def failed(client: Consumer[Any, Any] | Producer[Any, Any]) -> int:
    """Return how many requests of a client have failed so far."""
    if isinstance(client, Consumer):
        return client.metrics().failed_fetches + client.metrics().failed_heartbeats
    return client.metrics().failed_requests + client.metrics().retries


async def read_over(kafka: SecureKafka, topic: str, way: Way, sessions: int, said: pytest.LogCaptureFixture) -> None:
    """Read, as a member of a group, a record about every 0.1 s, and none for whole sessions in between.

    Each record comes exactly once and in order, without a rebalance, and over the connections that existed after the
    first records, but for those that a busy machine was too late with.
    """
    loop = asyncio.get_running_loop()
    rebalances = Rebalances()
    with CountingProxy(kafka.bootstrap_of(way.listener)) as proxy, Held(kafka.bootstrap) as held:
        options = {**way.options(kafka), "resolve": proxy.resolve}
        async with Consumer(
            group_id=topic, auto_offset_reset="earliest", auto_commit_interval_ms=300, **options
        ) as consumer:
            consumer.subscribe([topic], listener=rebalances)
            numbers = itertools.count()
            seen: list[int] = []

            async def exchange() -> None:
                sent = next(numbers)
                await asyncio.to_thread(produce, kafka.bootstrap, topic, [b"%d" % sent])
                async with asyncio.timeout(30):
                    while sent not in seen:
                        for records in (await consumer.getmany()).values():
                            seen.extend(int(record.value or b"") for record in records)

            await exchange()
            await consumer.commit()
            await exchange()
            opened, before = proxy.opened, failed(consumer)  # a topic that is new may not be there at once
            end = loop.time() + sessions * kafka.session_seconds
            for turn in itertools.count():
                await exchange()
                if loop.time() > end:
                    break
                # Every fourth pause is longer than a session: a Fetch is parked, heartbeats go on.
                await asyncio.sleep(kafka.session_seconds * 1.2 if turn % 4 == 3 else 0.1)
            assert seen == list(range(next(numbers)))
            assert (rebalances.assigned, rebalances.revoked) == (1, 0)
            assert proxy.opened - opened <= too_late(said)
            if held.longest < ON_THE_WAY:
                assert (proxy.opened, failed(consumer)) == (opened, before)


async def write_over(
    kafka: SecureKafka,
    topic: str,
    way: Way,
    sessions: int,
    transactional_id: str | None,
    said: pytest.LogCaptureFixture,
) -> None:
    """Write without a pause, then nothing for a whole session: all is stored once, over the same connections."""
    kafka.create_topic(topic)
    if transactional_id is not None:
        await asyncio.to_thread(kafka.add_acls, Acl("alice", "WRITE", "TRANSACTIONAL_ID", transactional_id))
    loop = asyncio.get_running_loop()
    with CountingProxy(kafka.bootstrap_of(way.listener)) as proxy, Held(kafka.bootstrap) as held:
        options = {**way.options(kafka), "resolve": proxy.resolve, "transactional_id": transactional_id}
        numbers = itertools.count()
        async with Producer(**options) as producer:

            async def write(seconds: float) -> None:
                end = loop.time() + seconds
                while loop.time() < end:
                    if transactional_id is not None:
                        await producer.begin_transaction()
                    sent = [await producer.send(topic, b"%d" % next(numbers)) for _ in range(20)]
                    await asyncio.sleep(0.02)
                    if transactional_id is not None:
                        await producer.commit_transaction()
                    await asyncio.gather(*sent)

            await write(0.5)
            opened, before = proxy.opened, failed(producer)
            await write(sessions * kafka.session_seconds)
            await asyncio.sleep(1.2 * kafka.session_seconds)
            await write(0.5)
            assert proxy.opened - opened <= too_late(said)
            if held.longest < ON_THE_WAY:
                again = [text for text in said.messages if " after PartitionAnswer" in text]
                assert (proxy.opened, failed(producer)) == (opened, before), again
    wanted = [b"%d" % number for number in range(next(numbers))]
    plain: dict[str, Any] = {"bootstrap_servers": kafka.bootstrap, "isolation_level": "read_committed"}
    async with Consumer(topic, auto_offset_reset="earliest", **plain) as reader, asyncio.timeout(30):
        found: list[bytes | None] = []
        while len(found) < len(wanted):
            found += [record.value for records in (await reader.getmany()).values() for record in records]
    assert found == wanted


@pytest.mark.long
@pytest.mark.any_loop
@pytest.mark.every_kafka
@pytest.mark.timeout(900)
async def test_members_read_over_a_hundred_sessions(
    secure_kafka: SecureKafka, topic_name: str, said: pytest.LogCaptureFixture
) -> None:
    """One member for each mechanism, at the same time."""
    async with asyncio.TaskGroup() as group:
        for way in MECHANISMS:
            topic = f"{topic_name}-{way}"
            secure_kafka.create_topic(topic)
            group.create_task(read_over(secure_kafka, topic, way, 100, said))


class Slow(Rebalances):
    """Revokes its partitions only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.may_go_on = asyncio.Event(), asyncio.Event()

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        self.asked.set()
        await self.may_go_on.wait()


async def join_late(secure_kafka: SecureKafka, topic_name: str, said: pytest.LogCaptureFixture) -> None:
    """The second member waits in JoinGroup until the first revokes, for two sessions; its connections stay."""
    secure_kafka.create_topic(topic_name, 2)
    way = Way("SHORT", "PLAIN")
    slow, second = Slow(), Rebalances()
    with CountingProxy(secure_kafka.bootstrap_of("SHORT")) as proxy, Held(secure_kafka.bootstrap) as held:
        options = {"group_id": topic_name, "partition_assignment_strategy": ["range"], **way.options(secure_kafka)}
        async with (
            Consumer(**options) as first,
            Consumer(**options, resolve=proxy.resolve) as other,
        ):
            first.subscribe([topic_name], listener=slow)
            assert len(await first.wait_assigned(timeout_ms=20_000)) == 2
            other.subscribe([topic_name], listener=second)
            polling = [asyncio.ensure_future(_poll(member)) for member in (first, other)]
            try:
                async with asyncio.timeout(20):
                    await slow.asked.wait()
                opened, late = proxy.opened, too_late(said)
                await asyncio.sleep(2.2 * secure_kafka.session_seconds)
                assert other.assignment() == frozenset()
                slow.may_go_on.set()
                async with asyncio.timeout(20):
                    await second.settled.wait()
                assert (len(other.assignment()), second.assigned) == (1, 1)
                # A Fetch comes with the first assignment: that connection may be new.
                assert proxy.opened <= opened + 1 + too_late(said) - late
                if held.longest < ON_THE_WAY:
                    assert proxy.opened <= opened + 1
                assert other.metrics().failed_joins == 0
            finally:
                for task in polling:
                    task.cancel()
                await asyncio.wait(polling)


async def _poll(member: Consumer[Any, Any]) -> None:
    while True:
        await member.getmany(timeout_ms=200)


READER = """
import asyncio, json, sys
from aiokc import Consumer

async def main() -> None:
    options = json.loads(sys.argv[1])
    async with Consumer(options.pop("topic"), auto_offset_reset="earliest", **options) as consumer:
        async for record in consumer:
            print(record.offset, consumer.metrics().rebalances.count, flush=True)

asyncio.run(main())
"""


async def suspend(secure_kafka: SecureKafka, topic_name: str, times: int) -> None:
    """A process that is suspended over the end of its session continues at its position, and stays a member."""
    secure_kafka.create_topic(topic_name)
    options = {"topic": topic_name, "group_id": topic_name, **Way("SHORT", "SCRAM-SHA-256").options(secure_kafka)}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", READER, json.dumps(options), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        async with asyncio.timeout(30 + 10 * times):
            for offset in range(times + 1):
                await asyncio.to_thread(produce, secure_kafka.bootstrap, topic_name, [b""])
                assert (await process.stdout.readline()).split() == [b"%d" % offset, b"1"]
                if offset == times:
                    return
                process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(1.5 * secure_kafka.session_seconds)
                process.send_signal(signal.SIGCONT)
    finally:
        process.kill()
        await process.communicate()


@pytest.mark.timeout(90)
async def test_some_sessions(secure_kafka: SecureKafka, topic_name: str, said: pytest.LogCaptureFixture) -> None:
    """Members that read, whose JoinGroup is parked, that are suspended, and producers: at once, to save time."""
    secure_kafka.create_topic(topic_name)
    async with asyncio.TaskGroup() as group:
        group.create_task(read_over(secure_kafka, topic_name, Way("SHORT", "SCRAM-SHA-512"), 3, said))
        group.create_task(join_late(secure_kafka, f"{topic_name}-join", said))
        group.create_task(suspend(secure_kafka, f"{topic_name}-suspend", 1))
        for way in (Way("SHORT", "SCRAM-SHA-256"), Way("SHORT", "OAUTHBEARER")):
            group.create_task(write_over(secure_kafka, f"{topic_name}-written-{way}", way, 2, None, said))
        written = f"{topic_name}-transactions"
        group.create_task(write_over(secure_kafka, written, Way("SHORT", "PLAIN"), 2, written, said))


@pytest.mark.long
@pytest.mark.timeout(300)
async def test_many_suspensions(secure_kafka: SecureKafka, topic_name: str) -> None:
    await suspend(secure_kafka, topic_name, 10)
