"""What a failure says of its records: whether they were sent, and may be in the log."""

from __future__ import annotations

import pytest

from aiokc.core.produce.failure import Cause, Failure
from aiokc.errors import DeliveryTimedOut, ProduceError, TransactionAborted
from aiokc.types import TopicPartition


@pytest.mark.parametrize(
    ("cause", "kind", "unsent", "sent"),
    [
        (Cause.EXPIRED, DeliveryTimedOut, "it was never sent", "it was sent, and there is no answer"),
        (Cause.UNCLEAR, ProduceError, "enable_renumbering=False", "its place in the partition was lost"),
        (Cause.ABORTED, TransactionAborted, "not sent", "sent, and not acknowledged"),
    ],
)
def test_it_tells_what_was_sent_from_what_was_not(
    cause: Cause, kind: type[ProduceError], unsent: str, sent: str
) -> None:
    for failure, persisted, text in ((Failure(cause), "no", unsent), (Failure(cause).maybe(), "maybe", sent)):
        error = failure.error_of(TopicPartition("t", 3), 0)
        assert isinstance(error, kind)
        assert (error.topic, error.partition, error.persisted) == ("t", 3, persisted)
        assert text in str(error)
