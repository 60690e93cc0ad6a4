"""Whether everything arrived exactly once: each check says in words what holds, or what differs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from consuming import Member
from events import Ride

T = TypeVar("T")


class Check(NamedTuple):
    """``differs`` names what is wrong; it is empty where ``claim`` holds."""

    claim: str
    differs: tuple[str, ...]


def check_members(members: Sequence[Member], rides: Collection[Ride], ends: Mapping[int, int]) -> list[Check]:
    """Compare what the members received with what was produced, and with the ends of the partitions."""
    ids = Counter(receipt.ride_id for member in members for receipt in member.received)
    records = Counter((receipt.partition, receipt.offset) for member in members for receipt in member.received)
    shares = " and ".join(f"{len(member.received):,}" for member in members)
    idle = [f"{member.name} received nothing" for member in members if not member.received]
    return [
        Check("both members had work", tuple(idle)),
        Check(
            f"the members received each of the {len(rides):,} rides exactly once ({shares})",
            once(ids, (ride.id for ride in rides), str),
        ),
        Check("each record (partition, offset) was received exactly once", once(records, in_log(ends), _record)),
    ]


def check_spark(
    counted: Counter[tuple[datetime, str]],
    records: Iterable[tuple[int, int]],
    expected: Counter[tuple[datetime, str]],
    ends: Mapping[int, int],
) -> list[Check]:
    """Compare what Spark counted with what was produced, and with the ends of the partitions."""
    wrong = [
        f"{minute:%H:%M} {city}: {counted[minute, city]} counted, {expected[minute, city]} produced"
        for minute, city in sorted(counted.keys() | expected.keys())
        if counted[minute, city] != expected[minute, city]
    ]
    total = sum(ends.values())
    sums = () if counted.total() == total else (f"the counts sum up to {counted.total():,}, not to {total:,}",)
    return [
        Check(
            f"Spark's {len(expected)} counts are those of the rides produced, and sum up to {total:,}", (*sums, *wrong)
        ),
        Check(
            "Spark counted each record (partition, offset) exactly once", once(Counter(records), in_log(ends), _record)
        ),
    ]


def in_log(ends: Mapping[int, int]) -> list[tuple[int, int]]:
    """Return (partition, offset) of every record in a topic that was never trimmed."""
    return [(partition, offset) for partition, end in ends.items() for offset in range(end)]


def once(found: Counter[T], expected: Iterable[T], name: Callable[[T], str]) -> tuple[str, ...]:
    """Return what is missing, found more than once, or not expected at all; empty where each is there once."""
    wanted = set(expected)
    return tuple(
        _some(what, sorted(name(item) for item in items))
        for what, items in (
            ("missing", wanted - found.keys()),
            ("more than once", {item for item, times in found.items() if times > 1}),
            ("never produced", found.keys() - wanted),
        )
        if items
    )


def _some(what: str, names: Sequence[str]) -> str:
    return f"{len(names):,} {what}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"


def _record(record: tuple[int, int]) -> str:
    return f"partition {record[0]} offset {record[1]}"
