"""A transaction that has offsets of a group."""

from __future__ import annotations

import uuid
from typing import Any

from aiokc.error_codes import ErrorCode
from aiokc.wire.messages.discovery import FindCoordinatorRequest
from aiokc.wire.messages.produce import InitProducerIdRequest
from aiokc.wire.messages.txn import (
    AddOffsetsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

from .group_scene import NOT_YET, Actor

_BUSY = NOT_YET | {ErrorCode.CONCURRENT_TRANSACTIONS}


class Transaction:
    """One transaction of a producer of its own, to which a group's offsets belong."""

    def __init__(self, actor: Actor, timeout_ms: int = 60_000) -> None:
        self._actor = actor
        self._timeout_ms = timeout_ms
        self._name = f"transaction-{uuid.uuid4().hex}"

    async def begin(self) -> None:
        find = FindCoordinatorRequest(key_type=1, key=self._name)
        while (await self._actor.ask(find, 3)).error_code in NOT_YET:
            pass
        initial = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=self._timeout_ms)
        while (answer := await self._actor.ask(initial, 4)).error_code in _BUSY:
            pass
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        assert await self.add_offsets() == 0

    def _identity(self) -> dict[str, Any]:
        return {"transactional_id": self._name, "producer_id": self.producer_id, "producer_epoch": self.epoch}

    async def add_offsets(self) -> int:
        """Add the group's offsets to the transaction; return the error code."""
        return await self._until_ready(AddOffsetsToTxnRequest(**self._identity(), group_id=self._actor.scene.group), 3)

    async def _until_ready(self, request: Any, version: int) -> int:
        while (answer := await self._actor.ask(request, version)).error_code in _BUSY:
            pass
        return int(answer.error_code)

    async def commit_offset(self, offset: int = 1, metadata: str = "", partition: int = 0, **changes: Any) -> int:
        """Commit an offset that takes effect when the transaction is committed; return the error code."""
        actor = self._actor
        one = TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
        options: dict[str, Any] = {
            "group_id": actor.scene.group,
            "generation_id_or_member_epoch": actor.generation,
            "member_id": actor.member_id,
            "group_instance_id": actor.instance,
            "topics": [TxnOffsetCommitRequestTopic(name=actor.scene.topic, partitions=[one])],
        }
        answer = await actor.ask(TxnOffsetCommitRequest(**self._identity() | options | changes), 3)
        return int(answer.topics[0].partitions[0].error_code)

    async def end(self, *, committed: bool) -> None:
        assert await self._until_ready(EndTxnRequest(**self._identity(), committed=committed), 3) == 0


async def commit_in_transaction(actor: Actor, **changes: Any) -> int:
    """Commit an offset in a transaction that is left open."""
    transaction = Transaction(actor)
    await transaction.begin()
    return await transaction.commit_offset(**changes)
