"""Topics that the metadata do not name any more: how long they still count as existing."""

from __future__ import annotations

from collections.abc import Iterable


class MissingTopics:
    """Topics that are missing count as deleted after ``patience`` seconds.

    A broker that has just started may not have heard of a topic yet. To give up its partitions for that would cost a
    group a rebalance, and another one a moment later, when the next answer names the topic again.
    """

    def __init__(self, patience: float) -> None:
        self.patience = patience
        self._since: dict[str, float] = {}

    def kept(self, missing: Iterable[str], now: float) -> set[str]:
        """Return those topics that have not been missing for long. ``missing``: all that count, and that are missing.

        ``now``: the time of the answer that says what exists. Call this for each answer.
        """
        self._since = {topic: self._since.get(topic, now) for topic in missing}
        return {topic for topic, since in self._since.items() if now - since < self.patience}
