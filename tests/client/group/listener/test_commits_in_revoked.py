"""Commits that a listener calls for in on_partitions_revoked: the partitions are this member's until it is done."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from aiokc import Consumer, ConsumerRecords, OffsetAndMetadata, RebalanceListener, TopicPartition
from aiokc.errors import CommitFailed, KafkaError
from aiokc.testing import Cluster

from ...listening import Noting, Polling
from ...virtually import virtually

pytestmark = pytest.mark.timeout(60)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": {"partition_assignment_strategy": ["range"]},
    "cooperative": {"partition_assignment_strategy": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}


def member(cluster: Cluster, **options: Any) -> Consumer:
    return Consumer(
        "t",
        bootstrap_servers=cluster.bootstrap,
        **{"group_id": "g", "auto_offset_reset": "earliest", "enable_auto_commit": False, **options},
    )


async def read(consumer: Consumer, *, holds: bool) -> ConsumerRecords[bytes | None, bytes | None]:
    """Read two of three records. If it does not hold them, it has come back for more."""
    batch = await consumer.getmany(max_records=2, timeout_ms=20_000)
    assert len(batch[T0]) == 2
    if not holds:
        consumer.pause(T0)
        assert await consumer.getmany(timeout_ms=0) == {}
    return batch


# commit_soon(), the only commit that a plain function can call for


class Committing(RebalanceListener):
    """Notes what becomes of its commits."""

    consumer: Consumer

    def __init__(self) -> None:
        self.told: list[tuple[dict[TopicPartition, int], KafkaError | None]] = []

    def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        if partitions:
            self.consumer.commit_soon(on_done=self._done)

    def _done(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], error: KafkaError | None) -> None:
        self.told.append(({tp: offset.offset for tp, offset in offsets.items()}, error))


@pytest.mark.parametrize("end", ["another member", "unsubscribe", "stop"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_an_unwaited_commit_is_stored_before_the_partitions_go(protocol: str, end: str) -> None:
    """The member's generation ends with the revocation: what is sent later is refused, or is not its to commit."""

    async def story(cluster: Cluster) -> None:
        for partition in (0, 1):
            cluster.append("t", b"0", partition=partition)
        listener = Committing()
        async with member(cluster, listener=listener, **PROTOCOLS[protocol]) as consumer:
            listener.consumer = consumer
            read: list[TopicPartition] = []
            while len(read) < 2:
                read += await consumer.getmany(timeout_ms=20_000)
            assert await consumer.getmany(timeout_ms=0) == {}
            if end == "another member":
                theirs = Noting()
                other = member(cluster, listener=theirs, **PROTOCOLS[protocol])
                async with other, Polling(consumer, other) as polling:
                    await theirs.until(lambda: len(theirs.holds) == 1)
                    cluster.append("t", b"new", partition=next(iter(theirs.holds)).partition)
                    assert await polling.has(1) == [b"new"], "nothing is read again"
            elif end == "unsubscribe":
                consumer.unsubscribe()
                async with member(cluster, **PROTOCOLS[protocol]) as other:
                    assert await other.getmany(timeout_ms=20_000) == {}
            await consumer.stop()
        assert cluster.committed("g").keys() == {T0, T1}
        assert all(offset >= 1 for offset in cluster.committed("g").values())
        assert all(error is None for _, error in listener.told)
        assert {T0, T1} <= {tp for offsets, _ in listener.told for tp in offsets}

    virtually(story)


# Another subscription has begun by then


@pytest.mark.parametrize("what", ["everything", "batch", "offsets", "offsets, not waited for"])
@pytest.mark.parametrize("holds", [True, False], ids=["held", "processed"])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_stores_what_unsubscribe_left_also_after_another_subscription(
    protocol: str, holds: bool, what: str
) -> None:
    """unsubscribe() and subscribe() in one go are both done when the callback runs."""

    async def story(cluster: Cluster) -> None:
        errors: list[KafkaError | None] = []

        async def commit(_: object) -> None:
            assert consumer.assignment() == frozenset()
            given: dict[str, Any] = {"batch": batch, "everything": None, "offsets": {T0: 2}}
            if what == "offsets, not waited for":
                consumer.commit_soon({T0: 2}, lambda offsets, error: errors.append(error))
            else:
                await consumer.commit(given[what])

        async def revoked(_: object) -> None:
            assert cluster.committed("g") == {T0: 2}
            await consumer.commit()  # nothing is left to be stored, and nothing was taken from the application
            assert cluster.committed("g") == {T0: 2}

        listener, after = Noting(revoked=commit), Noting(assigned=revoked)
        cluster.append("t", b"0", b"1", b"2")
        async with member(cluster, listener=listener, **PROTOCOLS[protocol]) as consumer:
            batch = await read(consumer, holds=holds)
            consumer.unsubscribe()
            consumer.subscribe(["t"], listener=after)
            (record,) = (await consumer.getmany(timeout_ms=20_000))[T0]
            assert record.offset == 2, "it reads on, and nothing again"
            assert listener.calls[-1] == "revoked"
            assert set(errors) <= {None}

    virtually(story, topics={"t": 1})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_unsubscribe_left_is_refused_once_the_member_has_given_it_up(protocol: str) -> None:
    """The member is in the group all the time, whose coordinator would take its commit."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1", b"2")
        async with member(cluster, **PROTOCOLS[protocol]) as consumer:
            batch = await read(consumer, holds=False)
            consumer.unsubscribe()
            consumer.subscribe(["u"])
            while not consumer.assignment():
                await consumer.getmany(timeout_ms=100)
            for what in (batch, {T0: 2}):
                with pytest.raises(CommitFailed, match="t-0: not assigned to this consumer any more"):
                    await consumer.commit(what)
            assert T0 not in cluster.committed("g")

    virtually(story, topics={"t": 1, "u": 1})


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_stores_what_unsubscribe_left_also_after_assign(protocol: str) -> None:
    async def story(cluster: Cluster) -> None:
        async def commit(_: object) -> None:
            await consumer.commit()

        listener = Noting(revoked=commit)
        cluster.append("t", b"0", b"1", b"2")
        async with member(cluster, listener=listener, **PROTOCOLS[protocol]) as consumer:
            await read(consumer, holds=True)
            consumer.unsubscribe()
            consumer.assign([TopicPartition("u", 0)])
            await listener.heard("assigned", "revoked")
            assert cluster.committed("g")[T0] == 2

    virtually(story, topics={"t": 1, "u": 1})


def test_a_commit_stores_nothing_of_a_former_manual_assignment() -> None:
    """Another consumer may have committed more of that since."""

    async def story(cluster: Cluster) -> None:
        cluster.append("t", b"0", b"1", b"2")
        async with Consumer(
            bootstrap_servers=cluster.bootstrap, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer:
            consumer.assign([T0])
            await consumer.getmany(timeout_ms=20_000)
            consumer.unsubscribe()
            consumer.assign([TopicPartition("u", 0)])
            await consumer.position(TopicPartition("u", 0))
            await consumer.getmany(timeout_ms=0)
            await consumer.commit()
            assert cluster.committed("g") == {TopicPartition("u", 0): 0}

    virtually(story, topics={"t": 1, "u": 1})
