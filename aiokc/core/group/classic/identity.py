"""The member id and generation of a classic group member: which answers still concern it, and when it may commit."""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....errors import CommitFailed, broker_error
from ..events import Alive, Event, MemberToken, Outcome, Refusal, SendHeartbeat, SentCommit, Unpolled


class Identity:
    """The member id and generation that the coordinator has given; after they are lost, ``why_outside``.

    ``last`` is the member in the newest generation that it has been in.
    ``may_leave``: whether it sends a LeaveGroup when it leaves. A static member does not (KIP-345), because it may be
    back before its session ends, unless the application asks for it (KIP-1092).
    """

    def __init__(self, group_instance_id: str | None) -> None:
        self.member = self.last = MemberToken(group_instance_id=group_instance_id)
        self.may_leave = group_instance_id is None
        self.why_outside = "it has not joined its group yet"
        self._may_be_replaced = False  # the coordinator may have given another member id, which has not arrived

    @property
    def in_generation(self) -> bool:
        return self.member.generation_id >= 0

    @property
    def is_static(self) -> bool:
        return self.member.group_instance_id is not None

    @property
    def says_goodbye(self) -> bool:
        """Whether the member sends a LeaveGroup if it leaves now."""
        return self.may_leave and bool(self.member.member_id)

    def become(self, generation_id: int, member_id: str) -> None:
        self.member = MemberToken(generation_id, member_id, self.member.group_instance_id)
        if self.in_generation:
            self.last = self.member
            self._may_be_replaced = False

    def forget(self, reason: str, *, keep_member_id: bool = False) -> None:
        self.become(-1, self.member.member_id if keep_member_id else "")
        self.why_outside = reason

    def joins(self, member: MemberToken) -> None:
        """A JoinGroup goes out. Without a member id, it replaces the one that a static member has (KIP-345)."""
        self._may_be_replaced = self._may_be_replaced or not member.member_id

    def recall(self) -> bool:
        """Take back the last member id, if the member has none. A coordinator that has removed it says so.

        Return False where a JoinGroup may have replaced that id: the coordinator would fence the member for naming it.
        """
        if not self.member.member_id and self._may_be_replaced:
            return False
        if not self.member.member_id:
            self.become(-1, self.last.member_id)
        return True

    def concerns(self, event: Event, step: int, *, is_joining: bool) -> bool:
        """Return whether ``event`` concerns this member now.

        A late answer does not: one to an older ``step``, or to an older member id or generation.
        """
        if isinstance(event, Outcome):
            return event.step == step
        # While the member joins, only the answer to its JoinGroup decides, and no answer to an earlier request.
        is_settled = self.in_generation and not is_joining
        if isinstance(event, Alive | Refusal):
            if isinstance(event.sent, SendHeartbeat | SentCommit):
                return is_settled and event.sent.member == self.member
            return event.sent.step == step
        return not isinstance(event, Unpolled) or (is_settled and event.member == self.member)

    def commit_token(self, *, is_valid: bool) -> MemberToken:
        """Return the member that a commit must name. ``is_valid``: the coordinator takes commits of this generation."""
        if self.in_generation and is_valid:
            return self.member
        if self.in_generation:
            raise broker_error(
                ErrorCode.REBALANCE_IN_PROGRESS,
                "the group is assigning its partitions anew, and nothing was committed: go on polling, then commit "
                "what is still assigned",
            )
        raise CommitFailed(
            ErrorCode.UNKNOWN_MEMBER_ID,
            f"this consumer is outside its group ({self.why_outside}), so its partitions may have other readers by "
            "now, and nothing was committed; the group will deliver these records again",
        )
