"""The application's own assignors: what they are called with, what they return, and what becomes of their errors."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterable, Mapping

import pytest

from aiokc import Assignment, Assignor, Claim, Consumer, ErrorCode, Group, RebalanceProtocol, TopicPartition
from aiokc.errors import AssignmentFailed, BrokerError, ConfigError
from aiokc.testing import ApiKey, Cluster
from aiokc.testing.faults import delay

from ...listening import listening
from ..group_member import GroupMember, settled

pytestmark = [pytest.mark.any_loop, pytest.mark.timeout(30)]

TOPIC, GROUP = "events", "readers"
PARTITIONS = [TopicPartition(TOPIC, number) for number in range(6)]


class ByWeight(Assignor):
    """Gives each member as many partitions as its user data says; the heaviest member gets all that are left."""

    name = "by-weight"

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.groups: list[Group] = []
        self.got: list[tuple[Assignment, int]] = []
        self.lasts: list[Claim] = []

    def user_data(self, topics: frozenset[str], last: Claim) -> bytes | None:
        assert topics == {TOPIC}
        self.lasts.append(last)
        return bytes([self.weight])

    def assign(self, group: Group) -> Mapping[str, Assignment | Iterable[TopicPartition]]:
        self.groups.append(group)
        left = [TopicPartition(TOPIC, number) for number in range(group.partition_counts[TOPIC])]
        heaviest = sorted(group.members, key=lambda member_id: group.members[member_id].user_data or b"", reverse=True)
        answer: dict[str, Assignment | Iterable[TopicPartition]] = {}
        for member_id in heaviest[1:]:
            weight = (group.members[member_id].user_data or b"\0")[0]
            answer[member_id], left = Assignment(tuple(left[:weight]), b"light"), left[weight:]
        return {heaviest[0]: left, **answer}

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self.got.append((assignment, generation_id))


def member(cluster: Cluster, *strategy: str | Assignor, **options: object) -> GroupMember:
    result = GroupMember(cluster.bootstrap, GROUP, partition_assignment_strategy=strategy, **options)
    result.poll()
    result.subscribe(TOPIC)
    return result


async def test_user_data_goes_to_the_leader_and_comes_back() -> None:
    async with Cluster(topics={TOPIC: 6}) as cluster:
        heavy, light = ByWeight(5), ByWeight(1)
        async with member(cluster, heavy) as one:
            await one.assigned(6)
            async with member(cluster, light) as two:
                await settled(one, two, counts=(5, 1))
                assert light.got == [(Assignment((PARTITIONS[0],), b"light"), two.membership.generation)]
                assert heavy.got[-1] == (Assignment(tuple(PARTITIONS[1:])), one.membership.generation)
                # The first JoinGroup goes out twice, for the member id.
                assert heavy.lasts == [Claim(), Claim(), Claim(tuple(PARTITIONS), 1)]
                group = heavy.groups[-1]
                assert group.partition_counts == {TOPIC: 6}
                assert {m.user_data for m in group.members.values()} == {b"\5", b"\1"}
                light.weight = 3
                two.membership.enforce_rebalance("its weight is another one")
                await settled(one, two, counts=(3, 3))


async def test_members_agree_on_what_all_of_them_offer() -> None:
    async with (
        Cluster(topics={TOPIC: 6}) as cluster,
        member(cluster, ByWeight(1), "roundrobin", "range") as one,
        member(cluster, "range", "roundrobin") as two,
        member(cluster, "roundrobin") as three,
    ):
        await settled(one, two, three, counts=(2, 2, 2))
        leader = next(each for each in (one, two, three) if each.classic._leader.watched)
        assert leader.membership.error is None


class Broken(ByWeight):
    """Fails in the method that the test names."""

    name = "broken"

    def __init__(self, where: str, kind: type[BaseException] = LookupError) -> None:
        super().__init__(1)
        self._where, self._kind = where, kind

    def _fail(self, where: str) -> None:
        if where == self._where:
            raise self._kind(f"no idea in {where}")

    def user_data(self, topics: frozenset[str], last: Claim) -> bytes | None:
        self._fail("user_data")
        return None

    def assign(self, group: Group) -> Mapping[str, Assignment | Iterable[TopicPartition]]:
        self._fail("assign")
        return dict.fromkeys(group.members, PARTITIONS)

    def on_assignment(self, assignment: Assignment, generation_id: int) -> None:
        self._fail("on_assignment")


@pytest.mark.parametrize("kind", [LookupError, GeneratorExit, StopIteration, asyncio.CancelledError])
@pytest.mark.parametrize(("where", "partitions"), [("user_data", 6), ("assign", 6), ("assign", 200)])
async def test_an_assignor_that_raises_ends_the_membership_and_is_named(
    where: str, partitions: int, kind: type[BaseException]
) -> None:
    """The assignor runs on the loop, or in a thread if the group is large."""
    async with Cluster(topics={TOPIC: partitions}) as cluster, member(cluster, Broken(where, kind)) as one:
        error = await one.failed()
        assert isinstance(error, AssignmentFailed)
        assert "assignor 'broken'" in str(error)
        assert f"no idea in {where}" in str(error)
        assert isinstance(error.__cause__, kind)


class Unreadable(Exception):
    def __repr__(self) -> str:
        raise asyncio.CancelledError


@pytest.mark.parametrize("where", ["user_data", "assign", "on_assignment"])
async def test_an_error_that_cannot_say_what_it_is_is_named_by_its_type(where: str) -> None:
    async with Cluster(topics={TOPIC: 6}) as cluster:
        cluster.append(TOPIC, b"0")
        strategy = [Broken(where, Unreadable)]
        async with asyncio.timeout(20), listening(cluster, TOPIC, partition_assignment_strategy=strategy) as consumer:
            with pytest.raises(AssignmentFailed, match="<Unreadable, whose repr"):
                await consumer.getone()
            assert consumer.health().running


@pytest.mark.parametrize("name", [None, "", 1, ["range"], "\ud800", "x" * 32_768], ids=lambda name: repr(name)[:20])
def test_a_name_that_no_request_can_carry_is_refused(name: object) -> None:
    assignor = ByWeight(1)
    assignor.name = name  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"ByWeight\.name is .*: the members agree on an assignor by its name"):
        Consumer(group_id=GROUP, partition_assignment_strategy=[assignor])


@pytest.mark.parametrize("protocols", [None, RebalanceProtocol.EAGER, {"eager"}, [RebalanceProtocol.EAGER]], ids=repr)
def test_protocols_that_are_no_set_of_protocols_are_refused(protocols: object) -> None:
    class Strange(ByWeight):
        @property
        def protocols(self) -> frozenset[RebalanceProtocol]:
            return protocols  # type: ignore[return-value]

    with pytest.raises(ConfigError, match=r"Strange\.protocols is .*: it must be a set of RebalanceProtocol"):
        Consumer(group_id=GROUP, partition_assignment_strategy=[Strange(1)])


def test_protocols_may_be_a_plain_set() -> None:
    class Plain(ByWeight):
        @property
        def protocols(self) -> frozenset[RebalanceProtocol]:
            return {RebalanceProtocol.EAGER}  # type: ignore[return-value]

    Consumer(group_id=GROUP, partition_assignment_strategy=[Plain(1)])


class Wordy(ByWeight):
    """Returns a str in place of bytes, where the test says."""

    name = "wordy"

    def __init__(self, where: str) -> None:
        super().__init__(1)
        self._where = where

    def user_data(self, topics: frozenset[str], last: Claim) -> bytes | None:
        return "words" if self._where == "user_data" else None  # type: ignore[return-value]

    def assign(self, group: Group) -> Mapping[str, Assignment | Iterable[TopicPartition]]:
        return dict.fromkeys(group.members, Assignment((), "words"))  # type: ignore[arg-type]


@pytest.mark.parametrize("where", ["user_data", "assign"])
async def test_user_data_that_is_no_bytes_is_the_assignors_failure_and_not_the_consumers(where: str) -> None:
    async with Cluster(topics={TOPIC: 6}) as cluster, member(cluster, Wordy(where)) as one:
        error = await one.failed()
        assert isinstance(error, AssignmentFailed)
        assert "assignor 'wordy'" in str(error)


@pytest.mark.parametrize("kind", [LookupError, GeneratorExit])
async def test_what_on_assignment_raises_is_raised_once_and_the_member_goes_on(kind: type[BaseException]) -> None:
    async with Cluster(topics={TOPIC: 6}) as cluster, member(cluster, Broken("on_assignment", kind)) as one:
        await one.assigned(6)
        await one.until(lambda: bool(one.membership._listener._errors))
        with pytest.raises(AssignmentFailed, match=f"assignor 'broken' raised {kind.__name__}"):
            one.membership._listener.raise_error()
        one.membership._listener.raise_error()
        assert one.membership.error is None


class Answering(Assignor):
    """Returns the assignment that the test gives."""

    name = "answering"

    def __init__(self, answer: Mapping[str, Iterable[TopicPartition]], *, cooperative: bool = False) -> None:
        self._answer = answer
        self._cooperative = cooperative

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        return frozenset({RebalanceProtocol.COOPERATIVE if self._cooperative else RebalanceProtocol.EAGER})

    def assign(self, group: Group) -> Mapping[str, Iterable[TopicPartition]]:
        first, *_ = group.members
        return {first if member_id == "first" else member_id: tps for member_id, tps in self._answer.items()}


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ({"nobody": []}, "'nobody' is no member of the group"),
        ({"first": [TopicPartition("other", 0)]}, "does not subscribe to its topic"),
        ({"first": [TopicPartition(TOPIC, 6)]}, "events-6 does not exist"),
        ({"first": [1]}, "assignor 'answering' failed"),
    ],
)
async def test_an_assignment_that_no_member_can_carry_out_is_refused(
    answer: dict[str, list[TopicPartition]], message: str
) -> None:
    async with Cluster(topics={TOPIC: 6}) as cluster, member(cluster, Answering(answer)) as one:
        error = await one.failed()
        assert isinstance(error, AssignmentFailed)
        assert message in str(error)


async def test_a_partition_has_one_owner() -> None:
    async with (
        Cluster(topics={TOPIC: 6}) as cluster,
        member(cluster, Broken("nowhere")) as one,
    ):
        await one.assigned(6)
        async with member(cluster, Broken("nowhere")):
            error = await one.failed()
            assert isinstance(error, AssignmentFailed)
            assert "events-0 goes to" in str(error)


class Shuffling(ByWeight):
    """Says that it is cooperative, and gives one member partitions that another member still reads."""

    name = "shuffling"

    @property
    def protocols(self) -> frozenset[RebalanceProtocol]:
        return frozenset(RebalanceProtocol)


async def test_a_cooperative_assignor_may_not_give_away_what_is_still_read() -> None:
    async with Cluster(topics={TOPIC: 6}) as cluster, member(cluster, Shuffling(5)) as one:
        assert one.classic.is_cooperative
        await one.assigned(6)
        async with member(cluster, Shuffling(1)):
            error = await one.failed()
            assert isinstance(error, AssignmentFailed)
            assert "still reads it" in str(error)


class WhereAmI(ByWeight):
    name = "where"
    thread = 0

    def assign(self, group: Group) -> Mapping[str, Assignment | Iterable[TopicPartition]]:
        self.thread = threading.get_ident()
        return super().assign(group)


@pytest.mark.parametrize(("partitions", "on_the_loop"), [(6, True), (600, False)])
async def test_a_large_group_is_assigned_off_the_loop(partitions: int, on_the_loop: bool) -> None:
    assignor = WhereAmI(1)
    async with Cluster(topics={TOPIC: partitions}) as cluster, member(cluster, assignor) as one:
        await one.assigned(partitions)
        assert (assignor.thread == threading.get_ident()) is on_the_loop


async def test_the_thread_of_the_assignor_ends_with_its_member() -> None:
    """Else it would live for as long as the application refers to the consumer that it has stopped."""
    before = set(threading.enumerate())
    async with Cluster(topics={TOPIC: 600}) as cluster, member(cluster, "range") as one:
        await one.assigned(600)
        (thread,) = [new for new in set(threading.enumerate()) - before if new.name.startswith("aiokc assignor")]
        await one.crash()
        await asyncio.to_thread(thread.join, 10)
        assert not thread.is_alive()


async def test_without_a_thread_to_spare_a_large_group_is_assigned_on_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """A limit of the process, say. To end would leave the group without its leader."""
    start = threading.Thread.start

    def refused(self: threading.Thread) -> None:
        if self.name.startswith("aiokc assignor"):
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refused)
    assignor = WhereAmI(1)
    async with Cluster(topics={TOPIC: 600}) as cluster, member(cluster, assignor) as one:
        await one.assigned(600)
        assert assignor.thread == threading.get_ident()


def test_strategies_that_cannot_be() -> None:
    def strategy(*strategy: str | Assignor) -> None:
        GroupMember("localhost:9", GROUP, partition_assignment_strategy=strategy)

    with pytest.raises(ConfigError, match="names one assignor twice"):
        strategy("range", "range")
    with pytest.raises(ConfigError, match="no rebalance protocol in common"):
        strategy("range", Answering({}, cooperative=True))


# What else the group does with a member


async def test_range_gives_members_partitions_with_a_replica_in_their_rack() -> None:
    async with Cluster(brokers=2, racks=["east", "west"]) as cluster:
        cluster.create_topic(TOPIC, 6, replication_factor=1)
        racks = {tp: {1: "east", 2: "west"}[cluster.leader(TOPIC, tp.partition) or 0] for tp in PARTITIONS}
        async with (
            member(cluster, "range", client_rack="west") as one,
            member(cluster, "range", client_rack="east") as two,
        ):
            await settled(one, two, counts=(3, 3))
            assert {racks[tp] for tp in one.assignment} == {"west"}
            assert {racks[tp] for tp in two.assignment} == {"east"}


async def test_a_group_that_is_full_says_so_and_its_members_stay() -> None:
    """KIP-389 (group.max.size)."""
    async with (
        Cluster(topics={TOPIC: 6}, group_max_size=1) as cluster,
        member(cluster, "range") as one,
    ):
        await one.assigned(6)
        async with member(cluster, "range") as two:
            error = await two.failed()
            assert isinstance(error, BrokerError)
            assert error.code == ErrorCode.GROUP_MAX_SIZE_REACHED
            assert "group.max.size" in str(error)
        assert len(one.assignment) == 6
        assert one.membership.error is None


class Slow(Assignor):
    """Takes its time, and notes the number of calls that run at once."""

    name = "slow"

    def __init__(self) -> None:
        self.go_on = threading.Event()
        self.calls = self.running = self.most = 0

    def assign(self, group: Group) -> Mapping[str, Iterable[TopicPartition]]:
        self.calls += 1
        self.running += 1
        self.most = max(self.most, self.running)
        self.go_on.wait(10)
        self.running -= 1
        return {min(group.members): [TopicPartition(TOPIC, n) for n in range(group.partition_counts[TOPIC])]}


async def test_an_assignor_is_called_once_at_a_time_also_where_its_answer_is_not_wanted_any_more() -> None:
    slow, evicted = Slow(), ""
    async with Cluster(topics={TOPIC: 200}) as cluster, member(cluster, slow) as one, asyncio.timeout(20):
        for _ in range(3):
            while str(one.membership._machine.state) != "ASSIGNING" or one.membership.member_id == evicted:  # type: ignore[attr-defined]
                await one.membership.moved.wait()
            evicted = cluster.expire_member(GROUP)
        slow.go_on.set()
        await one.assigned(200)
    assert slow.calls > 1
    assert slow.most == 1


async def test_a_member_that_has_failed_has_left_its_group_when_stop_returns() -> None:
    """Its LeaveGroup goes out with the failure. Else a restarted member would wait for the old one's session to end."""
    async with Cluster(topics={TOPIC: 6}) as cluster:
        late = cluster.intercept(ApiKey.LEAVE_GROUP, delay(0.3))
        with pytest.raises(AssignmentFailed, match="no idea in assign"):
            async with listening(
                cluster, TOPIC, group=GROUP, partition_assignment_strategy=[Broken("assign")]
            ) as consumer:
                await consumer.getmany()
        assert cluster.members(GROUP) == []
        assert late.hits == 1


@pytest.mark.parametrize("name", [None, ""])
def test_an_assignor_without_a_name_is_refused_at_once(name: str | None) -> None:
    nameless = ByWeight(1)
    nameless.name = name  # type: ignore[assignment]
    with pytest.raises(ConfigError, match=r"ByWeight\.name is .*: the members agree on an assignor by its name"):
        Consumer(TOPIC, group_id=GROUP, partition_assignment_strategy=[nameless])
