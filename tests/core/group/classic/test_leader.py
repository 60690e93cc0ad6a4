"""Which assignments of an assignor the group leader accepts, and which it refuses."""

from __future__ import annotations

import pytest

from aiokc.assignor import Claim, Group, MemberSubscription, RebalanceProtocol
from aiokc.core.assignors.registry import assignors
from aiokc.core.assignors.sticky_claims import cooperative_user_data
from aiokc.core.group.classic.embedded import read_assignment
from aiokc.core.group.classic.leader import assign_group
from aiokc.errors import AssignmentFailed
from aiokc.types import TopicPartition

[COOPERATIVE_STICKY] = assignors(["cooperative-sticky"])
TOPICS = frozenset("t")
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))


class ToTheFirst:
    """An assignor that ignores which member reads which partition."""

    name = "to-the-first"
    protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    def assign(self, group: Group) -> dict[str, list[TopicPartition]]:
        return {min(group.members): [T0, T1, T2]}


def old_member(generation_id: int, *owned: TopicPartition) -> MemberSubscription:
    """A member from before KIP-792: only its assignor's user data names the generation of what it owns."""
    return MemberSubscription(TOPICS, owned, -1, cooperative_user_data(Claim(owned, generation_id)))


def test_what_two_members_claim_goes_to_the_one_that_the_assignor_prefers() -> None:
    group = Group({"t": 3}, {"a": old_member(5, T0), "b": old_member(3, T0), "c": MemberSubscription(TOPICS)})
    written = assign_group(COOPERATIVE_STICKY, group, RebalanceProtocol.COOPERATIVE)
    assert T0 in read_assignment(written["a"]).partitions


@pytest.mark.parametrize("generation_id", [-1, 4])
def test_what_a_member_still_reads_goes_to_no_other_member(generation_id: int) -> None:
    group = Group({"t": 3}, {"a": MemberSubscription(TOPICS), "b": MemberSubscription(TOPICS, (T1,), generation_id)})
    with pytest.raises(AssignmentFailed, match="t-1 goes to 'a' while 'b' still reads it"):
        assign_group(ToTheFirst(), group, RebalanceProtocol.COOPERATIVE)  # type: ignore[arg-type]
