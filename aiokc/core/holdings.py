"""What a member of a group holds, and what of it must be given up before the member joins again or goes.

Eager members join with empty hands. Cooperative ones (KIP-429) keep everything that nobody has taken from them: they
tell the group what they own, learn from its answer what to give up, give up only that, and join once more, so that
the next assignment can hand it on.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..types import TopicPartition
from .assignment import NO_CLAIM, Claim, RebalanceProtocol


class Holdings:
    """The partitions of one membership. A Revoke or a Lost is under way from ``release`` to ``released``.

    ``last``: what the newest assignment gave this member, whatever became of it since.
    """

    def __init__(self, protocol: RebalanceProtocol) -> None:
        self.owned: tuple[TopicPartition, ...] = ()
        self.last = NO_CLAIM
        self.is_cooperative = protocol is RebalanceProtocol.COOPERATIVE
        self._going: frozenset[TopicPartition] = frozenset()
        self._promised: tuple[TopicPartition, ...] | None = None

    def not_to_be_kept(self, topics: frozenset[str]) -> tuple[TopicPartition, ...]:
        """What has to go before a member that wants ``topics`` joins again; with no topics it joins no more."""
        if not self.is_cooperative:
            return self.owned
        return tuple(tp for tp in self.owned if tp.topic not in topics)

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """These are about to go. Whatever was promised for after an earlier release is off."""
        self._going = frozenset(partitions)
        self._promised = None

    def promise(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Once the release under way is over, exactly these are held."""
        self._promised = partitions

    def released(self) -> tuple[TopicPartition, ...] | None:
        """The release under way is over. Return what was promised for then."""
        self.owned = tuple(tp for tp in self.owned if tp not in self._going)
        promised, self._promised = self._promised, None
        self._going = frozenset()
        return promised

    def assigned(self, partitions: tuple[TopicPartition, ...], generation_id: int) -> tuple[TopicPartition, ...]:
        """The group has given this member ``partitions``. Return what it must give up first: none that is eager."""
        self.last = Claim(partitions, generation_id)
        kept = frozenset(partitions)
        return tuple(tp for tp in self.owned if tp not in kept)

    def take(self, partitions: tuple[TopicPartition, ...]) -> tuple[TopicPartition, ...]:
        """Hold ``partitions`` from here on, and return those of them that are new."""
        before = frozenset(self.owned)
        self.owned = partitions
        return tuple(tp for tp in partitions if tp not in before)
