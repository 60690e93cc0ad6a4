"""Rules that hold for a KIP-848 member whatever its coordinator, the network and the application do, in any order."""

from __future__ import annotations

from typing import Any, TypeAlias

from hypothesis import given
from hypothesis import strategies as st

from aiokc.core.group.consumer.events import (
    InstanceUnreleased,
    LeaveByHeartbeat,
    MemberAlive,
    MemberHeartbeat,
    TopicsNamed,
    Unheard,
)
from aiokc.core.group.consumer.transitions import State
from aiokc.core.group.events import (
    Assign,
    CoordinatorLost,
    Effect,
    Enforced,
    Fatal,
    IdentityLost,
    Leave,
    Left,
    Lost,
    NotNow,
    Polled,
    RevocationDone,
    Revoke,
    Subscribed,
    Unpolled,
)
from aiokc.error_codes import ErrorCode
from aiokc.errors import broker_error

from .consumer_member import ID, NAMES, OTHER_ID, Member, ids

BOTH = frozenset({"t", "u"})
ONE_TOPIC = (frozenset({"t"}), frozenset({"u"}))
SOME_IDS = st.sets(st.integers(0, 2)).flatmap(
    lambda mine: st.sets(st.integers(0, 1)).map(lambda others: ids(*mine) | ids(*others, topic_id=OTHER_ID))
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("answer"), st.integers(-1, 2), st.none() | SOME_IDS),
        st.tuples(st.just("thread's answer"), st.integers(0, 2), st.none() | SOME_IDS),
        st.tuples(st.just("names"), st.sampled_from([{ID: "t"}, NAMES])),
        st.tuples(st.just("subscribe"), st.sampled_from([BOTH, *ONE_TOPIC, frozenset()]), st.just("")),
        st.tuples(st.just("subscribe"), st.just(frozenset()), st.sampled_from(["t.*", "u.*"])),
        st.tuples(st.just("time"), st.floats(0.0, 20.0)),
        st.tuples(
            st.sampled_from(
                ["carried out", "left", "poll", "enforce", "unpolled", "stops polling", "polls", "thread unheard"]
            )
        ),
        st.tuples(st.sampled_from(["failure", "moved", "lost", "fatal", "unreleased"])),
        st.tuples(st.just("close"), st.sampled_from([None, True, False])),
    ),
    max_size=40,
)
Steps: TypeAlias = list[tuple[Any, ...]]
ASKS: Steps = [("subscribe", BOTH, "")]
# Few stories would get there by themselves.
HAS_JOINED: Steps = [*ASKS, ("names", NAMES), ("answer", 0, ids(0, 1) | ids(0, topic_id=OTHER_ID))]


class Story:
    """A member, and what the reconciler would hold for it by the effects alone."""

    def __init__(self, instance_id: str | None) -> None:
        self.member = Member(instance_id)
        self.held: frozenset[Any] = frozenset()
        self.wanted: frozenset[str] = frozenset()
        self.read: frozenset[Any] = frozenset()
        self.change: Revoke | Lost | None = None
        self.left: list[LeaveByHeartbeat] = []

    def take(self, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Revoke() | Lost():
                    assert effect.partitions
                    assert self.held.issuperset(effect.partitions)
                    assert not isinstance(effect, Lost) or self.held == frozenset(effect.partitions)
                    if isinstance(self.change, Revoke):
                        assert set(effect.partitions) >= set(self.change.partitions), "it ends the one before"
                    self.change = effect
                case Assign():
                    assert self.change is None, "nothing is taken before what goes is given up"
                    assert self.held.isdisjoint(effect.added)
                    self.held |= frozenset(effect.added)
                    assert self.held == frozenset(effect.partitions)
                    self.read = self.of_wanted(self.held)
                case MemberHeartbeat():
                    self.check(effect)
                case LeaveByHeartbeat():
                    assert effect.member.generation_id in (-1, -2)
                    self.left.append(effect)

    def of_wanted(self, partitions: frozenset[Any]) -> frozenset[Any]:
        return frozenset(tp for tp in partitions if tp.topic in self.wanted)

    def check(self, sent: MemberHeartbeat) -> None:
        """What a heartbeat lists is what the member holds: neither less, while it gives up, nor more."""
        names = {tp: self.member.machine._holdings.held.get(tp) for tp in sent.contents.owned or ()}
        if sent.joins:
            assert not self.held
            assert sent.contents.is_full
        elif sent.contents.owned is not None:
            assert frozenset(names.values()) == self.held
        assert not isinstance(self.change, Lost), "nothing is sent while the listener hears of a loss"

    def feed(self, event: Any) -> None:
        self.take(self.member.feed(event))
        if self.member.machine.state is State.STABLE and self.change is None:
            assert self.read == self.of_wanted(self.held), "nothing that is held and wanted waits for another answer"

    def play(self, step: tuple[Any, ...]) -> None:
        member, machine = self.member, self.member.machine
        beat = machine._heartbeats.unanswered
        match step:
            case ("answer", more, assignment) if beat is not None:
                epoch = max(machine.member.generation_id, 1) + more
                self.feed(MemberAlive(sent=beat, epoch=epoch, interval=1.0, assignment=assignment, names={ID: "t"}))
            case ("thread's answer", more, assignment) if machine.plan is not None:
                sent = machine.plan.heartbeat
                assert isinstance(sent, MemberHeartbeat)
                epoch = machine.member.generation_id + more
                self.feed(MemberAlive(sent=sent, epoch=epoch, interval=None, assignment=assignment))
            case ("thread unheard",) if machine.plan is not None:
                sent = machine.plan.heartbeat
                assert isinstance(sent, MemberHeartbeat)
                self.feed(Unheard(sent))
            case ("names", names):
                self.feed(TopicsNamed(names))
            case ("subscribe", topics, pattern):
                # The subscription stops reading at once what is wanted no more. Only an Assign makes it read again.
                self.wanted = BOTH if pattern else topics
                self.read = self.held if pattern else self.of_wanted(self.read)
                self.feed(Subscribed(topics, pattern))
            case ("time", seconds):
                self.take(member.wait(seconds))
            case ("carried out",) if self.change is not None:
                change, self.change = self.change, None
                self.held -= frozenset(change.partitions)
                self.read -= frozenset(change.partitions)
                self.feed(RevocationDone(change.step))
            case ("left",) if self.left:
                self.feed(Left(self.left.pop().step))
            case ("poll",):
                self.feed(Polled())
            case ("stops polling",):
                member.polls.waiting, member.polls.last = False, member.now
            case ("polls",):
                member.polls.waiting = True
            case ("enforce",):
                self.feed(Enforced("a wish"))
            case ("unpolled",):
                self.feed(Unpolled(machine.member))
            case ("close", leave_group):
                self.feed(Leave(leave_group))
            case (trouble,) if beat is not None:
                self.trouble(trouble, beat)

    def trouble(self, trouble: str, beat: MemberHeartbeat) -> None:
        error = broker_error(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "group 'g'")
        match trouble:
            case "failure":
                self.feed(NotNow(beat, error))
            case "moved":
                self.feed(CoordinatorLost(beat, 1, error))
            case "lost":
                self.feed(IdentityLost(beat, "fenced"))
            case "fatal":
                self.feed(Fatal(beat, error))
            case "unreleased" if beat.joins:
                self.feed(InstanceUnreleased(beat, error))


@given(begin=st.sampled_from([ASKS, HAS_JOINED]), steps=STEPS, instance_id=st.sampled_from([None, "i"]))
def test_in_any_order(begin: Steps, steps: Steps, instance_id: str | None) -> None:
    """No event is impossible, and every effect fits what the effects before it have led to."""
    story = Story(instance_id)
    for step in [*begin, *steps]:
        story.play(step)
    end(story)


def end(story: Story) -> None:
    """Whatever has happened, a member that closes comes to its end, and holds nothing then."""
    story.feed(Leave())
    for _ in range(3):
        if story.change is not None:
            story.play(("carried out",))
    for _ in range(len(story.left)):
        story.play(("left",))
    assert story.member.machine.state is State.LEFT
    assert not story.held
