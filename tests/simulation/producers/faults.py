"""The faults that only producers meet, for `Nemesis`: refused batches, late requests, slow transactions."""

from __future__ import annotations

import asyncio
from random import Random
from typing import Any, Final

from aiokc.error_codes import ErrorCode
from aiokc.testing import faults
from aiokc.wire import Request
from aiokc.wire.messages.discovery import FindCoordinatorRequest, MetadataRequest
from aiokc.wire.messages.produce import InitProducerIdRequest, ProduceRequest
from aiokc.wire.messages.txn import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    TxnOffsetCommitRequest,
)
from tests.suite.unused_faults import may_be_unused

from ..worlds.faults import Apply, Nemesis, intercepting, moved_coordinator
from ..worlds.wrong_leaders import naming_wrong_leaders

APIS: Final[tuple[type[Request[Any]], ...]] = (ProduceRequest, ProduceRequest, MetadataRequest, InitProducerIdRequest)
TRANSACTION_APIS: Final[tuple[type[Request[Any]], ...]] = (
    *APIS,
    FindCoordinatorRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
)
_CONTROL: Final = (
    InitProducerIdRequest,
    AddPartitionsToTxnRequest,
    AddOffsetsToTxnRequest,
    TxnOffsetCommitRequest,
    EndTxnRequest,
    EndTxnRequest,
)
_RETRIABLE: Final = (
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED,
)
_AFTER_APPEND: Final = (
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,  # the leader has lost the partition while it waited for the followers
)
_FOR_GOOD: Final = (ErrorCode.INVALID_TIMESTAMP, ErrorCode.INVALID_RECORD, ErrorCode.POLICY_VIOLATION)
_COORDINATOR: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


async def _one_partition(nemesis: Nemesis, random: Random, seconds: float) -> None:
    topic, index = nemesis.partition(random)
    code = random.choice((*_RETRIABLE, *_FOR_GOOD))
    nemesis.note(f"{topic}-{index} alone: {code.name}")
    fault = faults.refuse_partition(topic, index, code)
    may_be_unused(nemesis.cluster.intercept(ProduceRequest, fault, times=random.randint(1, 4)))


async def _slow_markers(nemesis: Nemesis, random: Random, seconds: float) -> None:
    delay = random.choice((0.02, 0.3, 2.0))
    nemesis.note(f"markers come {delay} s late for {seconds:.2f} s")
    nemesis.cluster.slow_markers(delay)
    await asyncio.sleep(seconds)
    nemesis.cluster.slow_markers()


async def _coordinator_move(nemesis: Nemesis, random: Random, seconds: float) -> None:
    if len(nemesis.down) < len(nemesis.ports):
        name = random.choice((*nemesis.hosts(), "twins"))
        nemesis.note(f"transactional id {name} is coordinated by broker {moved_coordinator(nemesis, name)}")


def _refusing(name: str, *codes: ErrorCode) -> Apply:
    return intercepting(name, lambda random: random.choice(codes), ProduceRequest)


def _late(random: Random) -> faults.Fault:
    return faults.deliver_late(random.choice((0.1, 0.5, 6.0)) * random.uniform(0.5, 1.0))


PRODUCE_APPLY: Final[dict[str, Apply]] = {
    "produce error": _refusing("an error of", *_RETRIABLE),
    "refused after append": intercepting(
        "refused after append", lambda random: faults.refuse_afterwards(random.choice(_AFTER_APPEND)), ProduceRequest
    ),
    "late produce": intercepting("delivered late", _late, ProduceRequest),
    "lose produce": intercepting("lost answer to", lambda random: faults.lose_answer(), ProduceRequest),
    "one partition": _one_partition,
    "refused for good": _refusing("refused for good", *_FOR_GOOD),
    "too large": _refusing("too large", ErrorCode.MESSAGE_TOO_LARGE),
    "gap": _refusing("a gap in", ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    "old epoch": _refusing("an old epoch of", ErrorCode.INVALID_PRODUCER_EPOCH),
    "forgotten producer": _refusing("a forgotten producer of", ErrorCode.UNKNOWN_PRODUCER_ID),
    "wrong leader": naming_wrong_leaders(ProduceRequest),
    "throttle": intercepting("throttled", lambda random: faults.throttle(random.choice((50, 1_000))), ProduceRequest),
    "transaction coordinator move": _coordinator_move,
    "transaction coordinator error": intercepting(
        "coordinator error at", lambda random: random.choice(_COORDINATOR), *_CONTROL
    ),
    "slow markers": _slow_markers,
    "lose control": intercepting("lost answer to", lambda random: faults.lose_answer(), *_CONTROL),
    "late control": intercepting("delivered late", _late, *_CONTROL),
}
