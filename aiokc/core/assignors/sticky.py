"""The sticky assignors: as even as possible, and of all even assignments one that moves little.

The same two algorithms as in Java (today's, KIP-54 with its repairs since), one for members that all subscribe alike
and one for members that do not, and one thing on top for cooperative rebalancing (KIP-429). Members count in the
order of their ids, where Java takes them in the order of a hash map; so this leader's result is one that Java's could
have had, and the same one every time.
"""

from __future__ import annotations

from collections.abc import Callable

from ...assignor import Claim, MemberSubscription
from ...types import TopicPartition
from .sticky_claims import Claims, cooperative_claim, settle, sticky_claim
from .sticky_constrained import assign_constrained
from .sticky_general import assign_general
from .values import GroupAssignment, Members, PartitionCounts, java_order, subscribed


def assign_sticky(counts: PartitionCounts, members: Members) -> GroupAssignment:
    """Assign everything, members of an eager group: they gave up what they had, and say it in their user data."""
    return _assign(counts, members, sticky_claim)[0]


def assign_cooperative_sticky(counts: PartitionCounts, members: Members) -> GroupAssignment:
    """Assign everything but what another member still reads.

    That member learns here that it loses the partition, gives it up and joins again; the next round assigns it. So no
    partition ever has two readers, and whoever loses nothing reads on.
    """
    assignment, claims = _assign(counts, members, cooperative_claim)
    held_back = transferring_ownership(assignment, claims)
    return {member_id: [tp for tp in partitions if tp not in held_back] for member_id, partitions in assignment.items()}


def transferring_ownership(assignment: GroupAssignment, claims: Claims) -> dict[TopicPartition, str]:
    """Return the new owner of each partition that somebody else holds, or that two members say they hold.

    Java works this out for members that subscribe alike and compares claims and assignment for others, where it trusts
    claims of old generations and double ones. Here both are judged alike.
    """
    return {
        tp: member_id
        for member_id, partitions in assignment.items()
        for tp in partitions
        if tp in claims.contested or claims.holders.get(tp, member_id) != member_id
    }


def _assign(
    counts: PartitionCounts, members: Members, claim: Callable[[MemberSubscription], Claim]
) -> tuple[GroupAssignment, Claims]:
    counts = {topic: counts[topic] for topic in subscribed(counts, members)}
    claims = settle({member_id: claim(member) for member_id, member in members.items()}, counts)
    order = sorted(members, key=java_order)
    if len({member.topics for member in members.values()}) == 1:
        partitions = [TopicPartition(topic, number) for topic in counts for number in range(counts[topic])]
        return assign_constrained(partitions, order, claims), claims
    return assign_general(counts, order, members, claims), claims
