"""Fetches up to 1 MiB from each leader of a topic, and from the follower that a leader names for this client's rack."""

from __future__ import annotations

from collections.abc import Sequence

from ...core.doctor.fetch import (
    IDS_FROM,
    Fetched,
    Target,
    can_name,
    fetch_findings,
    fetch_request,
    fetched,
    follower_not_looked_at,
    no_connection,
    no_fetch,
    not_redirected,
    offsets_in,
    offsets_refused,
    offsets_request,
    rack_findings,
    redirected,
    target,
    unreachable_follower,
)
from ...core.doctor.report import Finding, milder
from ...core.doctor.topic import TopicSeen
from ...error_codes import ErrorCode
from ...errors import KafkaError
from ...net.connection import Connection
from ...types import EARLIEST, LATEST
from ...wire.messages.fetch import FetchRequest
from .cluster import Reached, name_of
from .kit import Kit


async def fetch_from_leaders(kit: Kit, reached: Reached, topic: TopicSeen) -> list[Finding]:
    """Fetch from each leader, one after the other: they share this machine's network."""
    findings = rack_findings(kit.config.client_rack, reached.seen)
    for node_id, partitions in sorted(topic.leaders.items()):
        subject = name_of(reached.seen, node_id)
        if reached.has(node_id):
            findings += await _fetch_from(kit, reached, topic, node_id, partitions)
        else:
            findings.append(no_connection(subject))
    return findings


async def _fetch_from(
    kit: Kit, reached: Reached, topic: TopicSeen, node_id: int, partitions: Sequence[int]
) -> list[Finding]:
    subject = name_of(reached.seen, node_id)
    try:
        leader = await reached.connection(node_id)
        wanted, errors = await _target(kit, leader, topic, partitions)
    except KafkaError as error:
        return [no_fetch(subject, error, "ListOffsets")]
    if wanted is None:
        return offsets_refused(subject, topic.name, errors or {partitions[0]: ErrorCode.UNKNOWN_SERVER_ERROR})
    refused = [milder(found) for found in offsets_refused(subject, topic.name, errors)]
    return refused + await _fetch_one(kit, reached, topic, node_id, leader, wanted)


async def _fetch_one(
    kit: Kit, reached: Reached, topic: TopicSeen, node_id: int, leader: Connection, wanted: Target
) -> list[Finding]:
    subject, rack = name_of(reached.seen, node_id), kit.config.client_rack
    try:
        got = await _fetch_from_start(kit, leader, leader, topic, wanted)
    except KafkaError as error:
        return [no_fetch(subject, error, "Fetch")]
    if got.code == 0 and got.preferred >= 0 and got.preferred != node_id:
        return await _from_follower(kit, reached, topic, node_id, leader, got)
    findings = fetch_findings(subject, got, topic)
    return findings + not_redirected(subject, node_id, got, topic, rack, reached.seen)


async def _from_follower(
    kit: Kit, reached: Reached, topic: TopicSeen, node_id: int, leader: Connection, sent: Fetched
) -> list[Finding]:
    name = name_of(reached.seen, node_id)
    if not reached.has(sent.preferred):
        unreachable = unreachable_follower if reached.seen.is_complete else follower_not_looked_at
        return [unreachable(name, sent.preferred)]
    subject = name_of(reached.seen, sent.preferred)
    rack = kit.config.client_rack
    try:
        follower = await reached.connection(sent.preferred)
        got = await _fetch_from_start(kit, leader, follower, topic, sent.target)
    except KafkaError as error:
        return [redirected(name, sent, rack), no_fetch(subject, error, "Fetch")]
    return [redirected(name, sent, rack), *fetch_findings(subject, got, topic, of_follower=True)]


async def _fetch_from_start(
    kit: Kit, leader: Connection, broker: Connection, topic: TopicSeen, wanted: Target
) -> Fetched:
    """Fetch from a broker. Look up where the log begins once more where it does not begin there any more.

    The leader names the beginning; retention deletes the oldest segment; the Fetch is out of range. What the first
    Fetch brought stands where the leader does not name the beginning again.
    """
    got = await _fetch(kit, broker, topic, wanted)
    if got.code != ErrorCode.OFFSET_OUT_OF_RANGE:
        return got
    try:
        moved, _ = await _target(kit, leader, topic, [wanted.partition])
    except KafkaError:
        return got
    return got if moved is None else await _fetch(kit, broker, topic, moved)


async def _target(
    kit: Kit, leader: Connection, topic: TopicSeen, partitions: Sequence[int]
) -> tuple[Target | None, dict[int, int]]:
    """Return the partition to fetch from, and the codes of those whose offsets the leader refuses to name."""
    level = kit.config.isolation_level
    started = kit.now()
    request = offsets_request(topic.name, partitions, EARLIEST, level)
    first, errors = offsets_in(await leader.request(request, timeout=kit.patience()))
    seconds = kit.now() - started
    request = offsets_request(topic.name, partitions, LATEST, level)
    last, more = offsets_in(await leader.request(request, timeout=kit.patience()))
    return target(first, last, seconds), {**errors, **more}


async def _fetch(kit: Kit, broker: Connection, topic: TopicSeen, wanted: Target) -> Fetched:
    request = fetch_request(topic, wanted, kit.config)
    highest = None if can_name(topic.topic_id) else IDS_FROM - 1
    version = broker.usable_version(FetchRequest, highest)
    started = kit.now()
    answer = await broker.request(request, timeout=kit.patience(), max_version=version)
    return fetched(answer, wanted, kit.now() - started)
