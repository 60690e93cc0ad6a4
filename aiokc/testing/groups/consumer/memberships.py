"""The transitions of consumer groups: epochs rise, assignments are computed, members reconcile, leave, or time out."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from ..settings import GroupConfigs
from ..timers import Timers
from ..topic_lookup import TopicLookup
from .assignors import ASSIGNORS, Candidate
from .group import ConsumerGroup
from .members import ConsumerMember, Holding, MemberState, TopicIdPartition
from .reconciling import reconcile


class Memberships:
    """The transitions of all consumer groups, and their timers.

    ``downgrade`` is called after a member was removed. It returns whether the group is a classic one by now.
    """

    def __init__(self, timers: Timers, configs: GroupConfigs, topics: TopicLookup) -> None:
        self._timers = timers
        self._configs = configs
        self._topics = topics
        self.downgrade: Callable[[ConsumerGroup], bool] = lambda group: False

    # Epochs and assignments

    def notice_topics(self, group: ConsumerGroup) -> None:
        """Raise the group's epoch where subscribed topics were created or deleted, or have more partitions."""
        metadata = group.topics(self._topics)
        if metadata != group.metadata:
            group.metadata = metadata
            group.epoch += 1

    def subscriptions_changed(self, group: ConsumerGroup) -> None:
        """Raise the group's epoch: its members need another assignment."""
        group.metadata = group.topics(self._topics)
        group.epoch += 1

    def assign_if_due(self, group: ConsumerGroup, uncounted: ConsumerMember | None = None) -> None:
        """Compute the assignment of the group's epoch, unless the last one is younger than the assignment interval.

        ``uncounted``: a new member that did not raise the epoch, since it subscribes to nothing. Kafka has asked
        before whether all members subscribe to the same topics, and takes the answer for right: so the new one gets a
        share, which it can't take, or comes first in the assignor's order, and then all others get nothing. The next
        epoch puts that right.
        """
        interval = self._configs.of(group.group_id).group_consumer_assignment_interval_ms / 1000
        if group.epoch <= group.assignment_epoch or self._timers.now - group.assigned_at < interval:
            return
        known = group.topics(self._topics)
        members = [
            Candidate(
                one.member_id,
                one.instance_id,
                frozenset(known[name][0] for name in group.topics_of(one) if name in known),
                one.target,
            )
            for one in group.members.values()
        ]
        if members:
            alike = len({group.topics_of(one) for one in group.members.values() if one is not uncounted}) <= 1
            assignor = ASSIGNORS[group.assignor(self._configs.of(group.group_id).group_consumer_assignors[0])]
            targets = assignor(members, dict(known.values()), alike)
            for one in group.members.values():
                one.target = targets[one.member_id]
        group.assignment_epoch, group.assigned_at = group.epoch, self._timers.now

    # One member

    def reconcile(
        self,
        group: ConsumerGroup,
        member: ConsumerMember,
        owned: Collection[TopicIdPartition] | None,
        *,
        subscription_changed: bool,
    ) -> None:
        """Take the member's next step to its target. While it gives up partitions, its rebalance timeout runs."""
        before = member.holding
        topics = group.topics_of(member)
        of_others: set[TopicIdPartition] = set()

        def is_owned(tp: TopicIdPartition) -> bool:
            if not of_others:
                of_others.update(group.owned_partitions(but=member))
            return tp in of_others

        member.holding = reconcile(
            before,
            target=member.target,
            assignment_epoch=group.assignment_epoch,
            subscribes=lambda tp: self._topics.name_of(tp[0]) in topics,
            is_owned=is_owned,
            owned=owned,
            subscription_changed=subscription_changed,
        )
        if member.holding != before:
            self._watch_revocation(group, member)

    def _watch_revocation(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """The member has to give up its partitions in time; no heartbeat prolongs that."""
        alarm = (group.group_id, "rebalance", member.member_id)
        if member.holding.state is MemberState.UNREVOKED:
            self._timers.schedule(alarm, member.rebalance_timeout, lambda: self.remove(group, member))
        else:
            self._timers.cancel(alarm)

    def renew_session(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Restart the member's session timer."""
        seconds = self._configs.of(group.group_id).group_consumer_session_timeout_ms / 1000
        if member.classic is not None:
            seconds = member.classic.session_timeout
        alarm = (group.group_id, "session", member.member_id)
        self._timers.schedule(alarm, seconds, lambda: self.remove(group, member))

    def wait(self, group: ConsumerGroup, member: ConsumerMember, purpose: str) -> None:
        """Expect a classic member's JoinGroup ("join") or SyncGroup ("sync") within its rebalance timeout."""
        alarm = (group.group_id, purpose, member.member_id)
        if not self._timers.is_set(alarm):
            self._timers.schedule(alarm, member.rebalance_timeout, lambda: self.remove(group, member))

    def stop_waiting(self, group: ConsumerGroup, member: ConsumerMember, purpose: str) -> None:
        self._timers.cancel((group.group_id, purpose, member.member_id))

    def step_down(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """The static member has left and will be back: until its session ends, it keeps what it has."""
        self._timers.cancel((group.group_id, "rebalance", member.member_id))
        member.holding = member.holding.left_for_now()

    def replace(self, group: ConsumerGroup, old: ConsumerMember, member_id: str) -> ConsumerMember:
        """Give a static member a new member id, that of its new process; return the renamed member."""
        renamed = replace(old, member_id=member_id)
        group.members = {
            one.member_id: one for one in (renamed if one is old else one for one in group.members.values())
        }
        self.cancel_timers(group, old)
        return renamed

    def remove(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Remove a member: its partitions are free, and the others get another assignment."""
        if group.members.get(member.member_id) is not member:
            return
        self.cancel_timers(group, member)
        del group.members[member.member_id]
        group.patterns.keep(group.regexes)
        if not self.downgrade(group):
            self.subscriptions_changed(group)

    def cancel_timers(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        for purpose in ("session", "rebalance", "join", "sync"):
            self._timers.cancel((group.group_id, purpose, member.member_id))

    # Patterns

    def resolve_patterns(self, group: ConsumerGroup, may_describe: Callable[[str], bool]) -> None:
        """Match the members' patterns in the background, if that is due; other topics need another assignment."""
        refresh = self._configs.of(group.group_id).group_consumer_regex_refresh_interval_ms / 1000
        if not group.patterns.are_due(group.regexes, self._topics.names(), self._timers.now, refresh):
            return

        def resolve() -> None:
            if group.patterns.resolve(group.regexes, self._topics.names(), may_describe, self._timers.now):
                self.subscriptions_changed(group)

        group.patterns.is_resolving = True
        self._timers.schedule((group.group_id, "patterns", ""), 0.0, resolve)

    # Moving

    def load(self, group: ConsumerGroup) -> None:
        """Go on as the group's new coordinator: all sessions start again, and the timeouts of revocations."""
        group.patterns.is_resolving = False
        for member in group.members.values():
            self.renew_session(group, member)
            self._watch_revocation(group, member)

    # Faults

    def fence(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        """Raise the group's epoch twice with this member, as if both answers to it had been lost."""
        was_due = group.epoch > group.assignment_epoch
        group.epoch += 2
        group.assignment_epoch = group.epoch
        held = member.holding
        member.holding = Holding(held.state, group.epoch, group.epoch - 1, held.assigned, held.revoking)
        if was_due:  # it still is: the next heartbeats bring the assignment that none has brought before
            group.epoch += 1
