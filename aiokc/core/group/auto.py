"""group_protocol="auto": the consumer protocol (KIP-848) where the cluster takes this member by it, else classic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from ...error_codes import error_name
from ...errors import BrokerError, KafkaError, UnsupportedVersion, broker_error
from .consumer.events import InstanceUnreleased, JoinDeclined, MemberHeartbeat, Unheard
from .consumer.membership import ConsumerMembership
from .events import Effect, Event, MemberToken, SendHeartbeat
from .loop_watch import HeartbeatPlan
from .machine import GroupMachine, Keepalive, Question


class AutoMachine:
    """The GroupMachine of a member that asks for the consumer protocol first.

    The first join decides. If the coordinator declines it (the feature is off, the broker is too old, the group is a
    classic one that may not be converted), the member joins by the classic protocol, with no trace of the attempt: a
    member that is not in a group yet holds nothing. Any other answer settles it. If the cluster switches the feature
    off later, the member loses its partitions, and its next join is declined.

    A member that subscribes to a pattern which the coordinator has to match can't become a classic one: its declined
    join is an error. If the application then subscribes to names, the next join may still decide.

    ``declined``: why this member is a classic one; None while it is none. It stays one for as long as it lives.
    ``refused``: why the newest join failed of a member that can't become a classic one; None after any other answer.
    """

    def __init__(self, consumer: ConsumerMembership, classic: GroupMachine, tell: Callable[[KafkaError], None]) -> None:
        """``tell`` is called when the member becomes a classic one. The steps of the two machines must differ."""
        self.declined: KafkaError | None = None
        self._consumer = consumer
        self._classic = classic
        self._refused: KafkaError | None = None
        self._tell = tell
        self.current: GroupMachine = consumer

    def on(self, event: Event, now: float) -> list[Effect]:
        if isinstance(event, JoinDeclined) and self._is_declined_by(event):
            if self._consumer.wanted.pattern:
                self._refused = _without_patterns(event.error)
                return self._consumer.on(replace(event, error=self._refused), now)
            self.declined = event.error
            self.current = self._classic
            self._tell(event.error)
            return self.current.on(self._consumer.wanted, now)
        if isinstance(event, Unheard | JoinDeclined | InstanceUnreleased) and self.current is not self._consumer:
            return []  # that membership is over
        return self.current.on(event, now)

    def _is_declined_by(self, answer: JoinDeclined) -> bool:
        """Whether the member was about to join. One in the group would become a classic one that holds partitions."""
        return self.current is self._consumer and self._consumer.awaits(answer) and not self._consumer.in_group

    @property
    def refused(self) -> KafkaError | None:
        return None if self._consumer.in_group or self.declined is not None else self._refused

    @property
    def is_settled(self) -> bool:
        """Whether an answer has decided which protocol the member speaks."""
        return self.declined is not None or self._consumer.last_member.generation_id >= 0

    @property
    def deadline(self) -> float:
        return self.current.deadline

    @property
    def member(self) -> MemberToken:
        return self.current.member

    @property
    def last_member(self) -> MemberToken:
        last, former = self.current.last_member, self._consumer.last_member
        return former if last.generation_id < 0 <= former.generation_id else last  # a classic one that has not joined

    @property
    def plan(self) -> HeartbeatPlan | None:
        return self.current.plan

    @property
    def has_left(self) -> bool:
        return self.current.has_left

    @property
    def has_failed(self) -> bool:
        return self.current.has_failed

    @property
    def is_rebalancing(self) -> bool:
        return self.current.is_rebalancing

    @property
    def needs_poll(self) -> bool:
        return self.current.needs_poll

    @property
    def is_settling(self) -> bool:
        return self.current.is_settling

    def commit_token(self) -> MemberToken:
        return self.current.commit_token()


def _without_patterns(declined: KafkaError) -> KafkaError:
    """The error for a member that could only be a classic one, and whose pattern only the coordinator can match."""
    said = (
        f"{declined}; and a classic member, which group_protocol='auto' would make of it, has no pattern that the "
        "coordinator matches: subscribe to topic names, or to a compiled pattern, which this client matches"
    )
    if isinstance(declined, BrokerError):
        return broker_error(declined.code, said.removeprefix(f"{error_name(declined.code)}: "))
    return UnsupportedVersion(said)


@dataclass(frozen=True, slots=True)
class AutoKeepalive:
    """The Keepalive of such a member: each heartbeat knows by its type which protocol it belongs to."""

    consumer: Keepalive
    classic: Keepalive

    @property
    def group_id(self) -> str:
        return self.classic.group_id

    def _of(self, sent: SendHeartbeat) -> Keepalive:
        return self.consumer if isinstance(sent, MemberHeartbeat) else self.classic

    def heartbeat(self, sent: SendHeartbeat) -> Question:
        return self._of(sent).heartbeat(sent)

    def after(self, answer: Event, sent: SendHeartbeat) -> SendHeartbeat:
        return self._of(sent).after(answer, sent)

    def unheard(self, answer: Event | None, sent: SendHeartbeat) -> Event | None:
        return self._of(sent).unheard(answer, sent)

    def goodbye(self, last: SendHeartbeat, reason: str) -> Question:
        return self._of(last).goodbye(last, reason)
