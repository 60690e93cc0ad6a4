"""What a member of a group holds, and what of it must be given up before the member joins again or goes.

Eager members join with empty hands. Cooperative ones (KIP-429) keep everything that nobody has taken from them: they
tell the group what they own, learn from its answer what to give up, give up only that, and join once more, so that
the next assignment can hand it on.
"""

from __future__ import annotations

from typing import TypeAlias

from ....assignor import NO_CLAIM, Claim, RebalanceProtocol
from ....types import TopicPartition

Partitions: TypeAlias = tuple[TopicPartition, ...]


class OwnedPartitions:
    """The partitions of one membership. A Revoke or Lost is under way from ``begin_revocation`` to ``end_revocation``.

    ``last``: what the newest assignment gave this member, whatever became of it since.
    """

    def __init__(self, protocol: RebalanceProtocol) -> None:
        self.owned: Partitions = ()
        self.last = NO_CLAIM
        self.is_cooperative = protocol is RebalanceProtocol.COOPERATIVE
        self._going: frozenset[TopicPartition] = frozenset()
        self._promised: Partitions | None = None

    def not_to_be_kept(self, topics: frozenset[str]) -> Partitions:
        """What has to go before a member that wants ``topics`` joins again; with no topics it joins no more."""
        if not self.is_cooperative:
            return self.owned
        return tuple(tp for tp in self.owned if tp.topic not in topics)

    def begin_revocation(self, partitions: Partitions, then: Partitions | None = None) -> None:
        """``partitions`` are about to go; exactly ``then`` is promised for afterwards.

        What was promised for after an earlier release is off.
        """
        self._going = frozenset(partitions)
        self._promised = then

    def end_revocation(self) -> Partitions | None:
        """The release under way is over. Return what was promised for then."""
        self.owned = tuple(tp for tp in self.owned if tp not in self._going)
        promised, self._promised = self._promised, None
        self._going = frozenset()
        return promised

    def assigned(self, partitions: Partitions, generation_id: int) -> Partitions:
        """The group has given this member ``partitions``. Return what it must give up first: none that is eager."""
        self.last = Claim(partitions, generation_id)
        kept = frozenset(partitions)
        return tuple(tp for tp in self.owned if tp not in kept)

    def take(self, partitions: Partitions) -> Partitions:
        """Hold ``partitions`` from here on, and return those of them that are new."""
        before = frozenset(self.owned)
        self.owned = partitions
        return tuple(tp for tp in partitions if tp not in before)
