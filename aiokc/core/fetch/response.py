"""Gives each partition of a Fetch response a verdict: keep it, refresh the metadata, retry, reset, validate or fail."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from ...error_codes import ErrorCode, error_code
from ...errors import BrokerError, KafkaError, broker_error
from ...wire.messages.fetch import PartitionData
from ..cluster.leader_hints import DENY_LEADING
from .partition.fetched_partition import FetchedPartition
from .session import FetchTarget


class Verdict(Enum):
    """What to do about one partition of a response."""

    DATA = auto()  # keep it (it may be empty)
    REFRESH = auto()  # the metadata are wrong or old: refresh them, ask again
    RETRY = auto()  # ask again later
    OUT_OF_RANGE = auto()  # the offset is not in the log
    DIVERGING = auto()  # the log differs from what was read before that offset (KIP-320)
    FAIL = auto()  # raise it in the application's call


#: A name for code that runs for each partition (see core/subscription/position.py).
DATA: Final = Verdict.DATA

_NO_RECORDS: Final = memoryview(b"")

# Errors that newer metadata cure: another leader, a newer epoch, a topic that is new, gone or recreated (KIP-516).
_REFRESH = DENY_LEADING | {ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.OFFSET_NOT_AVAILABLE}
# Errors that pass without newer metadata.
_RETRY = frozenset({ErrorCode.UNKNOWN_SERVER_ERROR})


#: Errors that end the fetch session and mean nothing else (KIP-227, KIP-516): a new one is opened at once.
SESSION_ERRORS = frozenset(
    {
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class Answer:
    """One partition of a response, and the target that asked for it."""

    __slots__ = ("data", "target", "verdict")

    def __init__(self, target: FetchTarget, data: PartitionData) -> None:
        self.target = target
        self.data = data
        if is_plain(data):
            self.verdict = DATA
        else:
            self.verdict = verdict(data.error_code) if data.error_code else Verdict.DIVERGING

    def error(self, node_id: int) -> BrokerError:
        where = f"fetching {self.target.tp} at offset {self.target.offset} from broker {node_id}"
        return broker_error(self.data.error_code, where, needs="READ")


def is_plain(data: PartitionData) -> bool:
    """Whether the verdict is DATA, as for nearly all partitions of nearly all responses: they need no Answer."""
    return not data.error_code and data.diverging_epoch is None


def is_retried(code: int) -> bool:
    """Whether the partition is asked for again, without a word to the application."""
    return code != 0 and verdict(code) in (Verdict.REFRESH, Verdict.RETRY)


def fetched(
    target: FetchTarget, data: PartitionData, node_id: int, error: KafkaError | None = None
) -> FetchedPartition:
    """Return what to put into the buffer: the records, or the error in their place."""
    aborted = None
    if data.aborted_transactions:
        aborted = [(item.producer_id, item.first_offset) for item in data.aborted_transactions]
    records = _NO_RECORDS if data.records is None else data.records
    return FetchedPartition(target.tp, target.token, target.offset, records, aborted, error, node_id)


def verdict(code: int) -> Verdict:
    """Return the verdict on an error code (behaviour of Kafka's FetchCollector)."""
    code = error_code(code)
    if code == ErrorCode.NONE:
        return DATA
    if code in _REFRESH:
        return Verdict.REFRESH
    if code in _RETRY:
        return Verdict.RETRY
    if code == ErrorCode.OFFSET_OUT_OF_RANGE:
        return Verdict.OUT_OF_RANGE
    return Verdict.FAIL
