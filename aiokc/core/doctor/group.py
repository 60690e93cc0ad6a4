"""What a group's coordinator, members and lag mean."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...admin import AclOperation, ConfigEntry, GroupDescription, Lag
from ...error_codes import ErrorCode, error_name
from ...errors import BrokerError, KafkaError
from ...types import TopicPartition, named
from ..sasl.broker_text import broker_text
from .report import Finding, Step, Verdict, counted, duration, long_duration

_SHOWN: Final = 5
_CLOSE: Final = 0.8  # of the retention: what is that old may be deleted before a slow group has read it
#: Error codes of a coordinator that may be there in a moment.
COMING: Final = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_SETTLED: Final = ("Stable", "Empty", "Dead")
_SHARE: Final = "share"
_OF_CONSUMERS: Final = ("", "classic", "consumer")


# The coordinator


def no_coordinator(group: str, code: int) -> Finding:
    """Return the finding about a group whose coordinator the brokers do not name."""
    if code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        text = f"The broker does not let this client use group {group!r}"
        return _group(group, Verdict.PROBLEM, "group.denied", text, f"grant READ and DESCRIBE for group {group!r}")
    if code in COMING:
        text = f"The group has no coordinator now ({error_name(code)})"
        advice = (
            "look at the topic __consumer_offsets: its partitions need leaders. The first group of a new cluster has "
            "it created, with offsets.topic.replication.factor replicas; so many brokers must run"
        )
        return _group(group, Verdict.PROBLEM, "group.no_coordinator", text, advice)
    text = f"The brokers do not name the group's coordinator ({error_name(code)})"
    return _group(group, Verdict.PROBLEM, "group.no_coordinator", text, "look at the brokers' logs, and try again")


def coordinator_found(group: str, broker: str, seconds: float) -> Finding:
    """Return the finding about a coordinator that can be reached."""
    text = f"{broker} coordinates the group, and is reached ({duration(seconds)})"
    return _group(group, Verdict.OK, "group.coordinator", text, "", seconds=seconds)


def coordinator_not_reached(group: str, broker: str) -> Finding:
    """Return the finding about a coordinator that is none of the brokers that were reached."""
    text = f"{broker} coordinates the group, and is not among the brokers that were reached"
    advice = "the broker may have just gone, and another one takes the group over: try again"
    return _group(group, Verdict.PROBLEM, "group.coordinator_unreachable", text, advice)


def not_looked_at(group: str, broker: str) -> Finding:
    """Return the finding about a coordinator that is none of the brokers that were looked at."""
    text = f"{broker} coordinates the group, and is not among the brokers that were looked at"
    return _group(group, Verdict.NOTE, "group.not_looked_at", text, "")


def no_group_answer(group: str, error: KafkaError, what: str) -> Finding:
    """Return the finding about a coordinator that does not answer. ``what``: what it was asked for."""
    if isinstance(error, BrokerError) and error.code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return no_coordinator(group, error.code)
    text = f"{what}: {error}"
    return _group(group, Verdict.PROBLEM, "group.failed", text, "look at the coordinator's log, and try again")


# State and members


def is_unknown(answer: object) -> bool:
    """Whether the coordinator knows no such group, as far as the answer tells: a description, a lag, or an error."""
    if isinstance(answer, GroupDescription):
        return answer.state == "Dead"
    return isinstance(answer, BrokerError) and answer.code == ErrorCode.GROUP_ID_NOT_FOUND


def unknown_group(group: str) -> Finding:
    """Return the finding about a group that does not exist."""
    text = "The coordinator knows no such group: no member has joined it, and nothing is committed for it"
    advice = (
        "look at the spelling of group_id, and whether this is the cluster that is meant; a group is there as soon as "
        "a consumer joins, and goes offsets.retention.minutes after its last member"
    )
    return _group(group, Verdict.WARNING, "group.unknown", text, advice)


def is_of_consumers(kind: str) -> bool:
    """Whether consumers join a group of this type, as brokers list it; "" is that of brokers before 3.8."""
    return kind in _OF_CONSUMERS


def is_share_group(described: GroupDescription) -> bool:
    """Whether it is a group of KIP-932: its offsets are of another kind."""
    return described.type == _SHARE


def other_kind(group: str, kind: str) -> Finding:
    """Return the finding about a group that no consumer can join. ``kind``: its type, "" where it is not known."""
    named = f"a {broker_text(kind)} group" if kind else "a group of another kind, such as Kafka Streams' own"
    text = f"This is {named}: no consumer can join it"
    text += "; it commits no offsets, so it has no lag" if kind == _SHARE else ""
    advice = "a consumer needs a group_id that is not in use for anything else"
    return _group(group, Verdict.WARNING, "group.other_kind", text, advice, {"type": broker_text(kind)})


def state_finding(described: GroupDescription) -> Finding:
    """Return the finding about a group that exists: its state and members."""
    group, state, count = described.group_id, broker_text(described.state), len(described.members)
    members = counted(count, "member")
    details: dict[str, object] = {
        "state": state,
        "type": broker_text(described.type),
        "members": count,
        "assignor": broker_text(described.assignor),
    }
    text = f"{state}, {members}, {described.type} protocol"
    if described.state not in _SETTLED:
        text = f"The group is rebalancing ({state}, {members})"
        advice = (
            "look again in some seconds; if it lasts, a member joins and leaves again and again, or does not poll: "
            "look at the logs of the members, max_poll_interval_ms and session_timeout_ms"
        )
        return _group(group, Verdict.WARNING, "group.rebalancing", text, advice, details)
    # What the members of others own, such as Kafka Connect's workers, is written in bytes of their own.
    idle = [one for one in described.members if not one.assignment and described.protocol_type == "consumer"]
    if idle:
        text = f"{text}; {len(idle)} of them own{'s' if len(idle) == 1 else ''} nothing: more members than partitions"
        return _group(group, Verdict.NOTE, "group.idle_members", text, "", details)
    return _group(group, Verdict.OK, "group.state", text, "", details)


def permission_findings(described: GroupDescription) -> list[Finding]:
    """Return the finding about a group that the client may see, and not join.

    Brokers name what ALL grants one by one (KIP-430). Who may describe a group may do something: a broker that names
    no operation does not tell them.
    """
    group, may = described.group_id, described.authorized_operations
    if not may or AclOperation.READ in may:
        return []
    named = ", ".join(one.name for one in sorted(may))
    text = f"The client may see the group, and neither join it nor commit for it; it may: {named}"
    return [_group(group, Verdict.PROBLEM, "group.no_read", text, f"grant READ for group {group!r}")]


# Lag


def past_end(lags: Mapping[TopicPartition, Lag]) -> list[TopicPartition]:
    """Return the partitions of which the group has committed more than there is to read."""
    return [
        tp
        for tp, lag in lags.items()
        if lag.committed is not None and lag.end is not None and lag.committed.offset > lag.end
    ]


def lag_findings(
    group: str,
    described: GroupDescription | None,
    lags: Mapping[TopicPartition, Lag],
    log_ends: Mapping[TopicPartition, int],
    now_ms: int,
) -> list[Finding]:
    """Return the findings about how far a group is behind.

    ``described`` is None where the group is of a kind that this client can't describe: nothing is known of its members.
    ``log_ends``: where the logs of ``past_end()`` end, as far as known. The end that a Lag has is, for readers of
    committed records, before the first open transaction: a group that reads uncommitted ones may be behind it.
    """
    known = {tp: lag for tp, lag in lags.items() if lag.lag is not None}
    total = sum(lag.lag or 0 for lag in known.values())
    ages = [age for lag in known.values() if (age := lag.age_ms(now_ms)) is not None]
    oldest = max(ages, default=0)
    found = [
        *_failed(group, lags),
        *_deleted(group, known),
        *_beyond(group, known, log_ends),
        *(_unread(described, known, total) if described is not None else ()),
    ]
    uncommitted = sum(lag.committed is None and lag.error is None for lag in lags.values())
    text = _behind(len(known), total, oldest, uncommitted)
    if not lags:
        text = "nothing is committed, and no member owns a partition"
    details = {"lag": total, "partitions": len(known), "uncommitted": uncommitted, "oldest_ms": oldest}
    return [*found, _group(group, Verdict.OK, "group.lag", text, "", details)]


def _behind(partitions: int, lag: int, oldest_ms: int, uncommitted: int) -> str:
    """Return the sentence about the partitions whose lag is known, and about those where nothing is committed."""
    parts = []
    if partitions:
        behind = f"{counted(lag, 'record')} behind" if lag else "has read all"
        since = f", the oldest {long_duration(oldest_ms / 1e3)} old" if lag and oldest_ms else ""
        parts.append(f"{behind} in {counted(partitions, 'partition')}{since}")
    if uncommitted:
        parts.append(f"nothing is committed in {counted(uncommitted, 'partition')} that members own")
    return "; ".join(parts) or "no lag is known"


def retention_findings(
    group: str,
    lags: Mapping[TopicPartition, Lag],
    configs: Mapping[str, Mapping[str, ConfigEntry] | KafkaError],
    now_ms: int,
) -> list[Finding]:
    """Return the findings about records that retention will delete before the group has read them."""
    found = []
    for topic, entries in sorted(configs.items()):
        retention = None if isinstance(entries, KafkaError) else _retention_ms(entries)
        if retention is None:
            continue
        ages = {tp: lag.age_ms(now_ms) or 0 for tp, lag in lags.items() if tp.topic == topic and lag.lag}
        close = {tp: age for tp, age in ages.items() if age > retention * _CLOSE}
        if not close:
            continue
        oldest = max(close.values())
        left = retention - oldest
        when = "at any time now" if left <= 0 else f"in {long_duration(left / 1e3)}"
        text = (
            f"The record that the group reads next is {long_duration(oldest / 1e3)} old in {named(close, _SHOWN)}, and "
            f"retention.ms of {topic!r} is {long_duration(retention / 1e3)}: it is deleted {when}"
        )
        advice = f"add members, or raise retention.ms of topic {topic!r} until the group has caught up"
        details = {"retention_ms": retention, "oldest_ms": oldest}
        found.append(_group(group, Verdict.WARNING, "group.close_to_retention", text, advice, details))
    return found


def _retention_ms(entries: Mapping[str, ConfigEntry]) -> int | None:
    """Return retention.ms of a topic whose records are deleted by their age; None where they are not."""
    policy, retention = entries.get("cleanup.policy"), entries.get("retention.ms")
    if retention is None or retention.value is None or (policy and "delete" not in (policy.value or "")):
        return None
    text = retention.value
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


def _failed(group: str, lags: Mapping[TopicPartition, Lag]) -> list[Finding]:
    failed = {tp: lag.error for tp, lag in lags.items() if lag.error is not None}
    if not failed:
        return []
    text = f"No lag is known of {named(failed, _SHOWN)}: {next(iter(failed.values()))}"
    return [_group(group, Verdict.WARNING, "group.no_lag", text, "look at these partitions: doctor TOPIC")]


def _deleted(group: str, lags: Mapping[TopicPartition, Lag]) -> list[Finding]:
    gone = {
        tp: lag.start - lag.committed.offset
        for tp, lag in lags.items()
        if lag.committed is not None and lag.start is not None and lag.committed.offset < lag.start
    }
    if not gone:
        return []
    text = (
        f"Retention has deleted {counted(sum(gone.values()), 'record')} of {named(gone, _SHOWN)} that the group had "
        "not read: its committed offsets are below the beginning of the log"
    )
    advice = (
        "auto_offset_reset (or offset_out_of_range_reset) decides where the group goes on; keep records longer, or add "
        "members"
    )
    return [_group(group, Verdict.WARNING, "group.deleted_unread", text, advice, {"records": sum(gone.values())})]


def _beyond(group: str, lags: Mapping[TopicPartition, Lag], log_ends: Mapping[TopicPartition, int]) -> list[Finding]:
    committed = {tp: lag.committed.offset for tp, lag in lags.items() if lag.committed is not None}
    beyond = [tp for tp, end in log_ends.items() if committed.get(tp, end) > end]
    if not beyond:
        return []
    text = f"The committed offsets of {named(beyond, _SHOWN)} are behind the end of the log: the log was "
    text += "truncated, or the topic recreated"
    advice = "the group goes on where auto_offset_reset says; reset its offsets to where it is to go on"
    return [_group(group, Verdict.WARNING, "group.beyond_end", text, advice)]


def _unread(described: GroupDescription, lags: Mapping[TopicPartition, Lag], total: int) -> list[Finding]:
    """Return the findings about records that nobody is going to read."""
    group = described.group_id
    if described.state == "Empty" and total and not described.protocol_type:
        text = (
            f"No member has joined the group, and there {'is' if total == 1 else 'are'} {counted(total, 'record')} to "
            "read: a consumer with assign() commits for it and joins nothing, or its members have yet to be started"
        )
        advice = "if consumers are to join it: start them, and look at their group_id and their logs"
        return [_group(group, Verdict.NOTE, "group.no_members", text, advice)]
    if described.state == "Empty" and total:
        text = f"The group has no members, and {counted(total, 'record')} to read"
        advice = "start its consumers; if they run, look at their group_id and their logs"
        return [_group(group, Verdict.WARNING, "group.no_members", text, advice)]
    owned = {tp for member in described.members for tp in member.assignment}
    read = {topic for member in described.members for topic in member.subscription} or {tp.topic for tp in owned}
    unowned = [tp for tp, lag in lags.items() if lag.lag and tp not in owned and tp.topic in read]
    if described.state != "Stable" or not unowned:
        return []
    text = f"No member owns {named(unowned, _SHOWN)}, where there are records to read"
    return [
        _group(group, Verdict.WARNING, "group.no_owner", text, "look at the logs of the group's leader and members")
    ]


def _group(
    group: str,
    verdict: Verdict,
    code: str,
    text: str,
    advice: str,
    details: Mapping[str, object] | None = None,
    *,
    seconds: float | None = None,
) -> Finding:
    return Finding(
        step=Step.GROUP,
        verdict=verdict,
        code=code,
        subject=f"group {group!r}",
        text=text,
        advice=advice,
        seconds=seconds,
        details=details or {},
    )
