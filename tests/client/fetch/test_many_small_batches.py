"""A Fetch response with thousands of batches, each checked by itself, is stored a few batches at a time."""

from __future__ import annotations

import asyncio

import pytest

from aiokc import Consumer, TopicPartition
from aiokc.core.fetch.buffer import FetchBuffer
from aiokc.core.fetch.partition.fetched_partition import FetchedPartition
from aiokc.core.subscription.state import Subscription
from aiokc.errors import CorruptRecord
from aiokc.records import Codec, NewRecord, encode_batch
from aiokc.testing import Cluster
from aiokc.types import RawRecord

pytestmark = pytest.mark.timeout(60)

TP = TopicPartition("t", 0)
COUNT = 1000
# Neither side by side with another of its kind: none is in a run.
CODECS = (Codec.NONE, Codec.GZIP)
BATCHES = [encode_batch([NewRecord(b"v")], base_offset=offset, codec=CODECS[offset % 2]) for offset in range(COUNT)]


def begun(records: bytes) -> tuple[FetchBuffer, Subscription, int]:
    """Return a buffer that has begun to store these batches, and how many its first step has stored."""
    subscription, buffer = Subscription(), FetchBuffer()
    subscription.assign([TP])
    subscription.seek(TP, 0)
    position = subscription[TP]
    arriving = buffer.begin(FetchedPartition(TP, position.token, 0, memoryview(records)), position)
    assert arriving is not None
    return buffer, subscription, arriving.end


def rest(buffer: FetchBuffer, subscription: Subscription) -> list[int]:
    """Store the rest, and return how many batches each step has stored."""
    part, steps = buffer.of(TP), []
    while part is not None and part.is_arriving:
        before = part.end
        buffer.add_more(part, subscription[TP])
        steps.append(part.end - before)
    return steps


def read(buffer: FetchBuffer, subscription: Subscription) -> list[int]:
    offsets = []
    for part, position in buffer.servable(subscription):
        while part.undecoded:
            part.decode(100)
        records, after = part.take(COUNT)
        subscription.hand_out(TP, after, None)
        buffer.served(part, position)
        offsets += [record.offset for record in records]
    buffer.settle()
    return offsets


def test_each_step_is_short() -> None:
    buffer, subscription, first = begun(b"".join(BATCHES))
    steps = [first, *rest(buffer, subscription)]
    assert sum(steps) == COUNT
    assert max(steps) <= COUNT // 5
    assert read(buffer, subscription) == list(range(COUNT))


def test_what_is_there_is_read_while_the_rest_arrives() -> None:
    buffer, subscription, first = begun(b"".join(BATCHES))
    assert read(buffer, subscription) == list(range(first))
    assert buffer.of(TP) is not None, "or what follows would have no place"
    rest(buffer, subscription)
    assert read(buffer, subscription) == list(range(first, COUNT))
    assert (buffer.of(TP), buffer.bytes) == (None, 0)


def test_an_answer_of_another_broker_is_stale_meanwhile() -> None:
    """It begins at the offset where the buffer ends now, and is shorter: stored, it would cut off the rest."""
    buffer, subscription, first = begun(b"".join(BATCHES))
    again = FetchedPartition(TP, subscription[TP].token, first, memoryview(b"".join(BATCHES[first : first + 1])))
    assert buffer.begin(again, subscription[TP]) is buffer.of(TP)
    assert sum(rest(buffer, subscription)) == COUNT - first
    assert read(buffer, subscription) == list(range(COUNT))


def test_a_rest_that_is_dropped_is_fetched_again() -> None:
    buffer, subscription, first = begun(b"".join(BATCHES))
    part = buffer.of(TP)
    assert part is not None
    buffer.leave_rest(part)
    assert buffer.frontier(TP, subscription[TP])[0] == first
    assert rest(buffer, subscription) == []
    assert read(buffer, subscription) == list(range(first))
    assert buffer.bytes == 0


def test_dropping_the_partition_drops_what_is_still_arriving() -> None:
    buffer, subscription, _ = begun(b"".join(BATCHES))
    part = buffer.of(TP)
    assert part is not None
    buffer.drop(TP)
    assert not part.is_arriving
    part.add_more()
    assert (part.empty, buffer.bytes, read(buffer, subscription)) == (True, 0, [])


@pytest.mark.parametrize("broken", [5, 700])
def test_an_error_keeps_its_place(broken: int) -> None:
    """The error is in the first batches and met while the rest arrives, or it is in those that arrive later."""
    damaged = bytearray(BATCHES[broken])
    damaged[-1] ^= 0xFF
    buffer, subscription, _ = begun(b"".join([*BATCHES[:broken], bytes(damaged), *BATCHES[broken + 1 :]]))
    got = read(buffer, subscription) if broken == 5 else []
    rest(buffer, subscription)
    got += read(buffer, subscription)
    assert got == list(range(broken))
    part = buffer.of(TP)
    assert part is not None
    assert part.at_error
    assert isinstance(part.error, CorruptRecord)
    assert part.error.offset == broken


async def test_all_of_them_are_read_whatever_is_sought_meanwhile() -> None:
    async with Cluster(topics={"t": 1}) as cluster:
        for number in range(3000):
            cluster.append("t", b"%d" % number, codec=Codec.GZIP)
        consumer = Consumer(bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        consumer.assign([TP])
        got: list[RawRecord] = []
        async with consumer, asyncio.timeout(50):
            assert (await consumer.getone()).offset == 0
            consumer.seek(TP, 1500)
            assert (await consumer.getone()).offset == 1500
            consumer.seek(TP, 1)
            while len(got) < 2999:
                got += (await consumer.getmany()).get(TP, [])
        assert [record.offset for record in got] == list(range(1, 3000))
