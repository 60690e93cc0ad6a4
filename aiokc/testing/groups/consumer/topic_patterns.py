"""Server-side patterns of topics: which are valid, and which topics each of them matches (KIP-848)."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from typing import Final

from ....error_codes import ErrorCode
from ...refusal import Refusal

# What Python's patterns have, and RE2J's have not: look-around, conditions, back-references, possessive repetition.
_NOT_RE2J: Final = re.compile(r"(?<!\\)(?:\\\\)*(?:\(\?(?:[=!>(#]|<[=!]|P=|P>)|\\[1-9]|[*+?}]\+)")
#: Seconds. The patterns are not matched again sooner, although topics were created.
_REST: Final = 10.0


def check_pattern(pattern: str) -> None:
    """Raise Refusal where the broker does not accept this pattern."""
    why = "look-around and back-references are not supported" if _NOT_RE2J.search(pattern) else ""
    try:
        re.compile(pattern)
    except re.error as error:
        why = str(error)
    if why:
        said = f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {why}."
        raise Refusal(ErrorCode.INVALID_REGULAR_EXPRESSION, said)


class TopicPatterns:
    """The patterns of a group's members, and the topics that each one matched last.

    A pattern matches nothing until it is resolved, which happens in the background of somebody's heartbeat.
    """

    def __init__(self) -> None:
        self.resolved: dict[str, frozenset[str]] = {}
        self.is_resolving = False
        self._at = float("-inf")
        self._topics: frozenset[str] = frozenset()

    def topics_of(self, pattern: str) -> frozenset[str]:
        """Return the topics that a pattern matched last; none if it is not resolved yet."""
        return self.resolved.get(pattern, frozenset())

    def keep(self, patterns: Iterable[str]) -> None:
        """Forget the patterns that no member has any more. If none is left, the next one need not wait."""
        known = set(patterns)
        self.resolved = {pattern: topics for pattern, topics in self.resolved.items() if pattern in known}
        if not self.resolved:
            self._at = float("-inf")

    def are_due(self, patterns: Collection[str], topics: Collection[str], now: float, refresh: float) -> bool:
        """Return whether to match them (again): one is new, topics were created, or ``refresh`` seconds are over."""
        if self.is_resolving or not patterns or now - self._at < _REST:
            return False
        return (
            any(pattern not in self.resolved for pattern in patterns)
            or not self._topics.issuperset(topics)
            or now - self._at >= refresh
        )

    def resolve(
        self, patterns: Collection[str], topics: Collection[str], may_describe: Callable[[str], bool], now: float
    ) -> bool:
        """Match whole names of topics that the user may describe; return whether a pattern has other topics now."""
        before = self.resolved
        self.resolved = {
            pattern: frozenset(name for name in topics if re.fullmatch(pattern, name) and may_describe(name))
            for pattern in patterns
        }
        self._at, self._topics, self.is_resolving = now, frozenset(topics), False
        return self.resolved != {pattern: before.get(pattern) for pattern in self.resolved}
