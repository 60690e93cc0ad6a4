"""What each error code of a Produce response means for its batch: Kafka's Sender, and the table in docs/design.md."""

from __future__ import annotations

from enum import Enum, auto
from typing import Final, NamedTuple

from ...error_codes import ErrorCode, error_code
from ...errors import is_retriable
from .failure import Harm


class Verdict(Enum):
    """What to do with a batch that was answered."""

    STORED = auto()  #: it is in the log
    DUPLICATE = auto()  #: it was in the log before: an earlier attempt, whose answer was lost, had stored it
    RETRY = auto()  #: send the same bytes again, after a pause
    REFRESH = auto()  #: the same, and the metadata are wrong
    SPLIT = auto()  #: send its records as several batches; a single record is too large
    GAP = auto()  #: its sequence is not the next one (KIP-98)
    NEW_EPOCH = auto()  #: the broker knows a newer epoch, or nothing, of this producer id (KIP-360)
    REFUSED = auto()  #: sending it again would not help


class Rule(NamedTuple):
    """``unclear``: the broker may have stored the batch all the same. ``harm``: what else ends if it fails."""

    verdict: Verdict
    unclear: bool = False
    harm: Harm = Harm.BATCH


_RETRY: Final = Rule(Verdict.RETRY)
_REFRESH: Final = Rule(Verdict.REFRESH)
_REFUSED: Final = Rule(Verdict.REFUSED)
#: The rule for a denial that may be due to the age of a token.
DOUBTED: Final = _RETRY

RULES: Final[dict[int, Rule]] = {
    ErrorCode.NONE: Rule(Verdict.STORED),
    ErrorCode.DUPLICATE_SEQUENCE_NUMBER: Rule(Verdict.DUPLICATE),
    # The batch was damaged on its way. franz-go fails it; a damaged copy says nothing about the next one.
    ErrorCode.CORRUPT_MESSAGE: _RETRY,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _REFRESH,
    ErrorCode.LEADER_NOT_AVAILABLE: _REFRESH,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: _REFRESH,
    ErrorCode.REPLICA_NOT_AVAILABLE: _REFRESH,
    # The disk of the leader has failed, perhaps once the batch was in its log: an index, say, was not written.
    ErrorCode.KAFKA_STORAGE_ERROR: Rule(Verdict.REFRESH, unclear=True),
    ErrorCode.FENCED_LEADER_EPOCH: _REFRESH,
    ErrorCode.UNKNOWN_LEADER_EPOCH: _REFRESH,
    ErrorCode.UNKNOWN_TOPIC_ID: _REFRESH,
    ErrorCode.INCONSISTENT_TOPIC_ID: _REFRESH,
    ErrorCode.NETWORK_EXCEPTION: Rule(Verdict.REFRESH, unclear=True),
    # Appended on the leader, and not on enough followers in time; the leader keeps it.
    ErrorCode.REQUEST_TIMED_OUT: Rule(Verdict.RETRY, unclear=True),
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Rule(Verdict.RETRY, unclear=True),
    ErrorCode.NOT_ENOUGH_REPLICAS: _RETRY,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY,
    ErrorCode.NOT_COORDINATOR: _RETRY,
    # The coordinator still writes the markers of the transaction before (KIP-890): normal with implicit joining.
    ErrorCode.CONCURRENT_TRANSACTIONS: _RETRY,
    ErrorCode.LISTENER_NOT_FOUND: _RETRY,
    ErrorCode.UNSTABLE_OFFSET_COMMIT: _RETRY,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: _RETRY,
    ErrorCode.MESSAGE_TOO_LARGE: Rule(Verdict.SPLIT),
    # Longer than a segment of the topic. The broker looks at that before it appends; Java's Sender fails the batch.
    ErrorCode.RECORD_LIST_TOO_LARGE: Rule(Verdict.SPLIT),
    ErrorCode.INVALID_TOPIC_EXCEPTION: _REFUSED,
    ErrorCode.INVALID_REQUIRED_ACKS: _REFUSED,
    ErrorCode.INVALID_TIMESTAMP: _REFUSED,
    ErrorCode.INVALID_RECORD: _REFUSED,
    ErrorCode.INVALID_REQUEST: _REFUSED,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _REFUSED,
    ErrorCode.POLICY_VIOLATION: _REFUSED,
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: _REFUSED,
    ErrorCode.UNSUPPORTED_VERSION: Rule(Verdict.REFUSED, harm=Harm.PRODUCER),
    ErrorCode.UNKNOWN_SERVER_ERROR: Rule(Verdict.REFUSED, unclear=True),
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Rule(Verdict.REFUSED, harm=Harm.TRANSACTION),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Rule(Verdict.REFUSED, harm=Harm.PRODUCER),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Rule(Verdict.REFUSED, harm=Harm.PRODUCER),
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER: Rule(Verdict.GAP, harm=Harm.TRANSACTION),
    ErrorCode.UNKNOWN_PRODUCER_ID: Rule(Verdict.NEW_EPOCH, harm=Harm.TRANSACTION),
    ErrorCode.INVALID_PRODUCER_EPOCH: Rule(Verdict.NEW_EPOCH, harm=Harm.TRANSACTION),
    ErrorCode.INVALID_TXN_STATE: Rule(Verdict.REFUSED, harm=Harm.TRANSACTION),
    # The transactional id was idle for so long that its coordinator has forgotten it: an abort finds that out.
    ErrorCode.INVALID_PRODUCER_ID_MAPPING: Rule(Verdict.REFUSED, harm=Harm.TRANSACTION),
    ErrorCode.PRODUCER_FENCED: Rule(Verdict.REFUSED, harm=Harm.PRODUCER),
    ErrorCode.TRANSACTION_ABORTABLE: Rule(Verdict.REFUSED, harm=Harm.TRANSACTION),
}


def rule_of(code: int) -> Rule:
    """Return the rule for an error code; for one that Produce should not answer with, by whether it is retriable.

    Nobody knows what such a broker has done with the batch.
    """
    known = RULES.get(error_code(code))
    return known if known is not None else Rule(Verdict.RETRY if is_retriable(code) else Verdict.REFUSED, unclear=True)
