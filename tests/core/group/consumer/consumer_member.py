"""A machine of the consumer protocol with its clock, and shortcuts that bring it into a state."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import TypeVar
from uuid import UUID

from aiokc.core.backoff import Backoff
from aiokc.core.group.consumer.events import MemberAlive, MemberHeartbeat, TopicIdPartition
from aiokc.core.group.consumer.membership import ConsumerMembership
from aiokc.core.group.events import Effect, Event, PollClock, RevocationDone, Revoke, Subscribed, Tick
from aiokc.types import TopicPartition

INTERVAL, MAX_POLL, BACKOFF = 5.0, 300.0, 0.1
#: The heartbeats of a member that has just joined, a quarter of an interval apart.
SETTLING_BEATS = 5
TOPICS = frozenset({"t"})
ID, NEW_ID, OTHER_ID = UUID(int=1), UUID(int=2), UUID(int=3)
NAMES = {ID: "t", NEW_ID: "t", OTHER_ID: "u"}
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))

E = TypeVar("E")


def ids(*numbers: int, topic_id: UUID = ID) -> frozenset[TopicIdPartition]:
    return frozenset(TopicIdPartition(topic_id, number) for number in numbers)


class Member:
    def __init__(self, instance_id: str | None = None) -> None:
        self.now = 1_000.0
        self.polls = PollClock(waiting=True)
        self.member_ids = 0
        self.machine = ConsumerMembership(
            new_member_id=self._new_member_id,
            group_instance_id=instance_id,
            max_poll_interval=MAX_POLL,
            polls=self.polls,
            backoff=Backoff(BACKOFF, 1.0, Random(1), jitter=0.0),
        )
        self.sent: list[MemberHeartbeat] = []

    def _new_member_id(self) -> str:
        self.member_ids += 1
        return "m" if self.member_ids == 1 else f"m{self.member_ids}"

    def feed(self, event: Event) -> list[Effect]:
        effects = self.machine.on(event, self.now)
        self.sent += [effect for effect in effects if isinstance(effect, MemberHeartbeat)]
        return effects

    def wait(self, seconds: float) -> list[Effect]:
        """Let time pass, with a Tick at each deadline."""
        until, effects = self.now + seconds, list[Effect]()
        while self.machine.deadline <= until:
            self.now = max(self.now, self.machine.deadline)
            effects += self.feed(Tick())
        self.now = until
        return effects

    @property
    def beat(self) -> MemberHeartbeat:
        """The newest heartbeat."""
        return self.sent[-1]

    def answer(
        self,
        epoch: int,
        assignment: Iterable[TopicIdPartition] | None = None,
        *,
        names: dict[UUID, str] | None = None,
        sent: MemberHeartbeat | None = None,
        interval: float | None = INTERVAL,
    ) -> list[Effect]:
        """The coordinator answers the newest heartbeat."""
        return self.feed(
            MemberAlive(
                sent=sent or self.beat,
                epoch=epoch,
                interval=interval,
                assignment=None if assignment is None else frozenset(assignment),
                names=NAMES if names is None else names,
            )
        )

    def stable(self, *numbers: int, epoch: int = 2) -> Member:
        """Join, with these partitions of the topic, have all of it acknowledged, and come to the coordinator's pace."""
        self.feed(Subscribed(TOPICS))
        self.answer(epoch, ids(*numbers))
        self.settled(epoch)
        for _ in range(SETTLING_BEATS):
            self.wait(INTERVAL / 4)
            self.settled(epoch)
        return self

    def settled(self, epoch: int) -> None:
        """Answer heartbeats until the member has nothing to tell any more."""
        while self.machine._heartbeats.unanswered is not None:
            self.answer(epoch)

    def revoked(self, effects: list[Effect]) -> list[Effect]:
        """Carry out the Revoke among ``effects``."""
        return self.feed(RevocationDone(only(Revoke, effects).step))


def only(kind: type[E], effects: Iterable[object]) -> E:
    """The one effect of this type."""
    found = [effect for effect in effects if isinstance(effect, kind)]
    assert len(found) == 1, found
    return found[0]
