"""A consumer whose listener commits is stopped: the batch that the application still holds is not committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from aiokc import RebalanceListener, TopicPartition
from aiokc.errors import ConsumerClosed

from ..group.test_rebalancing import fill
from ..stage import T0, Stage, scenario


class Books(RebalanceListener):
    """As in the guide: it commits all processed records before their partitions are revoked."""

    def __init__(self) -> None:
        self.commit: Callable[[], Awaitable[None]]
        self.told = 0

    async def on_partitions_revoked(self, partitions: frozenset[TopicPartition]) -> None:
        await self.commit()
        self.told += 1


class Failed(Exception):
    """The error that a handler raises."""


@pytest.mark.parametrize("auto_commit", [True, False])
@pytest.mark.parametrize(
    ("unsubscribes", "end", "committed"),
    [
        (False, "well", 4),
        (False, "by an exception", 2),
        (False, "by stop()", 2),
        (True, "well", 4),
        (True, "by an exception", 2),
    ],
)
def test_a_listener_that_commits_in_stop_leaves_out_what_is_not_processed(
    auto_commit: bool, unsubscribes: bool, end: str, committed: int
) -> None:
    """Given a listener that commits in on_partitions_revoked, and two batches that were returned, when the block ends
    by an exception, or another task calls stop(), then the second batch, which is not processed, is read again. So it
    is where the application unsubscribed just before.
    """

    @scenario(topics={"t": 1})
    async def story(stage: Stage) -> None:
        fill(stage, 10, 1)
        books = Books()
        consumer = stage.consumer(group_id="g", enable_auto_commit=auto_commit, max_poll_records=2)
        consumer.subscribe(["t"], listener=books)
        books.commit = consumer.commit

        async def work() -> None:
            async with consumer:
                for _ in range(2):
                    assert len((await consumer.getmany())[T0]) == 2
                if unsubscribes:
                    consumer.unsubscribe()  # the listener is called when the event loop runs again: in stop()
                if end == "by an exception":
                    raise Failed
                if end == "by stop()":
                    await asyncio.get_running_loop().create_task(consumer.stop())
                    with pytest.raises(ConsumerClosed):
                        await consumer.getmany()

        if end == "by an exception":
            with pytest.raises(Failed):
                await work()
        else:
            await work()
        assert books.told == 1
        assert stage.cluster.committed("g") == {T0: committed}
        assert stage.cluster.members("g") == []

    story()
