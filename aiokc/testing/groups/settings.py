"""The broker settings of groups, and what the coordinators of older releases do otherwise."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class GroupSettings:
    """The broker settings of groups. Names and defaults are those of Kafka's broker configuration.

    Two defaults differ, so that tests need not wait: ``group_initial_rebalance_delay_ms`` is 0 (Kafka: 3000), and
    ``group_consumer_assignment_interval_ms`` is 0 (Kafka: 1000, since 4.3).
    """

    group_initial_rebalance_delay_ms: int = 0
    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = 2_147_483_647
    offset_metadata_max_bytes: int = 4096
    #: A constant in Kafka: how long the JoinGroup of a new member may wait, which sends no heartbeats yet.
    new_member_join_timeout_ms: int = 300_000
    # The consumer protocol (KIP-848)
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_max_size: int = 2_147_483_647
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    #: Which groups may change their protocol while they have members: bidirectional, upgrade, downgrade or disabled.
    group_consumer_migration_policy: str = "bidirectional"
    #: A new assignment is computed at most so often (KIP-1263).
    group_consumer_assignment_interval_ms: int = 0


@dataclass(frozen=True)
class ReleaseRules:
    """What the coordinator of a release does.

    commits_by_claim    a member may commit with an older epoch what it has owned since then (KIP-1251, 4.3); before,
                        its epoch had to be the newest
    known_members_join  a member that is known may join again (KAFKA-19233, 4.3); before, it was fenced
    """

    commits_by_claim: bool = True
    known_members_join: bool = True
