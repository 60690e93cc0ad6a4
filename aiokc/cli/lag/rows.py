"""The rows of `aiokc lag`: one for each partition of a group, or sums over a topic, a member or the group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal, TypeAlias

Grouping: TypeAlias = Literal["partition", "topic", "member", "group"]

#: The rows of one key, over time: what rates are computed from, and what a live view finds a row again by.
Key: TypeAlias = tuple[str, str | None, int | None, str | None]

NO_MEMBER: Final = "(no member)"


@dataclass(frozen=True, slots=True)
class LagRow:
    """Where a group is in a partition, or the sum over several.

    ``committed``, ``end`` and ``lag`` are None where they are not known: the group has committed nothing, or the end
    could not be asked for. ``lag_ms`` is the age of the record at the committed offset, None where it is not known.
    In a sum ``partitions`` counts all partitions, ``unknown`` those without a lag, which the sum leaves out, and
    ``lag_ms`` is the largest; ``without_age`` counts those with a lag that have none; ``summed`` names the partitions
    with a lag, by group, topic and number. ``error`` says why something is not known.
    """

    group: str
    topic: str | None
    partition: int | None
    committed: int | None
    end: int | None
    lag: int | None
    lag_ms: int | None
    member: str | None
    member_id: str | None = None
    partitions: int = 1
    unknown: int = 0
    without_age: int = 0
    error: str | None = None
    summed: frozenset[tuple[str, str | None, int | None]] = frozenset()

    @property
    def key(self) -> Key:
        return self.group, self.topic, self.partition, None if self.partition is not None else self.member_id


@dataclass(slots=True)
class _Sum:
    first: LagRow
    rows: list[LagRow] = field(default_factory=list)

    def row(self, by: Grouping) -> LagRow:
        known = [row for row in self.rows if row.lag is not None]
        ages = [row.lag_ms for row in known if row.lag_ms is not None]
        return LagRow(
            group=self.first.group,
            topic=self.first.topic if by == "topic" else None,
            partition=None,
            committed=_sum(row.committed for row in known),
            end=_sum(row.end for row in known),
            lag=_sum(row.lag for row in known),
            lag_ms=max(ages, default=None),
            member=(self.first.member or NO_MEMBER) if by == "member" else None,
            member_id=(self.first.member_id or "") if by == "member" else None,
            partitions=len(self.rows),
            unknown=len(self.rows) - len(known),
            without_age=len(known) - len(ages),
            error=next((row.error for row in self.rows if row.error is not None), None),
            summed=frozenset((row.group, row.topic, row.partition) for row in known),
        )


def _sum(values: Iterable[int | None]) -> int | None:
    found = [value for value in values if value is not None]
    return sum(found) if found else None


def summed(rows: Iterable[LagRow], by: Grouping) -> list[LagRow]:
    """Add up rows of partitions by topic, member or group, in the order of their first rows.

    A partition without a lag is counted, and adds nothing. The ends and committed offsets of a sum are those of the
    partitions with a lag, so that rates computed from them belong together.
    """
    if by == "partition":
        return list(rows)
    sums: dict[tuple[str, str | None], _Sum] = {}
    for row in rows:
        within = {"topic": row.topic, "member": row.member_id, "group": None}[by]
        sums.setdefault((row.group, within), _Sum(row)).rows.append(row)
    return [one.row(by) for one in sums.values()]


def total(rows: Sequence[LagRow]) -> LagRow | None:
    """Add up rows of partitions over all groups, as ``summed`` does; the sum's group is "". None: there are no rows.

    Rates of the sum need one key, whichever groups there are.
    """
    return replace(_Sum(rows[0], list(rows)).row("group"), group="") if rows else None


def member_names(members: Iterable[tuple[str, str | None, str, str]]) -> Mapping[str, str]:
    """Name members as people know them, by member id, from (member id, instance id, client id, host).

    That is the instance id of a static member, else the client id, with the host. Where these are equal, the first
    characters of what the coordinator added to tell the members apart are shown, too.
    """
    plain: dict[str, str] = {}
    own: dict[str, str] = {}
    for member_id, instance_id, client_id, host in members:
        name = instance_id or client_id or member_id
        plain[member_id] = f"{name}@{host.removeprefix('/')}" if host else name
        # A classic member's id is its client id and a UUID, a member's of KIP-848 is a UUID: the end is its own.
        own[member_id] = member_id.removeprefix(f"{instance_id or client_id}-")[:8]
    names = list(plain.values())
    return {
        member_id: name if names.count(name) == 1 else f"{name}#{own[member_id]}" for member_id, name in plain.items()
    }
