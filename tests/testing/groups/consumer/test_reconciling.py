"""Reconciliation in any order: no partition ever has two owners, and in the end each member has its target."""

from __future__ import annotations

from random import Random
from uuid import UUID

import pytest

from aiokc.testing.groups.consumer.members import Holding, MemberState, TopicIdPartition
from aiokc.testing.groups.consumer.reconciling import reconcile

PARTITIONS: list[TopicIdPartition] = [(UUID(int=1 + number % 2), number) for number in range(8)]


class Member:
    """A client: what it reads (``held``), and the assignment of the newest answer that it has got."""

    def __init__(self) -> None:
        self.held: frozenset[TopicIdPartition] = frozenset()
        self.assigned: frozenset[TopicIdPartition] = frozenset()
        self.topics = {tp[0] for tp in PARTITIONS}

    def follow(self) -> None:
        """Give up what is not assigned any more, or else take what is."""
        going = self.held - self.assigned
        self.held = self.held - going if going else self.assigned


class Coordinator:
    def __init__(self, random: Random) -> None:
        self._random = random
        self.epoch = 1
        self.holdings: dict[Member, Holding] = {}
        self.targets: dict[Member, frozenset[TopicIdPartition]] = {}

    def assign(self) -> None:
        """Draw another assignment; a topic that a member does not subscribe to is not for it."""
        self.epoch += 1
        members = list(self.holdings)
        wanted: dict[Member, set[TopicIdPartition]] = {member: set() for member in members}
        for tp in PARTITIONS:
            who = [member for member in members if tp[0] in member.topics]
            if who:
                wanted[self._random.choice(who)].add(tp)
        self.targets = {member: frozenset(wanted[member]) for member in members}

    def heartbeat(self, member: Member, *, says: bool, changed: bool = False) -> frozenset[TopicIdPartition]:
        """Take the member's next step; return what it may hold. ``says``: it lists what it holds."""
        others = {tp for one, holding in self.holdings.items() if one is not member for tp in holding.partitions}
        holding = self.holdings[member] = reconcile(
            self.holdings[member],
            target=self.targets.get(member, frozenset()),
            assignment_epoch=self.epoch,
            subscribes=lambda tp: tp[0] in member.topics,
            is_owned=others.__contains__,
            owned=member.held if says else None,
            subscription_changed=changed,
        )
        return frozenset(holding.assigned)


class Story:
    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.coordinator = Coordinator(self.random)

    def members(self) -> list[Member]:
        return list(self.coordinator.holdings)

    def beat(self, member: Member, *, says: bool, changed: bool = False, answered: bool = True) -> None:
        assigned = self.coordinator.heartbeat(member, says=says, changed=changed)
        if answered:
            member.assigned = assigned

    def step(self) -> None:
        members, random = self.members(), self.random
        what = random.choice(["join", "leave", "assign", "lose answer", "change", *["beat", "follow"] * 3])
        if what == "join" and len(members) < 5:
            self.coordinator.holdings[Member()] = Holding()
            self.coordinator.assign()
        elif what == "assign" and members:
            self.coordinator.assign()
        elif members:
            self.happen(what, random.choice(members))
        self.check()

    def happen(self, what: str, member: Member) -> None:
        says = self.random.random() < 0.6
        match what:
            case "leave":
                del self.coordinator.holdings[member]
                self.coordinator.assign()
            case "beat":
                self.beat(member, says=says)
            case "lose answer":  # the next one says everything, and its answer has the assignment again
                self.beat(member, says=says, answered=False)
                self.beat(member, says=True)
            case "change":
                member.topics = {tp[0] for tp in PARTITIONS if self.random.random() < 0.7}
                self.coordinator.epoch += 1
                self.coordinator.assign()
                self.beat(member, says=says, changed=True)
            case "follow":
                member.follow()

    def check(self) -> None:
        held = [tp for member in self.members() for tp in member.held]
        assert len(held) == len(set(held)), "two members read one partition"
        for member, holding in self.coordinator.holdings.items():
            assert member.held <= holding.partitions, "it reads what the coordinator counts as free"
            assert holding.assigned.keys().isdisjoint(holding.revoking)
            assert (holding.state is MemberState.UNREVOKED) == bool(holding.revoking)


@pytest.mark.parametrize("seed", range(200))
def test_no_partition_has_two_owners_and_each_member_gets_there(seed: int) -> None:
    story = Story(seed)
    for _ in range(80):
        story.step()
    for _ in range(4):  # they give up, acknowledge, take, acknowledge
        for member in story.members():
            story.beat(member, says=True)
            member.follow()
            story.check()
    for member in story.members():
        story.beat(member, says=True)
        assert member.held == story.coordinator.targets[member]
        assert story.coordinator.holdings[member].is_reconciled_to(story.coordinator.epoch)
