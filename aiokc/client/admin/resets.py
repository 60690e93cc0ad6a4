"""Plans a reset of a group's offsets, and applies it: looks at the group again right before it writes."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Final, get_args

from ...admin import EARLIEST, LATEST, GroupIsActive, LikeGroup, PlanIsOutdated, ResetPlan, ResetTarget, ToOffsets
from ...core.admin.group_answers import is_not_found
from ...core.admin.offset_answers import Offsets, commit_refusal
from ...core.admin.reset_rows import ResetFacts, reset_rows, time_of
from ...core.offsets.messages import TOPIC_IDS, commit_codes, commit_request
from ...errors import ConfigError, KafkaError, UnknownTopic, shown
from ...types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from ..arguments import checked_group, checked_offsets, checked_partition
from .asking import Asking, raised
from .cluster import describe_topics
from .coordinators import ask_coordinator, behind_doubt
from .groups import all_offsets_of, describe_groups
from .leaders import list_each

_COMMITS_AT_ONCE: Final = 1000


async def plan_reset(
    asking: Asking,
    group_id: str,
    target: ResetTarget,
    topics: Collection[str] | None,
    partitions: Collection[TopicPartition] | None,
) -> ResetPlan:
    target = checked_target(target)
    unknown = await _checked_kind(asking, group_id)
    committed = raised((await all_offsets_of(asking, [group_id], stable=True))[group_id])
    copied: Mapping[TopicPartition, OffsetAndMetadata] = {}
    if isinstance(target, LikeGroup):
        copied = raised((await all_offsets_of(asking, [target.group_id], stable=True))[target.group_id])
    if topics is None and partitions is None:
        wanted = set(target.offsets if isinstance(target, ToOffsets) else copied or committed)
        if unknown is not None and not wanted:  # a plan without rows would say that there is nothing to do
            raise unknown
    else:
        wanted = {*(partitions or ()), *await _partitions_of(asking, topics or ())}
    starts = await _existing(asking, dict.fromkeys(wanted, EARLIEST))
    ends = await _existing(asking, dict.fromkeys(wanted, LATEST))
    timestamp = time_of(target, time.time_ns() // 1_000_000)
    at_time = await _existing(asking, dict.fromkeys(wanted, timestamp)) if timestamp is not None else {}

    def planned() -> ResetPlan:
        facts = ResetFacts(
            starts={tp: found.offset for tp, found in starts.items() if found is not None},
            ends={tp: found.offset for tp, found in ends.items() if found is not None},
            committed=committed,
            at_time=at_time,
            copied=copied,
        )
        return ResetPlan(group_id, reset_rows(target, wanted, facts))

    return await asking.read(planned, len(wanted))


async def _checked_kind(asking: Asking, group_id: str) -> KafkaError | None:
    """Return the error of a group that does not exist yet, which may get offsets to begin with; None: it does.

    Raises for a group whose offsets cannot be reset.
    """
    group = (await describe_groups(asking, [group_id]))[group_id]
    if isinstance(group, KafkaError) and is_not_found(group):
        return group
    if raised(group).type == "share":
        raise ConfigError(f"group {group_id!r} is a share group: it commits no offsets that could be reset")
    return None


async def _partitions_of(asking: Asking, topics: Collection[str]) -> list[TopicPartition]:
    described = await describe_topics(asking, topics) if topics else {}
    return [TopicPartition(name, number) for name, topic in described.items() for number in raised(topic).partitions]


async def _existing(
    asking: Asking, timestamps: Mapping[TopicPartition, int]
) -> dict[TopicPartition, OffsetAndTimestamp | None]:
    """Return the offsets of those partitions that exist. Raises any other error: a plan has all facts, or is none."""
    found = await list_each(asking, timestamps, "read_uncommitted")
    return await asking.read(
        lambda: {tp: raised(one) for tp, one in found.items() if not isinstance(one, UnknownTopic)}, len(found)
    )


async def apply_reset(asking: Asking, plan: ResetPlan) -> dict[TopicPartition, KafkaError | None]:
    portions = await asking.read(lambda: _portions(checked_offsets(plan.new_offsets)), len(plan.rows))
    if not portions:
        return {}
    await _check_state(asking, plan)
    results: dict[TopicPartition, KafkaError | None] = {}
    for portion in portions:
        results |= await _commit(asking, plan.group_id, portion)
    return results


async def _check_state(asking: Asking, plan: ResetPlan) -> None:
    """Raise GroupIsActive, or PlanIsOutdated where other offsets are committed than those that the plan has.

    That includes "unchanged" partitions: the plan says where the group stands in them afterwards, and nothing is
    written there that would make it true.
    """
    group_id = plan.group_id
    group = (await describe_groups(asking, [group_id]))[group_id]
    if not is_not_found(group) and raised(group).is_active:
        raise GroupIsActive(group_id, raised(group).state, raised(group).members)
    committed = raised((await all_offsets_of(asking, [group_id], stable=True))[group_id])
    if changed := await asking.read(lambda: _changed(plan, committed), len(plan.rows)):
        raise PlanIsOutdated(group_id, changed)


def _changed(plan: ResetPlan, committed: Offsets) -> dict[TopicPartition, tuple[int | None, int | None]]:
    """Return the offsets of the plan, and of now, of the partitions where these differ."""
    now = {tp: offset.offset for tp, offset in committed.items()}
    return {
        row.partition: (row.committed, now.get(row.partition))
        for row in plan.rows
        if row.new is not None and row.committed != now.get(row.partition)
    }


async def _commit(
    asking: Asking, group_id: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, KafkaError | None]:
    """Store these offsets from outside the group, with topics by name: the offsets belong to what has the name now."""

    async def ask(node_id: int) -> dict[TopicPartition, int]:
        wanted = commit_request(group_id, offsets, None)
        return commit_codes(await asking.change(node_id, wanted, TOPIC_IDS - 1), offsets)

    unsure: set[str] = set()
    codes = await ask_coordinator(asking, group_id, list(offsets), ask, unsure=unsure)
    results = {
        tp: commit_refusal(found, group_id, tp) if isinstance(found, int) else found for tp, found in codes.items()
    }
    return behind_doubt(results) if unsure else results


def _portions(new: Mapping[TopicPartition, OffsetAndMetadata]) -> list[dict[TopicPartition, OffsetAndMetadata]]:
    all_of_them = sorted(new)
    return [
        {tp: new[tp] for tp in all_of_them[begin : begin + _COMMITS_AT_ONCE]}
        for begin in range(0, len(all_of_them), _COMMITS_AT_ONCE)
    ]


def checked_target(given: object) -> ResetTarget:
    """Return ``given``, if it is a target, with partitions and a group that may exist. Raises ConfigError."""
    if not isinstance(given, ResetTarget):
        names = ", ".join(kind.__name__ for kind in get_args(ResetTarget))
        raise ConfigError(f"{shown(given)} is no target of a reset: give one of aiokc.admin's {names}")
    if isinstance(given, LikeGroup):
        checked_group(given.group_id)
    elif isinstance(given, ToOffsets):
        return ToOffsets({checked_partition(tp): offset for tp, offset in given.offsets.items()})
    target: ResetTarget = given
    return target
