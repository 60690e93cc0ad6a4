"""Why a Metadata request is sent: whether its answer counts where it names a former topic, or a former leader."""

from __future__ import annotations

from enum import Enum


class Occasion(Enum):
    """Why it is. A client that is well asks, too. It does not say which of its topics is meant."""

    REGULAR = "what is known has become old, or topics are followed that no request has asked for"
    LACKING = "something is looked for that the answers before did not have: a topic, a partition, a leader"
    FOUND_WRONG = "a broker has refused what the answers before said, or is not to be reached there"

    @property
    def again(self) -> bool:
        """Whether the answer before was of no use."""
        return self is not Occasion.REGULAR
