"""The broker settings of groups, and what the coordinators of older releases do otherwise."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace


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
    #: After so long, patterns are matched again though no topic was created: what a user may describe has changed, say.
    group_consumer_regex_refresh_interval_ms: int = 600_000


@dataclass(frozen=True)
class GroupConfig:
    """What an administrator sets for one group (KIP-848), by Kafka's names; None: as it was."""

    consumer_session_timeout_ms: int | None = None
    consumer_heartbeat_interval_ms: int | None = None
    consumer_assignment_interval_ms: int | None = None


class GroupConfigs:
    """What holds for each group: the brokers' settings, and what was set for that group."""

    def __init__(self, brokers: GroupSettings) -> None:
        self._brokers = brokers
        self._own: dict[str, GroupSettings] = {}

    def of(self, group_id: str) -> GroupSettings:
        return self._own.get(group_id, self._brokers)

    def configure(self, group_id: str, config: GroupConfig) -> None:
        changes = {f"group_{name}": value for name, value in asdict(config).items() if value is not None}
        self._own[group_id] = replace(self.of(group_id), **changes)


@dataclass(frozen=True)
class ReleaseRules:
    """What the coordinator of a release does.

    commits_by_claim    a member may commit with an older epoch what it has owned since then (KIP-1251, 4.3); before,
                        its epoch had to be the newest
    known_members_join  a member that is known may join again (KAFKA-19233, 4.3); before, it was fenced
    """

    commits_by_claim: bool = True
    known_members_join: bool = True
