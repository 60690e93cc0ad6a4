"""Builds the control requests of transactions, and reads their answers: which version each kind of transaction uses."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from ...error_codes import ErrorCode
from ...types import GroupMetadata, OffsetAndMetadata, TopicPartition
from ...wire import Request, Response
from ...wire.messages.produce import InitProducerIdRequest, InitProducerIdResponse
from ...wire.messages.txn import (
    AddOffsetsToTxnRequest,
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    EndTxnRequest,
    EndTxnResponse,
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
)
from ...wire.primitives import NO_UUID
from ..by_topic import by_topic
from ..produce.identity import NOBODY, ProducerIdentity
from ..versions import VersionRange
from .events import (
    AddOffsetsToTxn,
    AddPartitionsToTxn,
    Answered,
    ControlRequest,
    EndTxn,
    InitProducerId,
    TxnOffsetCommit,
)
from .verdicts import Verdict, verdict

#: The versions of Produce in a transaction, by ``uses_v2``: from 12 on a batch adds its partition (KIP-890).
PRODUCE: Final[Mapping[bool, VersionRange]] = {False: VersionRange(3, 11), True: VersionRange(12, 13)}
#: The first version of TxnOffsetCommit that names the member, by which zombies are refused (KIP-447).
OFFSETS_NAME_MEMBERS_FROM: Final = 3
#: From 5 on it adds its group to the transaction.
_TXN_OFFSET_COMMIT: Final[Mapping[bool, VersionRange]] = {
    False: VersionRange(OFFSETS_NAME_MEMBERS_FROM, 4),
    True: VersionRange(5, 5),
}
#: From 6 on it names topics by id only (KIP-1319), so that the offset of a deleted topic is not stored for a new one.
_WITH_IDS: Final = VersionRange(5, 6)
#: Those of offsets that name no member.
_ONLY_OFFSETS: Final = VersionRange(0, 4)
#: EndTxn from 5 on begins another epoch.
_END_TXN: Final[Mapping[bool, VersionRange]] = {False: VersionRange(0, 4), True: VersionRange(5, 5)}
#: Versions from 4 on are for brokers, which ask about many transactions at once.
_ADD_PARTITIONS: Final = VersionRange(0, 3)
_ADD_OFFSETS: Final = VersionRange(0, 4)
#: From 3 on a producer names its own identity (KIP-360). 6 is for two-phase commits (KIP-939).
_INIT_ANY: Final = VersionRange(0, 5)
_INIT_OWN: Final = VersionRange(3, 5)

# The worst code of several partitions is the one that decides.
_SEVERITY: Final = (
    Verdict.FATAL,
    Verdict.ABORTABLE,
    Verdict.NOTHING_OPEN,
    Verdict.REFUSED,
    Verdict.LOOK_UP,
    Verdict.RETRY_SOME_TIMES,
    Verdict.RETRY,
    Verdict.DONE,
)


@dataclass(frozen=True, slots=True)
class Wording:
    """A control request as it is sent, and the versions that it may have. ``older`` goes in lower ones, if anything."""

    versions: VersionRange
    request: Request[Any]
    older: Request[Any] | None = None


def wording(sent: ControlRequest, transactional_id: str, timeout_ms: int) -> Wording:
    """Return what to send for ``sent``. ``timeout_ms`` is how long the coordinator lets a transaction be open."""
    match sent:
        case InitProducerId():
            anonymous = _init(NOBODY, transactional_id, timeout_ms)
            if sent.identity == NOBODY:
                return Wording(_INIT_ANY, anonymous)
            # Coordinators before Kafka 2.5 give the next epoch to whoever asks: to us as to any other producer.
            return Wording(_INIT_OWN, _init(sent.identity, transactional_id, timeout_ms), older=anonymous)
        case AddPartitionsToTxn():
            return Wording(_ADD_PARTITIONS, _add_partitions(sent, transactional_id))
        case AddOffsetsToTxn():
            return Wording(
                _ADD_OFFSETS,
                AddOffsetsToTxnRequest(
                    transactional_id=transactional_id,
                    producer_id=sent.identity.producer_id,
                    producer_epoch=sent.identity.epoch,
                    group_id=sent.group_id,
                ),
            )
        case TxnOffsetCommit():
            names_nobody = sent.group == GroupMetadata(sent.group.group_id)
            versions = _ONLY_OFFSETS if names_nobody and not sent.uses_v2 else _TXN_OFFSET_COMMIT[sent.uses_v2]
            if sent.uses_v2 and _have_ids(sent.offsets):
                versions = _WITH_IDS
            return Wording(versions, _offset_commit(sent, transactional_id))
        case EndTxn():
            return Wording(
                _END_TXN[sent.uses_v2],
                EndTxnRequest(
                    transactional_id=transactional_id,
                    producer_id=sent.identity.producer_id,
                    producer_epoch=sent.identity.epoch,
                    committed=sent.committed,
                ),
            )


def _init(identity: ProducerIdentity, transactional_id: str, timeout_ms: int) -> InitProducerIdRequest:
    return InitProducerIdRequest(
        transactional_id=transactional_id,
        transaction_timeout_ms=timeout_ms,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
    )


def _add_partitions(sent: AddPartitionsToTxn, transactional_id: str) -> AddPartitionsToTxnRequest:
    return AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=sent.identity.producer_id,
        v3_and_below_producer_epoch=sent.identity.epoch,
        v3_and_below_topics=[
            AddPartitionsToTxnTopic(name=topic, partitions=numbers)
            for topic, numbers in by_topic(sent.partitions).items()
        ],
    )


def _offset_commit(sent: TxnOffsetCommit, transactional_id: str) -> TxnOffsetCommitRequest:
    return TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=sent.group.group_id,
        producer_id=sent.identity.producer_id,
        producer_epoch=sent.identity.epoch,
        generation_id_or_member_epoch=sent.group.generation_id,
        member_id=sent.group.member_id,
        group_instance_id=sent.group.group_instance_id,
        topics=list(_topics(sent.offsets)),
    )


def _have_ids(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> bool:
    """Whether each topic can be named by an id: the one that all of its offsets have."""
    ids = {(tp.topic, offset.topic_id) for tp, offset in offsets.items()}
    return len(ids) == len({topic for topic, _ in ids}) and all(topic_id is not None for _, topic_id in ids)


def _topics(offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Iterator[TxnOffsetCommitRequestTopic]:
    for topic, numbers in by_topic(offsets).items():
        wanted = [(number, offsets[TopicPartition(topic, number)]) for number in numbers]
        yield TxnOffsetCommitRequestTopic(
            name=topic,
            topic_id=wanted[0][1].topic_id or NO_UUID,
            partitions=[
                TxnOffsetCommitRequestPartition(
                    partition_index=number,
                    committed_offset=offset.offset,
                    committed_leader_epoch=-1 if offset.leader_epoch is None else offset.leader_epoch,
                    committed_metadata=offset.metadata,
                )
                for number, offset in wanted
            ],
        )


def answer(sent: ControlRequest, response: Response, transaction_version: int) -> Answered:
    """Return what ``response`` says: its error code, or the worst one that it has for any partition."""
    code, what, identity = 0, "", None
    match response:
        case InitProducerIdResponse() | EndTxnResponse():
            code, identity = response.error_code, _identity(response.producer_id, response.producer_epoch)
        case AddOffsetsToTxnResponse():
            code = response.error_code
        case AddPartitionsToTxnResponse():
            added = [
                (TopicPartition(topic.name, one.partition_index), one.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for one in topic.results_by_partition
            ]
            code, what = _worst(sent, added)
        case TxnOffsetCommitResponse():
            names = _names(sent)
            stored = [
                (TopicPartition(topic.name or names.get(topic.topic_id, ""), one.partition_index), one.error_code)
                for topic in response.topics
                for one in topic.partitions
            ]
            code, what = _worst(sent, stored)
    return Answered(sent, code, what, identity, transaction_version)


def _names(sent: ControlRequest) -> dict[UUID, str]:
    """Return the names of the topics that the answer to ``sent`` may have by their ids."""
    offsets = sent.offsets if isinstance(sent, TxnOffsetCommit) else {}
    return {offset.topic_id: tp.topic for tp, offset in offsets.items() if offset.topic_id is not None}


def _identity(producer_id: int, epoch: int) -> ProducerIdentity | None:
    return ProducerIdentity(producer_id, epoch) if producer_id >= 0 else None


def _partitions(sent: ControlRequest) -> Collection[TopicPartition]:
    """Return the partitions that the answer to ``sent`` has to name."""
    match sent:
        case AddPartitionsToTxn():
            return sent.partitions
        case TxnOffsetCommit():
            return sent.offsets
        case _:
            return ()


def _worst(sent: ControlRequest, told: Sequence[tuple[TopicPartition, int]]) -> tuple[int, str]:
    """Return the code that decides, and what it is about. A partition that was left out has none: it is sent again."""
    codes: list[tuple[str, int]] = [(str(tp), code) for tp, code in told if code]
    missing = set(_partitions(sent)).difference(tp for tp, _ in told)
    codes += [(f"{tp}, which the answer leaves out", ErrorCode.NETWORK_EXCEPTION) for tp in sorted(missing)]

    def severity(one: tuple[str, int]) -> tuple[int, bool]:
        return _SEVERITY.index(verdict(sent, one[1])), one[1] == ErrorCode.OPERATION_NOT_ATTEMPTED

    what, code = min(codes, key=severity, default=("", 0))
    return code, what
