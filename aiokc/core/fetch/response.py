"""Gives each partition of a Fetch response a verdict: keep it, refresh the metadata, retry, reset, validate or fail."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final

from ...error_codes import ErrorCode, error_code
from ...errors import BrokerError, broker_error
from ...wire.messages.fetch import PartitionData
from ..cluster.leader_hints import DENIALS
from .fetched_partition import FetchedPartition
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

# Errors that newer metadata cure: another leader, a newer epoch, a topic that is new, gone or recreated (KIP-516).
_REFRESH = DENIALS | {ErrorCode.INCONSISTENT_TOPIC_ID, ErrorCode.OFFSET_NOT_AVAILABLE}
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
        if data.error_code:
            self.verdict = verdict(data.error_code)
        else:
            self.verdict = DATA if data.diverging_epoch is None else Verdict.DIVERGING

    def fetched(self, node_id: int) -> FetchedPartition:
        """Return what to put into the buffer: the records, or the error in their place."""
        target, data = self.target, self.data
        aborted = None
        if data.aborted_transactions:
            aborted = [(item.producer_id, item.first_offset) for item in data.aborted_transactions]
        records = data.records or memoryview(b"")
        fetched = FetchedPartition(target.tp, target.token, target.offset, records, aborted, broker=node_id)
        if self.verdict is Verdict.FAIL:
            fetched.error = self.error(node_id)
        return fetched

    def error(self, node_id: int) -> BrokerError:
        where = f"fetching {self.target.tp} at offset {self.target.offset} from broker {node_id}"
        return broker_error(self.data.error_code, where, needs="READ")


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
