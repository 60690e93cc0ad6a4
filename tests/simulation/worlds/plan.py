"""``Plan``: what will happen in one world: topology, workload, members and faults, drawn from one seed in advance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Final, Literal, TypeAlias, cast

from aiokc.config import ConsumerOptions
from aiokc.config.consumer import GroupProtocolName

from .user_code import DESERIALIZES, Deserializes

#: How a member asks for records: in batches, one by one, or as columns.
Reads: TypeAlias = Literal["getmany", "getone", "iterator", "getmany_columns"]
READS: Final[tuple[Reads, ...]] = ("getmany", "getone", "iterator", "getmany_columns")

#: The assignor lists that members of a group may have, by kind of world: each member draws one list of its world. In
#: the last kind the group is migrating from the eager protocol to the cooperative one.
ASSIGNORS: Final[tuple[tuple[list[str], ...], ...]] = (
    (["range", "roundrobin"], ["roundrobin", "range"]),
    (["sticky"],),
    (["cooperative-sticky"],),
    (["cooperative-sticky"],),
    (["range", "cooperative-sticky"], ["cooperative-sticky"]),
)

#: The protocols that members of a group may speak, by kind of world: each member draws one of its world.
PROTOCOLS: Final[tuple[tuple[GroupProtocolName, ...], ...]] = (
    ("consumer",),
    ("consumer",),
    ("auto", "consumer"),
    ("classic", "consumer"),
    ("classic", "auto"),
)
_CLASSIC_ONLY: Final = ("session_timeout_ms", "heartbeat_interval_ms", "partition_assignment_strategy")

#: The faults that any world can have, and those that have an effect only on a group.
FAULTS: Final = (
    "cut",
    "reset",
    "slow link",
    "slow broker",
    "broker restart",
    "leader move",
    "fetch error",
    "lose answer",
    "delay answer",
    "disconnect",
    "half frame",
    "stale metadata",
    "forget fetch sessions",
    "freeze",
)
GROUP_FAULTS: Final = ("coordinator move", "coordinator error", "lose commit", "delay commit", "silence member")


@dataclass(frozen=True)
class SecurityPlan:
    """The logins of one world: its users, and the length of a session (0: no end)."""

    users: tuple[str, ...]
    session_ms: int


@dataclass(frozen=True)
class MemberPlan:
    """One consumer and its application: when it starts and ends, and how it reads, works, commits and ends."""

    name: str
    starts: float
    lasts: float | None  # None: to the end of the world
    end: str  # "stop", "crash" (its connections are reset), "vanish" (they fall silent)
    seed: int
    options: ConsumerOptions
    reads: Reads
    max_records: int
    poll_timeout_ms: int | None
    work: tuple[float, float]  # seconds for each batch
    slow: float  # the share of batches whose work takes very long
    commits: float  # the share of batches that the application commits by hand; 0: none
    cancels: float  # the share of calls that are cancelled at an arbitrary await
    seeks: float  # how often the application seeks (never in a group)
    deserializes: Deserializes = "not at all"
    by_pattern: bool = False  # it subscribes by a pattern that the coordinator matches


@dataclass(frozen=True)
class FaultPlan:
    """One fault. Its target is drawn from ``seed`` when it happens."""

    at: float
    kind: str
    seconds: float
    seed: int


@dataclass(frozen=True)
class RecreationPlan:
    """A topic is deleted, and created again after ``away`` seconds."""

    at: float
    topic: str
    away: float


@dataclass(frozen=True)
class Plan:
    """One world. Faults and producers go on for ``seconds``; after that the members must read everything."""

    seed: int
    seconds: float
    brokers: int
    topics: dict[str, int]
    group: bool
    latency: tuple[float, float]
    segment_bytes: int
    batches: int
    batch_records: int
    transactions: float  # the share of batches that are transactions
    read_committed: bool
    members: tuple[MemberPlan, ...]
    faults: tuple[FaultPlan, ...]
    recreations: tuple[RecreationPlan, ...] = ()
    security: SecurityPlan | None = None
    cluster: Mapping[str, Any] = field(default_factory=dict)  # settings of the brokers

    @property
    def cooperative(self) -> bool:
        """Whether some members keep their partitions while their group rebalances."""
        return any(
            member.options.get("partition_assignment_strategy") in (None, ["cooperative-sticky"])
            for member in self.members
        )

    @property
    def text(self) -> str:
        """The plan as text for people."""
        lines = [f"seed {self.seed}: {self.brokers} brokers, topics {self.topics}, group {self.group}"]
        lines += [f"  {member}" for member in self.members]
        lines += [f"  {fault.at:6.2f} s: {fault.kind} ({fault.seconds:.2f} s)" for fault in self.faults]
        lines += [f"  {self.security}"] if self.security else []
        lines += [f"  {one.at:6.2f} s: {one.topic} is deleted, for {one.away:.2f} s" for one in self.recreations]
        return "\n".join(lines)


def draw(seed: int, *, group: bool | None = None, cooperative: bool | None = None) -> Plan:
    """Draw a world. ``group``: whether its consumers are a group; None leaves that to the seed too.

    ``cooperative``: whether all its members are; with False all have range and roundrobin.
    """
    random = Random(seed)
    in_group = random.random() < 0.75
    in_group = in_group if group is None else group
    seconds = random.uniform(10, 40)
    brokers = random.choice((1, 2, 3, 3))
    topics = {f"t{number}": random.randint(1, 4) for number in range(random.choice((1, 1, 1, 2)))}
    count = min(8, 1 + int(random.expovariate(0.5))) if in_group else random.choice((1, 1, 2))
    read_committed = random.random() < 0.4
    calm = random.random() < 0.1
    return Plan(
        seed=seed,
        seconds=seconds,
        brokers=brokers,
        topics=topics,
        group=in_group,
        latency=random.choice(((0.0001, 0.001), (0.001, 0.02), (0.02, 0.2))),
        segment_bytes=random.choice((100, 1460, 65_536)),
        batches=random.randint(5, 80),
        batch_records=random.choice((1, 5, 20)),
        transactions=random.choice((0.0, 0.3)),
        read_committed=read_committed,
        members=_with_assignors(
            seed,
            cooperative,
            [_member(random, f"m{number}", seconds, in_group, read_committed) for number in range(count)],
        ),
        faults=() if calm else tuple(_faults(random, seconds, in_group)),
    )


def _with_assignors(seed: int, cooperative: bool | None, members: list[MemberPlan]) -> tuple[MemberPlan, ...]:
    """Draw the assignors from a generator of their own, so that nothing else that a seed draws depends on them."""
    if cooperative is False:
        return tuple(members)
    random = Random(f"{seed} assignors")
    world = random.choice(ASSIGNORS)
    if cooperative:
        world = (["cooperative-sticky"],)
    return tuple(
        replace(member, options={**member.options, "partition_assignment_strategy": random.choice(world)})
        for member in members
    )


def deserializing(plan: Plan) -> Plan:
    """Return the same world, in which some members deserialize; drawn from a generator of its own."""
    draws = [Random(f"{member.seed} deserializes").choice(DESERIALIZES) for member in plan.members]
    members = tuple(replace(member, deserializes=how) for member, how in zip(plan.members, draws, strict=True))
    return replace(plan, members=members)


def with_columns(plan: Plan) -> Plan:
    """Return the same world, in which some members use getmany_columns instead of getmany; drawn separately, too."""
    draws = [Random(f"{member.seed} columns").random() < 0.4 for member in plan.members]
    members = tuple(
        replace(member, reads="getmany_columns") if member.reads == "getmany" and by_columns else member
        for member, by_columns in zip(plan.members, draws, strict=True)
    )
    return replace(plan, members=members)


def with_recreations(plan: Plan, *, always: bool = False) -> Plan:
    """Return the same world, in which the topics of a group are recreated; drawn separately, too.

    Members then create no topics: a topic that a member creates has another number of partitions. With ``always`` every
    group has recreated topics, else one in three.
    """
    random = Random(f"{plan.seed} recreations")
    if not plan.group or (random.random() > 1 / 3 and not always):
        return plan
    recreations = []
    for topic in plan.topics:
        moment = 0.0
        for _ in range(random.choice((0, 1, 1, 2))):
            moment += random.uniform(0.1, plan.seconds / 2 - 4)
            recreations.append(RecreationPlan(moment, topic, random.choice((0.0, 0.05, 0.5, 3.0))))
            moment += 3.0
    members = tuple(
        replace(member, options={**member.options, "allow_auto_create_topics": False}) for member in plan.members
    )
    return replace(plan, members=members, recreations=tuple(recreations))


def with_protocols(plan: Plan) -> Plan:
    """Return the same world, whose group is of the consumer protocol (KIP-848), or has some members of it.

    Members come and go, so a group with both changes its protocol in the middle, up and down. Drawn separately, too.
    """
    random = Random(f"{plan.seed} protocols")
    if not plan.group:
        return plan
    kinds = random.choice(PROTOCOLS)
    members = tuple(_speaking(member, random.choice(kinds)) for member in plan.members)
    cluster = {
        "group_consumer_session_timeout_ms": random.choice((6_000, 10_000)),
        "group_consumer_heartbeat_interval_ms": random.choice((300, 2_000)),
        "group_consumer_assignment_interval_ms": random.choice((0, 1_000)),
        "group_consumer_assignors": random.choice((("uniform", "range"), ("range", "uniform"))),
    }
    return replace(plan, members=members, cluster=cluster)


def _speaking(member: MemberPlan, protocol: GroupProtocolName) -> MemberPlan:
    if protocol == "classic":
        return member
    options = {name: value for name, value in member.options.items() if name not in _CLASSIC_ONLY}
    return replace(member, options=cast(ConsumerOptions, {**options, "group_protocol": protocol}))


def with_patterns(plan: Plan) -> Plan:
    """Return the same world, in which some members of the consumer protocol let the coordinator match a pattern.

    They know no topic before they are assigned one. Half of the worlds have none of them; drawn separately, too.
    """
    random = Random(f"{plan.seed} patterns")
    share = random.choice((0.0, 0.0, 0.5, 1.0))
    members = tuple(
        replace(member, by_pattern=random.random() < share and member.options.get("group_protocol") == "consumer")
        for member in plan.members
    )
    return replace(plan, members=members)


def impatient(plan: Plan) -> Plan:
    """Return the same world with more to read, and applications that cancel nearly every call at an arbitrary await."""
    members = tuple(
        replace(member, cancels=0.95, work=(0.0, 0.01), slow=0.0, max_records=min(member.max_records, 10))
        for member in plan.members
    )
    return replace(plan, members=members, batches=plan.batches * 4)


def _member(random: Random, name: str, seconds: float, group: bool, read_committed: bool) -> MemberPlan:
    starts = 0.0 if random.random() < 0.5 else random.uniform(0, seconds * 0.8)
    stays = random.random() < 0.5 or not group
    by_hand = group and random.random() < 0.6
    quick = random.random() < 0.7
    options = _options(random, group, auto_commit=group and (not by_hand or random.random() < 0.2))
    options["isolation_level"] = "read_committed" if read_committed else "read_uncommitted"
    plan = MemberPlan(
        name=name,
        starts=starts,
        lasts=None if stays else random.uniform(0.5, seconds),
        end=random.choice(("stop", "stop", "crash", "vanish")),
        seed=random.getrandbits(32),
        options=options,
        reads="getmany",
        max_records=random.choice((1, 3, 10, 500)),
        poll_timeout_ms=random.choice((None, 0, 100, 1000)),
        work=(0.0, 0.01) if quick else (0.01, 0.5),
        slow=random.choice((0.0, 0.0, 0.05)),
        commits=random.choice((0.2, 1.0)) if by_hand else 0.0,
        cancels=random.choice((0.0, 0.1, 0.4)),
        seeks=0.0 if group else random.choice((0.0, 0.05)),
    )
    # Drawn from a generator of its own, so that nothing else that a seed draws depends on it.
    return replace(plan, reads=Random(f"{plan.seed} reads").choice(("getmany", "getmany", "getone", "iterator")))


def _options(random: Random, group: bool, *, auto_commit: bool) -> ConsumerOptions:
    session = random.choice((6_000, 10_000))
    options = ConsumerOptions(
        auto_offset_reset="earliest",
        enable_auto_commit=auto_commit,
        auto_commit_interval_ms=random.choice((100, 1_000)),
        request_timeout_ms=random.choice((3_000, 10_000)),
        default_api_timeout_ms=15_000,
        session_timeout_ms=session,
        heartbeat_interval_ms=random.choice((300, session // 3)),
        max_poll_interval_ms=random.choice((5_000, 20_000)),
        fetch_max_wait_ms=random.choice((500, 2_000)),
        max_partition_fetch_bytes=random.choice((200, 2_000, 1 << 20)),
        metadata_max_age_ms=random.choice((2_000, 300_000)),
        socket_connection_setup_timeout_ms=random.choice((1_000, 5_000)),
        metadata_recovery_rebootstrap_trigger_ms=random.choice((5_000, 300_000)),
        partition_assignment_strategy=random.choice(ASSIGNORS[0]),
        connections_max_idle_ms=random.choice((3_000, 540_000)),
    )
    if group:
        options["group_id"] = "g"
    return options


def _faults(random: Random, seconds: float, group: bool) -> list[FaultPlan]:
    kinds = random.sample(FAULTS, random.randint(1, 4))
    if group:
        kinds += random.sample(GROUP_FAULTS, random.randint(0, 3))
    return sorted(
        (
            FaultPlan(
                at=random.uniform(0, seconds),
                kind=random.choice(kinds),
                seconds=random.choice((0.05, 0.5, 2.0, 6.0, 12.0)) * random.uniform(0.5, 1.5),
                seed=random.getrandbits(32),
            )
            for _ in range(random.randint(1, 15))
        ),
        key=lambda fault: fault.at,
    )
