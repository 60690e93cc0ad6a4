"""Mode: how the assignment of a consumer comes about."""

from __future__ import annotations

from enum import Enum


class Mode(Enum):
    """How the assignment comes about. To change it, the application has to call unsubscribe() in between."""

    NONE = "nothing"
    TOPICS = "topics"
    PATTERN = "pattern"
    SERVER_PATTERN = "a pattern that the coordinator matches"
    PARTITIONS = "partitions"

    @property
    def is_by_topics(self) -> bool:
        """Whether the application subscribed to topics, by name or pattern, and so does not choose the partitions."""
        return self in (Mode.TOPICS, Mode.PATTERN, Mode.SERVER_PATTERN)
