"""Looks at a group: its coordinator, its state and members, how far it is behind, and what retention will delete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from ...admin import LATEST, GroupDescription, Lag, PartialListing
from ...core.cluster.coordinators import KeyType, coordinator_of, coordinator_request
from ...core.doctor.group import (
    COMING,
    coordinator_found,
    coordinator_not_reached,
    is_of_consumers,
    is_share_group,
    is_unknown,
    lag_findings,
    no_coordinator,
    no_group_answer,
    not_looked_at,
    other_kind,
    past_end,
    permission_findings,
    retention_findings,
    state_finding,
    unknown_group,
)
from ...core.doctor.report import Finding
from ...errors import KafkaError
from ...net.connection import Connection
from ...types import TopicPartition
from ...wire.messages.discovery import FindCoordinatorRequest
from ..client import Client
from .cluster import Reached, name_of
from .kit import Kit

_MOST_TOPICS: Final = 100
_COORDINATOR_SECONDS: Final = 5.0
_PAUSE: Final = 0.2


async def look_at_group(kit: Kit, reached: Reached, group: str) -> list[Finding]:
    """Look at a group from outside: nothing joins it."""
    started = kit.now()
    try:
        code, node_id = await _coordinator_at_last(kit, reached, group)
    except KafkaError as error:
        return [no_group_answer(group, error, "FindCoordinator")]
    if code:
        return [no_coordinator(group, code)]
    broker = name_of(reached.seen, node_id)
    if reached.has(node_id):
        found = coordinator_found(group, broker, kit.now() - started)
    elif reached.seen.is_complete:
        return [coordinator_not_reached(group, broker)]
    else:
        found = not_looked_at(group, broker)
    return [found, *await _by_a_client(kit, group)]


async def _coordinator_at_last(kit: Kit, reached: Reached, group: str) -> tuple[int, int]:
    """Do as ``_coordinator``, and ask again for some seconds while there is none.

    With the first question for a group, a cluster that never had one creates the topic of the committed offsets.
    """
    until = kit.now() + kit.patience(_COORDINATOR_SECONDS)
    while True:
        code, node_id = await _coordinator(kit, await reached.connection(), group)
        if code not in COMING or kit.now() >= until:
            return code, node_id
        await asyncio.sleep(_PAUSE)


async def _coordinator(kit: Kit, connection: Connection, group: str) -> tuple[int, int]:
    """Return an error code, and the id of the broker that coordinates the group."""
    version = connection.usable_version(FindCoordinatorRequest)
    request = coordinator_request(KeyType.GROUP, [group], version)
    answer = await connection.request(request, timeout=kit.patience(), max_version=version)
    found = coordinator_of(group, request, answer)
    return found.error_code, found.node_id


async def _by_a_client(kit: Kit, group: str) -> list[Finding]:
    """Ask by a Client's administrative calls, which speak both group protocols."""
    client = Client(kit.config)
    try:
        await client.start(timeout_ms=_left(kit))
        return await _described(kit, client, group)
    except KafkaError as error:
        return [no_group_answer(group, error, "DescribeGroups")]
    finally:
        await client.stop()


async def _described(kit: Kit, client: Client, group: str) -> list[Finding]:
    described = (await client.describe_groups([group], timeout_ms=_left(kit)))[group]
    if is_unknown(described):
        return await _not_described(kit, client, group)
    if not isinstance(described, GroupDescription):
        return [no_group_answer(group, described, "DescribeGroups")]
    if is_share_group(described):
        return [other_kind(group, described.type)]
    findings = [state_finding(described), *permission_findings(described)]
    lags = await _lags(kit, client, group)
    if isinstance(lags, KafkaError):
        return [*findings, no_group_answer(group, lags, "lag")]
    return findings + await _behind(kit, client, group, described, lags)


async def _not_described(kit: Kit, client: Client, group: str) -> list[Finding]:
    """Look at a group that exists in no protocol that this client can describe.

    One of Kafka Streams' own (KIP-1071) is listed all the same, and has offsets.
    """
    lags = await _lags(kit, client, group)
    kind = await _listed_type(kit, client, group)
    if not isinstance(lags, KafkaError):
        return [other_kind(group, kind), *await _behind(kit, client, group, None, lags)]
    if not is_unknown(lags):
        return [no_group_answer(group, lags, "lag")]
    return [other_kind(group, kind) if kind else unknown_group(group)]


async def _listed_type(kit: Kit, client: Client, group: str) -> str:
    """Return the type that the brokers list for a group, if it is none of consumers; else, and without one, ""."""
    try:
        listed = await client.list_groups(timeout_ms=_left(kit))
    except PartialListing as partial:
        listed = list(partial.groups)
    except KafkaError:
        return ""
    kinds = (one.type for one in listed if one.group_id == group)
    return next((kind for kind in kinds if not is_of_consumers(kind)), "")


async def _lags(kit: Kit, client: Client, group: str) -> dict[TopicPartition, Lag] | KafkaError:
    return (await client.group_lag([group], with_time=True, timeout_ms=_left(kit)))[group]


async def _behind(
    kit: Kit,
    client: Client,
    group: str,
    described: GroupDescription | None,
    lags: Mapping[TopicPartition, Lag],
) -> list[Finding]:
    """Return the findings about the lag, and about what retention will delete."""
    now_ms = int(kit.unix_time() * 1000)
    findings = lag_findings(group, described, lags, await _log_ends(kit, client, lags), now_ms)
    return findings + await _retention(kit, client, group, lags, now_ms)


async def _log_ends(kit: Kit, client: Client, lags: Mapping[TopicPartition, Lag]) -> dict[TopicPartition, int]:
    """Return where the logs end that the group has read to behind what there is to read, as far as that is known."""
    past = dict.fromkeys(past_end(lags), LATEST)
    try:
        found = await client.list_offsets(past, isolation_level="read_uncommitted", timeout_ms=_left(kit))
    except KafkaError:
        return {}
    return {tp: end.offset for tp, end in found.items() if end is not None}


async def _retention(
    kit: Kit, client: Client, group: str, lags: Mapping[TopicPartition, Lag], now_ms: int
) -> list[Finding]:
    """Compare the age of what is to be read with the topics' retention, where this client may see that."""
    topics = sorted({tp.topic for tp, lag in lags.items() if lag.lag})[:_MOST_TOPICS]
    if not topics:
        return []
    try:
        configs = await client.topic_configs(topics, timeout_ms=_left(kit))
    except KafkaError:
        return []  # without the permission DESCRIBE_CONFIGS nothing is known, and nothing is wrong
    return retention_findings(group, lags, configs, now_ms)


def _left(kit: Kit) -> int:
    return max(1, int(kit.patience(kit.config.default_api_timeout_ms / 1e3) * 1e3))
