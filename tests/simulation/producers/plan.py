"""``ProducerPlan``: what will happen in one world of producers, drawn from its seed in advance."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

from aiokc.config import ProducerOptions

from ..worlds.plan import FaultPlan

#: The faults of any world of producers; those of transactions come in worlds with transactions only.
FAULTS: Final = (
    "cut",
    "reset",
    "slow link",
    "slow broker",
    "broker restart",
    "leader move",
    "lose answer",
    "delay answer",
    "disconnect",
    "half frame",
    "stale metadata",
    "freeze",
    "produce error",
    "refused after append",
    "late produce",
    "lose produce",
    "one partition",
    "refused for good",
    "too large",
    "gap",
    "old epoch",
    "forgotten producer",
    "throttle",
)
TRANSACTION_FAULTS: Final = (
    "transaction coordinator move",
    "transaction coordinator error",
    "slow markers",
    "lose control",
    "late control",
)


#: So little that calls wait for it.
_LITTLE_MEMORY: Final[ProducerOptions] = {"buffer_memory": 17_000, "batch_size": 2_000}


@dataclass(frozen=True)
class AppPlan:
    """One application: a producer on a host of its own, and the tasks that send by it."""

    name: str
    starts: float
    lasts: float | None  # None: to the end of the world
    end: str  # "stop", "crash" (its connections are reset), "vanish" (they fall silent)
    seed: int
    options: ProducerOptions
    tasks: int
    pause: float  # the mean of seconds between two sends of a task
    sizes: tuple[int, ...]  # of values, in bytes
    cancels: float  # the share of calls that are cancelled at an arbitrary await
    by_key: float  # the share of records that have a key, of those without a partition
    aborts: float = 0.0  # the share of transactions that the application aborts
    most_records: int = 8  # of one transaction

    @property
    def is_idempotent(self) -> bool:
        return self.options.get("enable_idempotence", True)

    @property
    def is_transactional(self) -> bool:
        return self.options.get("transactional_id") is not None


@dataclass(frozen=True)
class ProducerPlan:
    """One world of producers. They send and faults happen for ``seconds``; then all must be acknowledged, or fail."""

    seed: int
    seconds: float
    brokers: int
    topics: dict[str, int]
    latency: tuple[float, float]
    segment_bytes: int
    transaction_version: int
    apps: tuple[AppPlan, ...]
    faults: tuple[FaultPlan, ...]

    @property
    def text(self) -> str:
        """The plan as text for people."""
        lines = [f"seed {self.seed}: {self.brokers} brokers, topics {self.topics}, {self.seconds:.1f} s"]
        lines += [f"  transaction.version {self.transaction_version}"]
        lines += [f"  {app}" for app in self.apps]
        lines += [f"  {fault.at:6.2f} s: {fault.kind} ({fault.seconds:.2f} s)" for fault in self.faults]
        return "\n".join(lines)


def draw(seed: int, *, transactional: bool = False) -> ProducerPlan:
    """Draw a world. ``transactional``: its producers have transactions."""
    random = Random(f"{seed} producers {transactional}")
    seconds = random.uniform(8, 25)
    topics = {f"t{number}": random.randint(1, 3) for number in range(random.choice((1, 1, 2)))}
    calm = random.random() < 0.1
    make = _transactional if transactional else _plain
    return ProducerPlan(
        seed=seed,
        seconds=seconds,
        brokers=random.choice((1, 2, 3, 3)),
        topics=topics,
        latency=random.choice(((0.0001, 0.001), (0.001, 0.02), (0.02, 0.2))),
        segment_bytes=random.choice((100, 1460, 65_536)),
        transaction_version=random.choice((0, 1, 2, 2, 2)),
        apps=tuple(make(random, f"p{number}", seconds) for number in range(random.choice((1, 1, 2, 3)))),
        faults=() if calm else _faults(random, seconds, transactional=transactional),
    )


def impatient(plan: ProducerPlan) -> ProducerPlan:
    """Return the same world with more to send, and applications that cancel nearly every call at an arbitrary await."""
    apps = tuple(
        replace(app, cancels=0.95, pause=app.pause / 4, sizes=(12, 3_000), options={**app.options, **_LITTLE_MEMORY})
        for app in plan.apps
    )
    return replace(plan, apps=apps)


def _plain(random: Random, name: str, seconds: float) -> AppPlan:
    options = _options(random)
    if random.random() < 0.15:
        options["enable_idempotence"] = False
        options["max_in_flight_requests_per_connection"] = random.choice((1, 5))
        options["acks"] = random.choice((1, -1))
    return _app(random, name, seconds, options)


def _transactional(random: Random, name: str, seconds: float) -> AppPlan:
    options = _options(random)
    # Some are twins: the younger one fences the elder.
    options["transactional_id"] = "twins" if random.random() < 0.3 else name
    options["transaction_timeout_ms"] = random.choice((3_000, 20_000))
    app = _app(random, name, seconds, options)
    return replace(app, aborts=random.choice((0.0, 0.2)), most_records=random.choice((1, 4, 12)))


def _app(random: Random, name: str, seconds: float, options: ProducerOptions) -> AppPlan:
    stays = random.random() < 0.6
    return AppPlan(
        name=name,
        starts=0.0 if random.random() < 0.5 else random.uniform(0, seconds * 0.6),
        lasts=None if stays else random.uniform(1.0, seconds),
        end=random.choice(("stop", "stop", "crash", "vanish")),
        seed=random.getrandbits(32),
        options=options,
        tasks=random.choice((1, 2, 4)),
        pause=random.choice((0.01, 0.05, 0.3)),
        sizes=random.choice(((12,), (12, 200), (12, 200, 3_000))),
        cancels=random.choice((0.0, 0.1, 0.4)),
        by_key=random.choice((0.0, 0.5)),
    )


def _options(random: Random) -> ProducerOptions:
    request = random.choice((1_000, 3_000))
    return ProducerOptions(
        linger_ms=random.choice((0, 5, 100)),
        batch_size=random.choice((0, 300, 2_000, 16_384)),
        buffer_memory=random.choice((17_000, 40_000, 1 << 20)),
        max_in_flight_requests_per_connection=random.choice((1, 2, 5, 5)),
        max_request_size=random.choice((4_000, 1 << 20)),
        compression_type=random.choice(("none", "none", "gzip")),
        request_timeout_ms=request,
        delivery_timeout_ms=random.choice((request + 200, 10_000, 30_000)),
        max_block_ms=random.choice((2_000, 10_000)),
        retry_backoff_ms=random.choice((10, 100)),
        metadata_max_age_ms=random.choice((2_000, 300_000)),
        socket_connection_setup_timeout_ms=random.choice((1_000, 5_000)),
        connections_max_idle_ms=random.choice((3_000, 540_000)),
    )


def _faults(random: Random, seconds: float, *, transactional: bool) -> tuple[FaultPlan, ...]:
    kinds = random.sample(FAULTS, random.randint(1, 5))
    if transactional:
        kinds += random.sample(TRANSACTION_FAULTS, random.randint(0, 3))
    found = [
        FaultPlan(
            at=random.uniform(0, seconds),
            kind=random.choice(kinds),
            seconds=random.choice((0.05, 0.5, 2.0, 6.0)) * random.uniform(0.5, 1.5),
            seed=random.getrandbits(32),
        )
        for _ in range(random.randint(1, 15))
    ]
    return tuple(sorted(found, key=lambda fault: fault.at))


def frozen_seconds(plan: ProducerPlan) -> float:
    """Return for how long a host may stand still in this world, in all."""
    found: list[Any] = [fault.seconds for fault in plan.faults if fault.kind == "freeze"]
    return float(sum(found))
