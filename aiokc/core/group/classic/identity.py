"""Who a member is to its group at the moment: which answers still concern it, and on whose behalf it may commit."""

from __future__ import annotations

from ....error_codes import ErrorCode
from ....errors import CommitFailed, broker_error
from ..events import Alive, Event, MemberToken, Outcome, Refusal, SendHeartbeat, SentCommit, Unpolled


class Identity:
    """The member id and the generation that the coordinator has given, and after that is lost, why.

    ``last`` is who this member was in the newest generation that it has been in.
    ``may_leave``: whether it tells the group when it goes. A static member does not, unless its user asks for it
    (KIP-345, KIP-1092): it may be back before it is missed.
    """

    def __init__(self, group_instance_id: str | None) -> None:
        self.member = self.last = MemberToken(group_instance_id=group_instance_id)
        self.may_leave = group_instance_id is None
        self.why_outside = "it has not joined its group yet"

    @property
    def in_generation(self) -> bool:
        return self.member.generation_id >= 0

    @property
    def is_static(self) -> bool:
        return self.member.group_instance_id is not None

    @property
    def says_goodbye(self) -> bool:
        """Whether there is a LeaveGroup to be sent for it."""
        return self.may_leave and bool(self.member.member_id)

    def become(self, generation_id: int, member_id: str) -> None:
        self.member = MemberToken(generation_id, member_id, self.member.group_instance_id)
        if self.in_generation:
            self.last = self.member

    def forget(self, reason: str, *, keep_member_id: bool = False) -> None:
        self.become(-1, self.member.member_id if keep_member_id else "")
        self.why_outside = reason

    def concerns(self, event: Event, step: int, *, is_joining: bool) -> bool:
        """Whether ``event`` is no late answer: one to an older ``step``, or to who this member was before."""
        if isinstance(event, Outcome):
            return event.step == step
        # While it joins, the coordinator's answer to that decides, and nothing said before.
        is_settled = self.in_generation and not is_joining
        if isinstance(event, Alive | Refusal):
            if isinstance(event.sent, SendHeartbeat | SentCommit):
                return is_settled and event.sent.member == self.member
            return event.sent.step == step
        return not isinstance(event, Unpolled) or (is_settled and event.member == self.member)

    def commit_token(self, *, is_valid: bool) -> MemberToken:
        """Return whom a commit may come from; ``is_valid``: the coordinator takes commits of this generation."""
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
