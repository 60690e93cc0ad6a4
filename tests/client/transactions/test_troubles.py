"""Twins, timeouts, lost answers, coordinators that move, an upgrade: a transaction is committed whole or not at all."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any
from unittest.mock import patch

import pytest

from aiokc import GroupMetadata, Producer
from aiokc.client.cluster.coordinator_lookup import CoordinatorLookup
from aiokc.error_codes import ErrorCode
from aiokc.errors import KafkaError, ProducerFenced, RecordRefused, RequestTimedOut, TransactionAbortable
from aiokc.net.login.endings import SessionEnded
from aiokc.testing import ApiKey
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import deliver_late, disconnect, drop, lose_answer
from aiokc.wire import Response
from aiokc.wire.messages.discovery import MetadataResponse
from aiokc.wire.messages.txn import AddPartitionsToTxnResponse, EndTxnRequest, TxnOffsetCommitResponse

from .on_stage import IN0, Stage, scenario

GROUP = GroupMetadata("g")
CONTROLS = [ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.TXN_OFFSET_COMMIT, ApiKey.END_TXN]


@scenario()
async def test_what_an_answer_leaves_out_is_sent_again(stage: Stage) -> None:
    """No broker does that. Taken for success, it would commit without offsets, or without a partition's records."""
    stage.cluster.intercept(ApiKey.TXN_OFFSET_COMMIT, lambda exchange: TxnOffsetCommitResponse(topics=[]), times=1)
    if not stage.is_v2:
        stage.cluster.intercept(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            lambda exchange: AddPartitionsToTxnResponse(results_by_topic_v3_and_below=[]),
            times=1,
        )
    async with stage.producer() as producer, producer.transaction() as transaction:
        await producer.send("out", b"1", partition=0)
        await transaction.send_offsets({IN0: 5}, GROUP)
    assert await stage.read() == [b"1"]
    assert await stage.committed() == {IN0: 5}


@scenario()
async def test_a_coordinator_at_another_address_is_looked_for_in_the_metadata(stage: Stage) -> None:
    """A broker came back elsewhere. Nothing is sent to it but control requests, so nobody else would ask for them."""
    cluster = stage.cluster
    cluster.move_coordinator("id", to=1)
    cluster.move_coordinator("g", to=2)

    async def former(exchange: Exchange) -> Response:
        response = await exchange.handle()
        assert isinstance(response, MetadataResponse)
        for broker in response.brokers:
            if broker.node_id in (1, 2):
                broker.port = 1  # nobody listens there
        return response

    for partition in range(2):
        cluster.move_leader("out", partition, to=3)
    old = cluster.intercept(ApiKey.METADATA, former, times=1)
    options: dict[str, Any] = {"metadata_max_age_ms": 3_600_000, "max_block_ms": 10_000}
    async with stage.producer(**options) as producer, producer.transaction() as transaction:
        await producer.send("out", b"1", partition=0)
        await transaction.send_offsets({IN0: 5}, GROUP)
    assert old.hits == 1
    assert (await stage.read(), await stage.committed()) == ([b"1"], {IN0: 5})


@scenario(2)
async def test_features_that_a_coordinator_refuses_to_name_are_not_known(stage: Stage) -> None:
    """They are none at all in that answer. Taken for it, the next transaction would be one of the former kind."""
    async with stage.producer() as producer:
        for value in (b"1", b"2"):
            await asyncio.sleep(5)  # of virtual time: they are asked for again
            refused = stage.cluster.intercept(ApiKey.API_VERSIONS, ErrorCode.REBOOTSTRAP_REQUIRED, times=1)
            async with producer.transaction():
                await producer.send("out", value, partition=0)
            assert refused.hits == 1
    assert "AddPartitionsToTxn" not in stage.control()
    assert await stage.read() == [b"1", b"2"]


@scenario()
async def test_a_commit_whose_coordinator_could_not_be_reached_was_not_carried_out(stage: Stage) -> None:
    cluster = stage.cluster
    cluster.move_coordinator("id", to=1)
    for partition in range(2):
        cluster.move_leader("out", partition, to=3)
    async with stage.producer(max_block_ms=2_000) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"1", partition=0)
        nobody = cluster.intercept(ApiKey.FIND_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        cluster.take_down(1)
        await asyncio.sleep(0.1)  # of virtual time: the client knows that the connection has ended
        with pytest.raises(RequestTimedOut, match="the commit"):
            await producer.commit_transaction()
        assert nobody.hits > 0
        cluster.heal()
        cluster.intercept(ApiKey.END_TXN, ErrorCode.TRANSACTION_ABORTABLE, times=1)
        with pytest.raises(TransactionAbortable):
            await producer.commit_transaction()
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
    assert await stage.read() == [b"2"]


@scenario()
async def test_sessions_that_end_again_and_again_are_the_reason_and_one_that_ends_is_none(stage: Stage) -> None:
    stage.cluster.intercept(ApiKey.END_TXN, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1)
    reasons: list[KafkaError | None] = []
    async with stage.producer(max_block_ms=2_000) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"1", partition=0)
        ask = CoordinatorLookup.ask

        async def ends(lookup: CoordinatorLookup, request: type[Any], *args: Any, **options: Any) -> Any:
            if request is EndTxnRequest:
                requests = producer._driver("test").requests
                reasons.append(requests.error)
                if len(reasons) > 1:
                    raise SessionEnded("the session is over")
            return await ask(lookup, request, *args, **options)

        over = pytest.raises(RequestTimedOut, match="the last attempt: the session is over")
        with patch.object(CoordinatorLookup, "ask", ends), over:
            await producer.commit_transaction()
        await producer.commit_transaction()
    assert [str(reason).partition(":")[0] for reason in reasons[1:4]] == [
        "COORDINATOR_LOAD_IN_PROGRESS",
        "None",
        "the session is over",
    ]
    assert await stage.read() == [b"1"]


# Fencing


@scenario()
async def test_a_twin_fences_the_elder_at_its_next_call(stage: Stage) -> None:
    async with stage.producer() as elder:
        async with elder.transaction():
            await elder.send("out", b"1", partition=0)
        async with stage.producer() as twin:
            with pytest.raises(ProducerFenced, match="another producer has taken over"):
                async with elder.transaction():
                    await elder.send("out", b"2", partition=0)
            with pytest.raises(ProducerFenced):
                await elder.begin_transaction()
            with pytest.raises(ProducerFenced):
                await elder.send("out", b"3")
            async with twin.transaction():
                await twin.send("out", b"4", partition=0)
            async with twin.transaction():
                await twin.send("out", b"5", partition=0)
    assert await stage.read() == [b"1", b"4", b"5"]


@scenario()
async def test_a_block_whose_producer_was_fenced_inside_raises_though_it_saw_nothing(stage: Stage) -> None:
    async with stage.producer() as elder, stage.producer():
        with pytest.raises(ProducerFenced):
            async with elder.transaction():
                delivery = await elder.send("out", b"1", partition=0)
                with pytest.raises((ProducerFenced, RecordRefused)):
                    await delivery
                await asyncio.sleep(5.0)
    with pytest.raises(ZeroDivisionError) as raised:
        async with stage.producer() as elder, stage.producer(), elder.transaction():
            await elder.send("out", b"2", partition=0)
            await asyncio.sleep(5.0)
            raise ZeroDivisionError
    assert "another producer has taken over" in raised.value.__notes__[0]
    assert await stage.read() == []


@scenario()
async def test_a_twin_ends_the_elder_s_open_transaction_and_is_not_hurt_by_what_the_elder_does(stage: Stage) -> None:
    async with stage.producer() as elder:
        await elder.begin_transaction()
        await elder.send_and_wait("out", b"1", partition=0)
        async with stage.producer() as twin:
            await twin.begin_transaction()
            await twin.send_and_wait("out", b"2", partition=0)
            with pytest.raises((ProducerFenced, RecordRefused)):
                await elder.send_and_wait("out", b"3", partition=0)
            with pytest.raises(ProducerFenced):
                await elder.abort_transaction()
            await twin.send("out", b"4", partition=0)
            await twin.commit_transaction()
    assert await stage.read() == [b"2", b"4"]
    assert await stage.read(isolation_level="read_uncommitted") == [b"1", b"2", b"4"]


# The coordinator ends what takes too long


@scenario(2)
async def test_v2_goes_on_after_a_transaction_that_took_too_long(stage: Stage) -> None:
    async with stage.producer(transaction_timeout_ms=10_000) as producer:
        with pytest.raises(RecordRefused, match="INVALID_PRODUCER_EPOCH"):
            async with producer.transaction():
                await producer.send_and_wait("out", b"1", partition=0)
                await asyncio.sleep(30)
                await producer.send_and_wait("out", b"2", partition=0)
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"3", partition=0)
        await asyncio.sleep(30)
        with pytest.raises(TransactionAbortable, match="INVALID_TXN_STATE"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"4", partition=0)
        await asyncio.sleep(30)
        with pytest.raises(TransactionAbortable, match="TxnOffsetCommit"):
            await producer.send_offsets_to_transaction({IN0: 3}, GROUP)
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await producer.send("out", b"5", partition=0)
            await transaction.send_offsets({IN0: 4}, GROUP)
    assert await stage.read() == [b"5"]
    assert await stage.committed() == {IN0: 4}


@scenario(0)
async def test_brokers_of_level_0_end_the_producer_for_it(stage: Stage) -> None:
    async with stage.producer(transaction_timeout_ms=10_000) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"1", partition=0)
        await asyncio.sleep(30)
        with pytest.raises(ProducerFenced, match="transaction_timeout_ms"):
            await producer.commit_transaction()
        with pytest.raises(ProducerFenced):
            await producer.begin_transaction()
    async with stage.producer() as producer, producer.transaction():
        await producer.send("out", b"2", partition=0)
    assert await stage.read() == [b"2"]


# Lost and late requests


@pytest.mark.parametrize("fault", [lose_answer, disconnect, drop])
@pytest.mark.parametrize("api", CONTROLS, ids=lambda api: api.name)
def test_a_request_without_an_answer(api: ApiKey, fault: object) -> None:
    @scenario()
    async def story(stage: Stage) -> None:
        if api in CONTROLS[:2] and stage.is_v2:
            return
        assert callable(fault)
        async with stage.producer(request_timeout_ms=5_000) as producer:
            for number in range(3):
                caught = stage.cluster.intercept(api, fault(), times=2)
                async with producer.transaction() as transaction:
                    await producer.send("out", b"%d" % number, partition=0)
                    await transaction.send_offsets({IN0: number}, GROUP)
                assert caught.hits == 2
        assert await stage.read() == [b"0", b"1", b"2"]
        assert await stage.committed() == {IN0: 2}

    for level in (0, 2):
        story(level)


async def _ends(stage: Stage, *, late: bool) -> None:
    """The first end of each transaction comes late: in the middle of the next one."""
    async with stage.producer() as producer:
        for number in range(8):
            stage.cluster.intercept(ApiKey.END_TXN, deliver_late(1.5), times=1)
            await producer.begin_transaction()
            await producer.send_and_wait("out", b"%d" % number, partition=0)
            await asyncio.sleep(2.0)
            await producer.send_and_wait("out", b"%d!" % number, partition=1)
            if number % 2 is late:
                await producer.abort_transaction()
            else:
                await producer.commit_transaction()
    committed = [number for number in range(8) if number % 2 is not late]
    assert await stage.read() == [b"%d" % number for number in committed] + [b"%d!" % number for number in committed]


@scenario()
async def test_a_late_abort_does_not_end_the_next_transaction(stage: Stage) -> None:
    await _ends(stage, late=False)


@scenario()
async def test_a_late_commit_does_not_end_the_next_transaction(stage: Stage) -> None:
    await _ends(stage, late=True)


@scenario()
async def test_late_partitions_and_offsets_do_not_join_the_next_transaction(stage: Stage) -> None:
    """The first transaction gives up its offsets, which arrive while the second one is open, and commits."""
    late = ApiKey.TXN_OFFSET_COMMIT
    async with stage.producer() as producer:
        stage.cluster.intercept(late, deliver_late(1.5), times=1)
        stage.cluster.intercept(late, drop(), times=1)
        await producer.begin_transaction()
        await producer.send_and_wait("out", b"1", partition=0)
        with pytest.raises(TransactionAbortable):
            await producer.send_offsets_to_transaction({IN0: 5}, GROUP, timeout_ms=1_000)
        stage.cluster.heal()
        await producer.abort_transaction()
        async with producer.transaction() as transaction:
            await producer.send_and_wait("out", b"2", partition=0)
            await transaction.send_offsets({IN0: 1}, GROUP)
            await asyncio.sleep(20.0)
            await producer.send_and_wait("out", b"3", partition=0)
    assert await stage.read() == [b"2", b"3"]
    assert await stage.committed() == {IN0: 1}


@scenario()
async def test_a_produce_request_without_an_answer_is_stored_once(stage: Stage) -> None:
    async with stage.producer() as producer:
        for number in range(4):
            stage.cluster.intercept(ApiKey.PRODUCE, lose_answer(), times=2)
            async with producer.transaction():
                await producer.send("out", b"%d" % number, partition=0)
    assert await stage.read() == [b"0", b"1", b"2", b"3"]


@scenario()
async def test_an_abort_while_nothing_answers_does_not_wait_for_retries(stage: Stage) -> None:
    """A batch comes back without an answer while the transaction is being aborted: it is not sent again."""
    async with stage.producer(request_timeout_ms=3_000) as producer:
        stage.cluster.intercept(ApiKey.PRODUCE, drop(), times=1)
        await producer.begin_transaction()
        await producer.send("out", b"1", partition=0)
        await asyncio.sleep(1.0)
        await producer.abort_transaction()
        async with producer.transaction():
            await producer.send("out", b"2", partition=0)
    assert await stage.read() == [b"2"]


# Coordinators and leaders that move


@pytest.mark.parametrize("api", [ApiKey.INIT_PRODUCER_ID, *CONTROLS], ids=lambda api: api.name)
def test_the_coordinator_moves_in_each_phase(api: ApiKey) -> None:
    @scenario()
    async def story(stage: Stage) -> None:
        if api in CONTROLS[:2] and stage.is_v2:
            return

        def move(exchange: Exchange) -> None:
            stage.cluster.move_coordinator("id", loading=0.5)
            stage.cluster.move_coordinator("g", loading=0.5)

        stage.cluster.intercept(api, move, times=1)
        async with stage.producer() as producer:
            for number in range(3):
                async with producer.transaction() as transaction:
                    await producer.send("out", b"%d" % number, partition=0)
                    await transaction.send_offsets({IN0: number}, GROUP)
        assert await stage.read() == [b"0", b"1", b"2"]
        assert await stage.committed() == {IN0: 2}

    for level in (0, 2):
        story(level)


@scenario()
async def test_the_markers_of_the_transaction_before_are_slow(stage: Stage) -> None:
    stage.cluster.slow_markers(0.3)
    async with stage.producer() as producer:
        for number in range(5):
            async with producer.transaction() as transaction:
                await producer.send("out", b"%d" % number, partition=number % 2)
                await transaction.send_offsets({IN0: number}, GROUP)
        with pytest.raises(KeyError):
            async with producer.transaction():
                await producer.send_and_wait("out", b"x", partition=0)
                raise KeyError
        async with producer.transaction():
            await producer.send("out", b"5", partition=1)
        await asyncio.sleep(1.0)
    assert await stage.read() == [b"0", b"2", b"4", b"1", b"3", b"5"]
    assert await stage.committed() == {IN0: 4}


@scenario()
async def test_a_broker_is_away_for_a_while(stage: Stage) -> None:
    async with stage.producer() as producer:
        for number in range(6):
            node = 1 + number % 3
            await producer.begin_transaction()
            await producer.send("out", b"%d" % number, partition=0)
            stage.cluster.take_down(node)
            await producer.send("out", b"%d!" % number, partition=1)
            commit = asyncio.create_task(producer.commit_transaction())
            await asyncio.sleep(2.0)
            stage.cluster.bring_up(node)
            await commit
    numbers = range(6)
    assert await stage.read() == [b"%d" % number for number in numbers] + [b"%d!" % number for number in numbers]


# An upgrade, and an id that was idle for too long


@scenario(0)
async def test_the_cluster_is_upgraded_while_the_producer_runs(stage: Stage) -> None:
    async with stage.producer() as producer:
        async with producer.transaction() as transaction:
            await producer.send("out", b"1", partition=0)
            await transaction.send_offsets({IN0: 1}, GROUP)
            stage.cluster.finalize_feature("transaction.version", 2)
            for node_id in (1, 2, 3):
                stage.cluster.disconnect(node_id)
        before = len(stage.asked.log)
        for number in range(2, 5):
            async with producer.transaction() as transaction:
                await producer.send("out", b"%d" % number, partition=0)
                await producer.flush()
                await transaction.send_offsets({IN0: number}, GROUP)
        assert stage.control(before) == ["InitProducerId", *["TxnOffsetCommit", "EndTxn"] * 3]
    assert await stage.read() == [b"%d" % number for number in range(1, 5)]
    assert await stage.committed() == {IN0: 4}


async def transact(producer: Producer[bytes, bytes], number: int) -> None:
    async with producer.transaction() as transaction:
        await producer.send("out", b"%d" % number, partition=0)
        await producer.flush()
        await transaction.send_offsets({IN0: number}, GROUP)


@scenario(0, 2)
async def test_the_level_of_transactions_changes_between_two_of_them(stage: Stage) -> None:
    """Up and down, and no connection breaks, which would tell the producer."""
    levels, number = (2, 0, 1, 2, 0, 2) if stage.level == 0 else (0, 2, 1, 0, 2), 0
    async with stage.producer(linger_ms=0) as producer:
        for level in levels:
            for _ in range(2):
                number += 1
                await transact(producer, number)
            stage.cluster.finalize_feature("transaction.version", level)
            await asyncio.sleep(2.0)
        before = len(stage.asked.log)
        await transact(producer, 100)
        assert ("AddPartitionsToTxn" in stage.control(before)) == (levels[-1] < 2)
    assert await stage.read() == [b"%d" % one for one in [*range(1, number + 1), 100]]
    assert await stage.committed() == {IN0: 100}


@scenario(2)
async def test_a_transaction_during_which_the_level_is_lowered_is_aborted_and_the_producer_goes_on(
    stage: Stage,
) -> None:
    async with stage.producer() as producer:
        await transact(producer, 1)
        stage.cluster.finalize_feature("transaction.version", 0)  # and the next one begins before it is asked for
        with pytest.raises((TransactionAbortable, RecordRefused)):
            await transact(producer, 2)
        await transact(producer, 3)
        stage.cluster.finalize_feature("transaction.version", 2)
        await asyncio.sleep(2.0)
        async with producer.transaction() as transaction:
            await producer.send_and_wait("out", b"4", partition=0)
            stage.cluster.finalize_feature("transaction.version", 0)
            with pytest.raises(TransactionAbortable):
                await transaction.send_offsets({IN0: 4}, GROUP)
            await producer.abort_transaction()
        await transact(producer, 5)
    assert await stage.read() == [b"1", b"3", b"5"]
    assert await stage.committed() == {IN0: 5}


@scenario(0, 1, 2)
async def test_an_id_that_the_coordinator_has_forgotten(stage: Stage) -> None:
    """After transactional.id.expiration.ms without a transaction, a week by default."""
    async with stage.producer() as producer:
        async with producer.transaction():
            await producer.send("out", b"1", partition=0)
        stage.cluster._state.transactions._known.clear()
        with pytest.raises((TransactionAbortable, RecordRefused), match="INVALID_PRODUCER_ID_MAPPING"):
            async with producer.transaction():
                await producer.send("out", b"2", partition=0)
        async with producer.transaction():
            await producer.send("out", b"3", partition=0)
    assert await stage.read() == [b"1", b"3"]


@scenario()
async def test_after_the_last_epoch_of_an_id_there_is_another_id(stage: Stage) -> None:
    async with stage.producer():
        known = stage.cluster._state.transactions._known["id"]
    known.epoch = 0x7FFF - 4
    async with stage.producer() as producer:
        assert producer._runtime.transactions is not None
        ids = set()
        for number in range(8):
            ids.add(producer._runtime.transactions.machine.identity.producer_id)
            with contextlib.suppress(KeyError):
                async with producer.transaction():
                    await producer.send_and_wait("out", b"%d" % number, partition=0)
                    if number % 2:
                        raise KeyError
        assert len(ids) == 2
    assert await stage.read() == [b"0", b"2", b"4", b"6"]
