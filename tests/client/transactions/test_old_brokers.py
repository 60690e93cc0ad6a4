"""Transactions on brokers before Kafka 2.5: no InitProducerId names an identity, no TxnOffsetCommit a member."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import GroupMetadata
from aiokc.errors import ProducerFenced, UnsupportedVersion
from aiokc.testing import ApiKey, Cluster, faults
from aiokc.testing.brokers.exchange import Exchange

from ..virtually import virtually
from .on_stage import IN0, TOPICS, Stage

pytestmark = pytest.mark.timeout(30)

releases = pytest.mark.parametrize("release", ["2.1", "2.4"])


def on_stage(release: str, story: Any) -> None:
    async def begin(cluster: Cluster) -> None:
        await story(Stage(cluster, 0))

    virtually(begin, brokers=1, as_version=release, topics=TOPICS)


@releases
def test_the_producer_goes_on_after_an_abort(release: str) -> None:
    async def story(stage: Stage) -> None:
        async with stage.producer() as producer:
            for value in (b"1", b"2", b"3"):
                async with producer.transaction():
                    await producer.send("out", value, partition=0)
                with pytest.raises(KeyError):
                    async with producer.transaction():
                        await (await producer.send("out", b"aborted", partition=0))
                        raise KeyError
            assert await stage.read() == [b"1", b"2", b"3"]

    on_stage(release, story)


@releases
@pytest.mark.parametrize("api", [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.END_TXN, ApiKey.INIT_PRODUCER_ID])
@pytest.mark.parametrize("fault", [faults.disconnect, faults.lose_answer])
def test_the_producer_goes_on_after_an_answer_that_was_lost(release: str, api: ApiKey, fault: Any) -> None:
    async def story(stage: Stage) -> None:
        async with stage.producer() as producer:
            lost = stage.cluster.intercept(api, fault(), times=1)
            for value in (b"1", b"2", b"3"):
                async with producer.transaction():
                    await producer.send("out", value, partition=0)
                if api is ApiKey.INIT_PRODUCER_ID:
                    with pytest.raises(KeyError):
                        async with producer.transaction():
                            await (await producer.send("out", b"aborted", partition=0))
                            raise KeyError
            assert lost.hits == 1
            assert await stage.read() == [b"1", b"2", b"3"]

    on_stage(release, story)


@releases
def test_a_request_that_comes_late_does_not_join_the_next_transaction(release: str) -> None:
    """An epoch of its own keeps it out: the EndTxn that comes late would abort the second transaction."""

    async def story(stage: Stage) -> None:
        async with stage.producer() as producer:
            late = stage.cluster.intercept(ApiKey.END_TXN, faults.deliver_late(2.0), times=1)
            with pytest.raises(KeyError):
                async with producer.transaction():
                    await (await producer.send("out", b"1", partition=0))
                    raise KeyError
            assert late.hits == 1
            async with producer.transaction():
                await (await producer.send("out", b"2", partition=0))
                await asyncio.sleep(3)
                await producer.send("out", b"3", partition=0)
            assert await stage.read() == [b"2", b"3"]

    on_stage(release, story)


@releases
def test_a_twin_that_starts_before_the_next_epoch_is_asked_for_is_fenced(release: str) -> None:
    """What design.md says of these brokers: they can't tell the elder of both, so the last one that asks goes on."""

    async def story(stage: Stage) -> None:
        hold = faults.Hold()

        async def held(exchange: Exchange) -> None:
            if exchange.client_id == "elder":
                await hold(exchange)

        async with stage.producer(client_id="elder") as elder, stage.producer("other", client_id="twin") as _:
            stage.cluster.intercept(ApiKey.INIT_PRODUCER_ID, held)
            await elder.begin_transaction()
            await (await elder.send("out", b"1", partition=0))
            await elder.abort_transaction()
            await hold.arrived()
            async with stage.producer(client_id="twin") as twin:
                await twin.begin_transaction()
                await (await twin.send("out", b"2", partition=0))
                hold.release()
                async with elder.transaction():
                    await elder.send("out", b"3", partition=0)
                with pytest.raises(ProducerFenced):
                    await twin.commit_transaction()
            assert await stage.read() == [b"3"]

    on_stage(release, story)


@releases
def test_offsets_that_name_no_member_are_committed(release: str) -> None:
    async def story(stage: Stage) -> None:
        async with stage.producer() as producer:
            async with producer.transaction() as transaction:
                await producer.send("out", b"1", partition=0)
                await transaction.send_offsets({IN0: 5}, GroupMetadata("g"))
            assert await stage.committed() == {IN0: 5}

    on_stage(release, story)


@releases
def test_offsets_that_name_a_member_are_refused_and_the_producer_goes_on(release: str) -> None:
    """Without the member a zombie's offsets would be taken, so they are not sent."""

    async def story(stage: Stage) -> None:
        async with stage.producer() as producer:
            with pytest.raises(UnsupportedVersion, match=r"and to name member 'm' of group 'g' \(KIP-447"):
                async with producer.transaction() as transaction:
                    await producer.send("out", b"1", partition=0)
                    await transaction.send_offsets({IN0: 5}, GroupMetadata("g", 3, "m"))
            async with producer.transaction():
                await producer.send("out", b"2", partition=0)
            assert await stage.read() == [b"2"]
            assert await stage.committed() == {}

    on_stage(release, story)
