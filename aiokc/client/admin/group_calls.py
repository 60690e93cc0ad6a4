"""``GroupCalls``: Client's calls about groups, their members, offsets and lag, and what resets or deletes those."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager

from ...admin import GroupDescription, GroupListing, Lag, ResetPlan, ResetTarget
from ...admin.groups import GROUP_STATES, GROUP_TYPES
from ...config import ClientConfig, IsolationLevel
from ...errors import KafkaError
from ...types import OffsetAndMetadata, TopicPartition
from ..arguments import checked_group, checked_partitions, checked_topics
from ..cluster.cluster_client import ClusterClient
from .arguments import (
    checked_groups,
    checked_isolation,
    checked_names,
    checked_texts,
    checked_words,
)
from .asking import Asking, raised


class GroupCalls:
    """The part of Client that looks at groups, and changes them from outside."""

    config: ClientConfig
    _cluster: ClusterClient[ClientConfig]
    _asking: Callable[[float | None], AbstractAsyncContextManager[Asking]]

    async def list_groups(
        self, states: Iterable[str] = (), types: Iterable[str] = (), *, timeout_ms: float | None = None
    ) -> list[GroupListing]:
        """Ask every broker for its groups; return them in the order of their ids.

        ``states`` and ``types`` choose groups by Kafka's names, in any case: "Stable", "consumer". Raises ConfigError
        for a name that Kafka does not have, which would find no group, and UnsupportedVersion where a broker cannot
        tell them apart: states need Kafka 2.6 (KIP-518), types 3.8 (KIP-848).
        Raises PartialListing where brokers do not answer within ``timeout_ms``: it names them, and has what the others
        listed. A principal sees the groups that it may DESCRIBE; none is no error.
        """
        self._cluster.check()
        chosen = checked_words("state", states, GROUP_STATES), checked_words("type", types, GROUP_TYPES)
        async with self._asking(timeout_ms) as asking:
            from . import groups

            return await groups.list_groups(asking, *chosen)

    async def describe_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, GroupDescription | KafkaError]:
        """Return these groups by id: state, members, what each owns; of the classic, consumer and share protocols.

        A group that does not exist has BrokerError with GROUP_ID_NOT_FOUND; one without permission AuthorizationFailed.
        A group of another kind, such as Kafka Streams' own (KIP-1071), counts as one that does not exist.
        """
        self._cluster.check()
        wanted = checked_names(group_ids, checked_groups)
        async with self._asking(timeout_ms) as asking:
            from . import groups

            return await groups.describe_groups(asking, wanted)

    async def group_offsets(
        self, group_id: str, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return all that a group has committed, of the topics that this principal may DESCRIBE.

        It is empty for a group that does not exist, and for one that has committed nothing. An offset in a transaction
        that is still open does not count yet.
        """
        self._cluster.check()
        async with self._asking(timeout_ms) as asking:
            from . import groups

            found = await groups.all_offsets_of(asking, [checked_group(group_id)], stable=False)
        return raised(found[group_id])

    async def group_lag(
        self,
        group_ids: Iterable[str],
        *,
        isolation_level: IsolationLevel | None = None,
        with_time: bool = False,
        timeout_ms: float | None = None,
    ) -> dict[str, dict[TopicPartition, Lag] | KafkaError]:
        """Return how far these groups are behind, by partition: all that they have committed, or that a member owns.

        ``isolation_level`` (None: the client's) says what the end is: behind the last record, or for "read_committed"
        the last stable offset. ``with_time`` adds the timestamp of the record to read next, which takes a Fetch of each
        leader. A partition whose end cannot be told has the error in its Lag; a group that does not exist is
        GROUP_ID_NOT_FOUND.
        """
        self._cluster.check()
        wanted = checked_names(group_ids, checked_groups)
        level = checked_isolation(self.config.isolation_level if isolation_level is None else isolation_level)
        async with self._asking(timeout_ms) as asking:
            from . import lag

            return await lag.group_lag(asking, wanted, level, with_time=with_time)

    async def plan_reset(
        self,
        group_id: str,
        target: ResetTarget,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[TopicPartition] | None = None,
        timeout_ms: float | None = None,
    ) -> ResetPlan:
        """Return the offsets that ``target`` means for a group, partition by partition; writes nothing.

        The plan has all partitions of ``topics``, and ``partitions``. With neither, it has those that a ToOffsets or
        LikeGroup target names, or else all partitions for which the group has committed an offset; it raises
        GROUP_ID_NOT_FOUND where there are none, and no such group. A partition that does not exist has a row without an
        offset; a topic that does not exist raises UnknownTopic. Raises ConfigError for a share group: its offsets are
        of another kind. Waits for open transactions that commit offsets.
        """
        self._cluster.check()
        async with self._asking(timeout_ms) as asking:
            from . import resets

            return await resets.plan_reset(
                asking,
                checked_group(group_id),
                target,
                None if topics is None else checked_names(topics, checked_topics),
                None if partitions is None else checked_partitions(partitions),
            )

    async def apply_reset(
        self, plan: ResetPlan, *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Commit the offsets that a plan changes; return None, or why it was refused, for each of those partitions.

        Looks at the group again right before: raises GroupIsActive where it has members, which it names with their
        hosts, and PlanIsOutdated where the group has committed since the plan was made. A member that joins after that
        look has the broker refuse the offsets: CommitFailed. An error that is no BrokerError, such as RequestTimedOut,
        leaves open whether the offset was written.
        """
        self._cluster.check()
        checked_group(plan.group_id)
        async with self._asking(timeout_ms) as asking:
            from . import resets

            return await resets.apply_reset(asking, plan)

    async def remove_members(
        self,
        group_id: str,
        members: Iterable[str] = (),
        *,
        instances: Iterable[str] = (),
        reason: str = "",
        timeout_ms: float | None = None,
    ) -> dict[str, KafkaError | None]:
        """Take members out of a group, by member id, and static members by ``instances``, which frees their place.

        Returns None, or why it was refused, by the given id. The group rebalances. A member that still runs joins anew,
        so stop it first. An error that is no BrokerError, such as RequestTimedOut, leaves open whether the member was
        removed. ``reason`` is for the coordinator's log (KIP-800).
        """
        self._cluster.check()
        group = checked_group(group_id)
        leaving = checked_names(members, checked_texts), checked_names(instances, checked_texts)
        async with self._asking(timeout_ms) as asking:
            from . import groups

            return await groups.remove_members(asking, group, *leaving, *checked_texts([reason]))

    async def delete_groups(
        self, group_ids: Iterable[str], *, timeout_ms: float | None = None
    ) -> dict[str, KafkaError | None]:
        """Delete groups without members, and all that they have committed; return None, or why not, for each.

        A group with members is refused with NON_EMPTY_GROUP, one that does not exist with GROUP_ID_NOT_FOUND. An error
        that is no BrokerError, such as RequestTimedOut, leaves open whether the group was deleted.
        """
        self._cluster.check()
        wanted = checked_names(group_ids, checked_groups)
        async with self._asking(timeout_ms) as asking:
            from . import groups

            return await groups.delete_groups(asking, wanted)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout_ms: float | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        """Delete what a group has committed for these partitions; return None, or why not, for each.

        A topic that a member subscribes to is refused with GROUP_SUBSCRIBED_TO_TOPIC. A partition without a committed
        offset gives None. An error that is no BrokerError, such as RequestTimedOut, leaves open whether the offset was
        deleted. Needs Kafka 2.4 (KIP-496).
        """
        self._cluster.check()
        wanted = list(dict.fromkeys(checked_partitions(partitions)))
        async with self._asking(timeout_ms) as asking:
            from . import groups

            return await groups.delete_offsets(asking, checked_group(group_id), wanted)
