"""The partitions that a classic group member owns, and which of them it must give up before it joins again or leaves.

An eager member gives up all its partitions before it joins. A cooperative one (KIP-429) tells the group what it owns,
learns from the assignment what to give up, gives up only that, and joins once more, so that the next assignment can
give it to others.
"""

from __future__ import annotations

from typing import TypeAlias

from ....assignor import NO_CLAIM, Claim, RebalanceProtocol
from ....types import TopicPartition

Partitions: TypeAlias = tuple[TopicPartition, ...]


class OwnedPartitions:
    """The partitions of one membership. A Revoke or Lost is under way from ``begin_revocation`` to ``end_revocation``.

    ``last``: what the newest assignment gave this member, even if it has not taken or not kept that.
    """

    def __init__(self, protocol: RebalanceProtocol) -> None:
        self.owned: Partitions = ()
        self.last = NO_CLAIM
        self.is_cooperative = protocol is RebalanceProtocol.COOPERATIVE
        self._going: frozenset[TopicPartition] = frozenset()
        self._promised: Partitions | None = None

    def not_to_be_kept(self, topics: frozenset[str]) -> Partitions:
        """What the member must give up before it joins again for ``topics``; without any topics, before it leaves."""
        if not self.is_cooperative:
            return self.owned
        return tuple(tp for tp in self.owned if tp.topic not in topics)

    def begin_revocation(self, partitions: Partitions, then: Partitions | None = None) -> None:
        """The member begins to give up ``partitions``. Afterwards it takes exactly ``then``, if that is given.

        This cancels what an earlier revocation was to be followed by.
        """
        self._going = frozenset(partitions)
        self._promised = then

    def end_revocation(self) -> Partitions | None:
        """The revocation under way is over. Return what the member was to take afterwards; None for nothing."""
        self.owned = tuple(tp for tp in self.owned if tp not in self._going)
        promised, self._promised = self._promised, None
        self._going = frozenset()
        return promised

    def assigned(self, partitions: Partitions, generation_id: int) -> Partitions:
        """The newest assignment is ``partitions``. Return what the member must give up first (eager: nothing)."""
        self.last = Claim(partitions, generation_id)
        kept = frozenset(partitions)
        return tuple(tp for tp in self.owned if tp not in kept)

    def take(self, partitions: Partitions) -> Partitions:
        """Own ``partitions`` from here on. Return those of them that are new."""
        before = frozenset(self.owned)
        self.owned = partitions
        return tuple(tp for tp in partitions if tp not in before)
