"""The two sticky assignors, eager and cooperative: as even as possible, and with few partitions that move.

They use the same two algorithms as Java today (KIP-54 and its later repairs): sticky_constrained.py where all members
subscribe to the same topics, sticky_general.py where they do not. For cooperative rebalancing (KIP-429) one step comes
on top. Members count in the order of their ids, where Java takes them in the order of a hash map. So the result is one
that Java could have had, and it is the same every time.
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
    """Assign all partitions of an eager group. Its members gave theirs up, and name them in their user data."""
    return _assign(counts, members, sticky_claim)[0]


def assign_cooperative_sticky(counts: PartitionCounts, members: Members) -> GroupAssignment:
    """Assign all partitions but those that are to move from a member that still reads them.

    From this assignment that member learns that it loses the partition. It gives it up and joins again, and the next
    round assigns it. So no partition ever has two readers, and a member that loses nothing reads on.
    """
    assignment, claims = _assign(counts, members, cooperative_claim)
    held_back = transferring_ownership(assignment, claims)
    return {member_id: [tp for tp in partitions if tp not in held_back] for member_id, partitions in assignment.items()}


def transferring_ownership(assignment: GroupAssignment, claims: Claims) -> dict[TopicPartition, str]:
    """Return the new owner of each partition that another member owns, or that two members claim.

    Java computes this where all members subscribe to the same topics. Otherwise it compares the claims with the
    assignment, and there it trusts claims of old generations and double claims. This function treats both cases alike.
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
