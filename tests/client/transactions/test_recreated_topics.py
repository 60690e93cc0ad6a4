"""Offsets in a transaction: those of a topic that was deleted are not stored for a new one of its name (KIP-1319)."""

from __future__ import annotations

import pytest

from aiokc import GroupMetadata
from aiokc.error_codes import ErrorCode
from aiokc.errors import TransactionAbortable
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.brokers.released_versions import SINCE

from .on_stage import IN0, Stage, scenario


@scenario(2, brokers=1)
async def test_a_topic_that_was_created_anew_gets_no_old_offset(stage: Stage) -> None:
    stage.cluster.append("in", b"old", partition=0)
    async with stage.consumer() as reader, stage.producer() as producer:
        reader.assign([IN0])
        batch = await reader.getmany(timeout_ms=5_000)
        stage.cluster.recreate_topic("in")
        with pytest.raises(TransactionAbortable, match="UNKNOWN_TOPIC_ID"):
            async with producer.transaction() as transaction:
                await transaction.send_offsets(batch.next_offsets, GroupMetadata("g"))
        assert stage.cluster.committed("g") == {}


@scenario(2, brokers=1)
async def test_a_coordinator_that_has_not_heard_of_a_new_topic_yet_is_asked_again(stage: Stage) -> None:
    stage.cluster.append("in", b"new", partition=0)
    async with stage.consumer() as reader, stage.producer() as producer:
        reader.assign([IN0])
        batch = await reader.getmany(timeout_ms=5_000)
        stage.cluster.intercept(ApiKey.TXN_OFFSET_COMMIT, ErrorCode.UNKNOWN_TOPIC_ID, times=1)
        async with producer.transaction() as transaction:
            await transaction.send_offsets(batch.next_offsets, GroupMetadata("g"))
    assert await stage.committed() == {IN0: 1}


def test_the_releases_that_the_guarantees_name() -> None:
    """docs/guarantees.md: from which brokers on commits name topics by id; and a message of the pool's."""
    by_id = {ApiKey.OFFSET_COMMIT: ("4.2", 10), ApiKey.TXN_OFFSET_COMMIT: ("4.4", 6), ApiKey.METADATA: ("3.1", 12)}
    for api, (release, version) in by_id.items():
        assert next(one for one, (_, last) in SINCE[api].items() if last >= version) == release
