"""Which topics a subscription by pattern matches in a snapshot of the cluster."""

from __future__ import annotations

import re
from collections.abc import Generator, Mapping

from ...types import TopicInfo


class TopicPattern:
    """A regular expression that a topic's whole name must match. Two are equal where both arguments are.

    ``exclude_internal`` leaves out the topics that Kafka keeps for itself (__consumer_offsets, __transaction_state).
    """

    def __init__(self, pattern: re.Pattern[str], *, exclude_internal: bool = True) -> None:
        self._pattern = pattern
        self._exclude_internal = exclude_internal
        self._verdicts: dict[str, bool] = {}  # by the names in the newest snapshot: a verdict never changes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TopicPattern):
            return NotImplemented
        return (self._pattern, self._exclude_internal) == (other._pattern, other._exclude_internal)

    def __hash__(self) -> int:
        return hash((self._pattern, self._exclude_internal))

    def __str__(self) -> str:
        return repr(self._pattern.pattern)

    def may_match(self, topic: str) -> bool:
        """Whether ``topic`` matches by its name."""
        verdict = self._verdicts.get(topic)
        return self._pattern.fullmatch(topic) is not None if verdict is None else verdict

    def match(self, topics: Mapping[str, TopicInfo], *, every: int = 500) -> Generator[None, None, frozenset[str]]:
        """Return which of ``topics`` match. Yield after each ``every`` names, so that the loop is not blocked."""
        verdicts: dict[str, bool] = {}
        matching: list[str] = []
        for number, (name, info) in enumerate(topics.items(), start=1):
            verdicts[name] = self.may_match(name)
            if verdicts[name] and not (self._exclude_internal and info.is_internal):
                matching.append(name)
            if number % every == 0:
                yield
        self._verdicts = verdicts
        return frozenset(matching)
