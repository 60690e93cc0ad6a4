"""What the error codes of OffsetCommit and OffsetFetch say: about the coordinator, the topics, and the member."""

from __future__ import annotations

from typing import Final

from ...error_codes import ErrorCode

#: After these errors the coordinator is looked up anew. The offsets of a commit may be stored all the same: so a broker
#: says, too, that it has appended them, and has not heard in time from enough replicas.
NOT_THE_COORDINATOR: Final = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT}
)
#: After these errors the metadata are asked for anew: the topic may have been deleted or recreated.
TOPIC_NOT_KNOWN: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID}
)
#: These errors say nothing of other topics: their offsets are stored all the same.
OF_SINGLE_TOPICS: Final = TOPIC_NOT_KNOWN | {ErrorCode.TOPIC_AUTHORIZATION_FAILED}
#: After these errors the group has gone on without the member that sent the commit. Two codes more say so where the
#: commit is part of a transaction (core/transactions/verdicts.py). A commit of its own treats them in other ways: after
#: STALE_MEMBER_EPOCH it is sent again with the member's newer epoch, and FENCED_INSTANCE_ID is MemberFenced. A
#: transaction's commit names the member as the application has passed it, so no other attempt does better.
OUTSIDE_THE_GROUP: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
    }
)
