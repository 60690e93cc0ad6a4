"""Every error code of Produce, once and for ever: what comes of the record, and of the next one."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from aiokc import Producer
from aiokc.core.produce.verdicts import RULES, Verdict
from aiokc.errors import DeliveryTimedOut, KafkaError, MessageTooLarge, ProduceError, RecordRefused
from aiokc.testing import ApiKey, Cluster, ErrorCode
from aiokc.testing.faults import Hold, refuse_afterwards
from tests.client.virtually import virtually

pytestmark = pytest.mark.timeout(30)

AGAIN = {Verdict.RETRY, Verdict.REFRESH, Verdict.GAP, Verdict.NEW_EPOCH}
CODES = [ErrorCode(code) for code in RULES if code != ErrorCode.NONE]
#: What Produce may store and then answer with: the record is "maybe" in the log.
UNCLEAR = {
    ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_SERVER_ERROR,
}
ENDS_THE_PRODUCER = {
    ErrorCode.UNSUPPORTED_VERSION,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ErrorCode.PRODUCER_FENCED,
}


def producing(cluster: Cluster, **options: Any) -> Producer[Any, Any]:
    return Producer(bootstrap_servers=cluster.bootstrap, **options)


def values(cluster: Cluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


def test_the_table_is_the_one_of_the_design() -> None:
    """Each code stands in the facts about Kafka's Sender; a code that changes its side changes this list, too."""
    again = {code.value for code in CODES if RULES[code].verdict in AGAIN}
    assert again == {2, 3, 5, 6, 7, 9, 13, 14, 15, 16, 19, 20, 45, 47, 51, 56, 59, 72, 74, 75, 88, 89, 100, 103}
    assert {code for code in CODES if RULES[code].unclear} == UNCLEAR
    refused = {code.value for code in CODES if RULES[code].verdict is Verdict.REFUSED}
    assert refused == {-1, 17, 21, 29, 31, 32, 35, 42, 43, 44, 48, 49, 53, 76, 87, 90, 120}


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_a_code_once(code: ErrorCode) -> None:
    """What is worth another attempt is stored by it; what is not fails alone, and at once."""

    async def story(cluster: Cluster) -> None:
        producer = producing(cluster)
        await producer.start()
        cluster.intercept(ApiKey.PRODUCE, code, times=1)
        rule = RULES[code]
        if rule.verdict in AGAIN:
            assert (await producer.send_and_wait("t", b"first")).offset == 0
        elif rule.verdict is Verdict.DUPLICATE:
            assert (await producer.send_and_wait("t", b"first")).offset is None
        else:
            limit = {10: r"raise max\.message\.bytes of", 18: r"raise segment\.bytes of"}.get(code)
            with pytest.raises(MessageTooLarge if limit else RecordRefused, match=limit) as failed:
                await producer.send_and_wait("t", b"first")
            assert failed.value.persisted == ("maybe" if code in UNCLEAR else "no")
        if code in ENDS_THE_PRODUCER:
            with pytest.raises(KafkaError) as ended:
                await producer.send("t", b"next")
            assert getattr(ended.value, "code", None) == code
        else:
            await producer.send_and_wait("t", b"next")
            stored = rule.verdict in AGAIN
            assert values(cluster) == ([b"first", b"next"] if stored else [b"next"])
        await producer.stop()

    virtually(story, brokers=1, topics={"t": 1})


@pytest.mark.parametrize("code", [code for code in CODES if RULES[code].verdict in AGAIN], ids=lambda code: code.name)
def test_a_code_for_ever(code: ErrorCode) -> None:
    """delivery_timeout_ms ends it, and nothing else; then the next record is stored."""

    async def story(cluster: Cluster) -> None:
        producer = producing(cluster, delivery_timeout_ms=5000, request_timeout_ms=1000)
        await producer.start()
        loop = asyncio.get_running_loop()
        began = loop.time()
        fault = cluster.intercept(ApiKey.PRODUCE, code)
        with pytest.raises(DeliveryTimedOut, match=code.name) as late:
            await producer.send_and_wait("t", b"first")
        assert 5 <= loop.time() - began < 6.5
        assert late.value.persisted == ("maybe" if code in UNCLEAR else "no")
        assert 3 < fault.hits < 40
        cluster.heal()
        await producer.send_and_wait("t", b"next")
        assert values(cluster) == [b"next"]
        await producer.stop()

    virtually(story, brokers=1, topics={"t": 1})


def test_a_leader_that_is_lost_after_the_append_leaves_a_record_that_may_be_stored() -> None:
    """It answers NOT_LEADER_OR_FOLLOWER, as one that has stored nothing does. No leader follows it here."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, delivery_timeout_ms=5000, request_timeout_ms=1000) as producer:
            await producer.partitions_for("t")
            cluster.intercept(ApiKey.PRODUCE, refuse_afterwards(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
            cluster.intercept(ApiKey.PRODUCE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
            with pytest.raises(DeliveryTimedOut) as late:
                await producer.send_and_wait("t", b"first")
            assert late.value.persisted == "maybe"
            cluster.heal()
            assert (await producer.send_and_wait("t", b"next")).offset == 1

    virtually(story, brokers=1, topics={"t": 1})


def test_the_next_leader_recognizes_what_the_lost_one_had_appended() -> None:
    """It has got the records from the lost leader: sent again, they are not stored a second time."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster, linger_ms=0) as producer:
            await producer.send_and_wait("t", b"0")
            lost = cluster.intercept(ApiKey.PRODUCE, refuse_afterwards(ErrorCode.NOT_LEADER_OR_FOLLOWER), times=1)
            sent = await producer.send("t", b"1")
            await lost.caught()
            cluster.move_leader("t")
            behind = await producer.send("t", b"2")
            assert [(await one).offset for one in (sent, behind)] == [1, 2]
            assert producer.metrics().renumbered == 0
        assert values(cluster) == [b"0", b"1", b"2"]

    virtually(story, topics={"t": 1})


def test_a_code_that_aiokc_does_not_know_is_refused() -> None:
    async def story(cluster: Cluster) -> None:
        producer = producing(cluster)
        await producer.start()

        async def unknown(exchange: Any) -> Any:
            response = await exchange.handle()
            response.responses[0].partition_responses[0].error_code = 9999
            return response

        cluster.intercept(ApiKey.PRODUCE, unknown, times=1)
        with pytest.raises(RecordRefused, match="error code 9999"):
            await producer.send_and_wait("t", b"first")
        await producer.stop()

    virtually(story, brokers=1, topics={"t": 1})


def test_one_bad_record_of_a_batch_is_named_to_its_owner() -> None:
    """KIP-467: the others learn that they were refused because of another one."""

    async def story(cluster: Cluster) -> None:
        cluster.create_topic("compacted", config={"cleanup.policy": "compact"})
        producer = producing(cluster)
        await producer.start()
        sent = [await producer.send("compacted", b"", key) for key in (b"a", None, b"c")]
        errors = [await outcome(one) for one in sent]
        assert all(isinstance(error, RecordRefused) for error in errors)
        assert "other records" in str(errors[0])
        assert "other records" not in str(errors[1])
        assert "other records" in str(errors[2])
        assert (await producer.send_and_wait("compacted", b"", b"d")).offset == 0
        await producer.stop()

    virtually(story, brokers=1, topics={})


def test_a_bad_record_takes_its_batch_with_it_and_no_other() -> None:
    """What docs/guide/producing.md says of it; those that were not to blame are stored when they are sent again."""

    async def story(cluster: Cluster) -> None:
        async with producing(cluster) as producer:
            before = await producer.send_and_wait("t", b"before")
            hold = Hold()
            cluster.intercept(ApiKey.PRODUCE, hold, times=1)
            batch = [
                await producer.send("t", b"innocent"),
                await producer.send("t", b"bad", timestamp_ms=1 << 61),
                await producer.send("t", b"innocent, too"),
            ]
            await hold.arrived()
            after = await producer.send("t", b"after")
            hold.release()
            errors = [await outcome(one) for one in batch]
            assert [isinstance(error, RecordRefused) and error.persisted for error in errors] == ["no"] * 3
            assert ["other records of its batch" in str(error) for error in errors] == [True, False, True]
            assert (before.offset, (await after).offset) == (0, 1)
            for value in (b"innocent", b"innocent, too"):
                await producer.send_and_wait("t", value)
        assert values(cluster) == [b"before", b"after", b"innocent", b"innocent, too"]

    virtually(story, brokers=1, topics={"t": 1})


async def outcome(delivery: Any) -> object:
    try:
        return await delivery
    except ProduceError as error:
        return error
