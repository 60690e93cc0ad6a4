"""Rows from what a cluster answers: a group's description and its lag."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .rows import LagRow, member_names

if TYPE_CHECKING:
    from aiokc import TopicPartition
    from aiokc.admin import GroupDescription, Lag, MemberDescription


def names_of(members: tuple[MemberDescription, ...]) -> Mapping[str, str]:
    """Return the names by which to show these members, by member id."""
    return member_names((one.member_id, one.group_instance_id, one.client_id, one.host) for one in members)


def lag_rows(
    group_id: str, group: GroupDescription | None, lags: Mapping[TopicPartition, Lag], now_ms: int
) -> list[LagRow]:
    """Return a row for each partition in order, with its owner, as far as the group's description is known."""
    owners = {tp: member for member in group.members for tp in member.assignment} if group is not None else {}
    names = names_of(group.members) if group is not None else {}
    rows = []
    for tp, lag in sorted(lags.items()):
        owner = owners.get(tp)
        rows.append(
            LagRow(
                group=group_id,
                topic=tp.topic,
                partition=tp.partition,
                committed=None if lag.committed is None else lag.committed.offset,
                end=lag.end,
                lag=lag.lag,
                lag_ms=lag.age_ms(now_ms),
                member=None if owner is None else names[owner.member_id],
                member_id=None if owner is None else owner.member_id,
                error=None if lag.error is None else str(lag.error),
            )
        )
    return rows
