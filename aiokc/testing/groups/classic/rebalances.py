"""The transitions of classic groups: a rebalance starts, members join, sync, get assignments, or time out.

Empty -> PreparingRebalance -> CompletingRebalance -> Stable -> PreparingRebalance ...
"""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....wire.messages.group import SyncGroupResponse
from ..settings import GroupSettings
from ..timers import Timers
from .answers import refused_join
from .group import ClassicGroup, GroupState
from .members import Member


class Rebalances:
    """The transitions of all groups, and their timers."""

    def __init__(self, timers: Timers, settings: GroupSettings) -> None:
        self._timers = timers
        self._settings = settings

    # Members

    def add(self, group: ClassicGroup, member: Member) -> None:
        """Add a new member, and start a rebalance if none is under way."""
        member.is_new = True
        group.newcomer_since_delay = group.state is GroupState.PREPARING_REBALANCE
        group.add(member)
        self.renew_session(group, member, self._settings.new_member_join_timeout_ms / 1000)
        self.prepare_or_complete(group)

    def renew_session(self, group: ClassicGroup, member: Member, seconds: float | None = None) -> None:
        """Restart the member's session timer, with its session timeout or ``seconds``."""
        self._expire_in(group, member.member_id, member.session_timeout if seconds is None else seconds)

    def await_pending(self, group: ClassicGroup, member_id: str, seconds: float) -> None:
        """Expect a JoinGroup with this new member id (KIP-394) within so many seconds; rebalances wait for it."""
        group.pending.add(member_id)
        self._expire_in(group, member_id, seconds)

    def _expire_in(self, group: ClassicGroup, member_id: str, seconds: float) -> None:
        self._timers.schedule((group.group_id, "session", member_id), seconds, lambda: self._expired(group, member_id))

    def _expired(self, group: ClassicGroup, member_id: str) -> None:
        member = group.members.get(member_id)
        if member is None or member.must_heartbeat:
            self.expire(group, member_id)

    def expire(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member, or a pending one, whose session has timed out; the others rebalance."""
        was_member = member_id in group.members
        self.remove(group, member_id)
        if group.state is GroupState.PREPARING_REBALANCE:
            if group.all_joined:
                self._complete_join(group)
        elif was_member:
            self.prepare(group)

    def remove(self, group: ClassicGroup, member_id: str) -> None:
        """Remove a member, without a rebalance. Its parked JoinGroup is answered UNKNOWN_MEMBER_ID, so it joins anew.

        Its parked SyncGroup is never answered, as on a real broker.
        """
        self._timers.cancel((group.group_id, "session", member_id))
        member = group.members.get(member_id)
        group.remove(member_id)
        if member is not None:
            member.answer_join(refused_join("", ErrorCode.UNKNOWN_MEMBER_ID))

    def fence(self, group: ClassicGroup, member: Member) -> None:
        """Answer the parked requests of a static member's old process with FENCED_INSTANCE_ID (KIP-345)."""
        self._timers.cancel((group.group_id, "session", member.member_id))
        member.answer_join(refused_join(member.member_id, ErrorCode.FENCED_INSTANCE_ID))
        member.answer_sync(SyncGroupResponse(error_code=ErrorCode.FENCED_INSTANCE_ID, assignment=b""))

    # The join phase

    def prepare_or_complete(self, group: ClassicGroup) -> None:
        """Start a rebalance; or end the join phase of the one under way, if all members have joined."""
        if group.state is GroupState.PREPARING_REBALANCE:
            self.complete_if_joined(group)
        else:
            self.prepare(group)

    def prepare(self, group: ClassicGroup) -> None:
        """Start a rebalance: all members have to join again, those that wait for their assignment too.

        The first rebalance of an empty group waits for further members (KIP-134).
        """
        if group.state is GroupState.COMPLETING_REBALANCE:
            self._assign(group, {}, ErrorCode.REBALANCE_IN_PROGRESS)
        group.pending_sync.clear()
        self._timers.cancel((group.group_id, "sync", ""))
        is_first = group.state is GroupState.EMPTY
        group.enter(GroupState.PREPARING_REBALANCE)
        if is_first:
            delay = self._settings.group_initial_rebalance_delay_ms / 1000
            group.newcomer_since_delay = False
            self._delay(group, delay, max(group.rebalance_timeout - delay, 0.0))
        elif group.all_joined:
            self._complete_join(group)
        else:
            self._complete_join_in(group, group.rebalance_timeout)

    def complete_if_joined(self, group: ClassicGroup) -> None:
        """End the join phase if all members have joined. That of an empty group's rebalance ends by its delay alone."""
        if (
            group.state is GroupState.PREPARING_REBALANCE
            and group.previous_state is not GroupState.EMPTY
            and group.all_joined
        ):
            self._complete_join(group)

    def _delay(self, group: ClassicGroup, delay: float, remaining: float) -> None:
        def over() -> None:
            if not (group.newcomer_since_delay and remaining > 0):
                self._complete_join(group)
                return
            group.newcomer_since_delay = False
            configured = self._settings.group_initial_rebalance_delay_ms / 1000
            self._delay(group, min(configured, remaining), max(remaining - delay, 0.0))

        self._timers.schedule((group.group_id, "join", ""), delay, over)

    def _complete_join_in(self, group: ClassicGroup, seconds: float) -> None:
        self._timers.schedule((group.group_id, "join", ""), seconds, lambda: self._complete_join(group))

    def _complete_join(self, group: ClassicGroup) -> None:
        """Remove the dynamic members that have not joined, and begin the next generation with the others."""
        self._timers.cancel((group.group_id, "join", ""))
        for member in list(group.members.values()):
            if member.parked_join is None and member.group_instance_id is None:
                self.remove(group, member.member_id)
        if group.members and not group.elect_joined_leader():
            self._complete_join_in(group, group.rebalance_timeout)  # until the sessions of the static ones end
            return
        group.begin_generation()
        if group.state is GroupState.EMPTY:
            group.store()
            return
        for member in group.members.values():
            member.answer_join(group.join_answer(member))
            self.renew_session(group, member)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        self._timers.schedule(
            (group.group_id, "sync", ""), group.rebalance_timeout, lambda: self._sync_took_too_long(group)
        )

    # The sync phase

    def synced(self, group: ClassicGroup, member: Member) -> None:
        """Note that a member has sent its SyncGroup."""
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            self._timers.cancel((group.group_id, "sync", ""))

    def assign(self, group: ClassicGroup, assignments: dict[str, bytes]) -> None:
        """End the rebalance. A member that is not in the leader's assignments gets an empty one."""
        self._assign(group, assignments, ErrorCode.NONE)
        group.enter(GroupState.STABLE)
        group.store()

    def _assign(self, group: ClassicGroup, assignments: dict[str, bytes], code: ErrorCode) -> None:
        """Answer the parked SyncGroups, and restart the sessions of those members."""
        for member in group.members.values():
            member.assignment = assignments.get(member.member_id, b"")
            answer = SyncGroupResponse(error_code=code, assignment=member.assignment)
            if code is ErrorCode.NONE:
                answer = group.sync_answer(member)
            if member.answer_sync(answer):
                self.renew_session(group, member)

    def _sync_took_too_long(self, group: ClassicGroup) -> None:
        """Remove the members that have sent no SyncGroup within the rebalance timeout (KAFKA-9752)."""
        for member_id in list(group.pending_sync):
            self.remove(group, member_id)
        self.prepare(group)
