"""What a member does while it leads its group: work out the assignment, and watch the topics that it is based on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ....core.assignors.values import NO_RACKS, Racks
from ....core.cluster.snapshot import Cluster
from ....core.group.classic.messages import ClassicGroup
from ....core.group.events import ComputeAssignment, Event
from ....errors import RequestTimedOut
from ...cluster.metadata import Metadata

logger = logging.getLogger("aiokc.group")

# How long the leader waits for the metadata of topics that only other members read. They wait for the leader, with the
# request timeout for a limit; if the metadata comes later, the counts have changed and the group rebalances again.
METADATA_SECONDS: Final = 5.0
# Members and partitions together: with more of them than this an assignor is given a thread. The slowest of ours needs
# about 20 us for each of them on a slow machine.
_SMALL_GROUP: Final = 150


class GroupLeader:
    """The leader's part of a membership. It follows the topics of the whole group for as long as it leads."""

    def __init__(self, group: ClassicGroup, metadata: Metadata) -> None:
        self.watched: frozenset[str] = frozenset()
        self._group = group
        self._metadata = metadata
        self._thread: ThreadPoolExecutor | None = None
        self._interest = metadata.interest(may_create=True)

    def basis(self, topics: frozenset[str]) -> Mapping[str, object]:
        """What an assignment of ``topics`` depends on: their partition counts; for a leader with a rack, their places.

        Not the racks themselves, as in Java: a broker that is away for a restart is no reason to rebalance.
        """
        cluster = self._metadata.cluster
        counts = cluster.partition_counts(topics)
        return counts if self._group.rack_id is None else {**counts, "": cluster.replicas(topics)}

    async def compute(self, task: ComputeAssignment) -> Event:
        """Run the assignor on the newest metadata of all topics of the group: off the loop if that may take long."""
        self.watch(task.topics)
        await self._metadata_of(task.topics)
        cluster = self._metadata.cluster
        counts = cluster.partition_counts(task.topics)
        has_racks = any(member.subscription.rack_id for member in task.members)
        racks: Racks = cluster.replica_racks(task.topics) if has_racks else NO_RACKS
        basis = self.basis(task.topics)
        if self._thread is None and len(task.members) + sum(counts.values()) <= _SMALL_GROUP:
            return self._group.assign(task, counts, racks, basis)
        # A thread of its own: the default ones are the user's, who may keep them busy for longer than a session lasts.
        # A cancelled assignment goes on, and is told to nobody. The next one waits for its end: an assignor may be
        # anybody's code, and nobody told him that it has to do two things at once.
        if self._thread is None:
            self._thread = ThreadPoolExecutor(1, "aiokc assignor")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, self._group.assign, task, counts, racks, basis)

    def close(self) -> None:
        """Assign nothing more. An assignor that is at work is not waited for: its thread ends with it."""
        self._interest.close()
        if self._thread is not None:
            self._thread.shutdown(wait=False, cancel_futures=True)
            self._thread = None

    async def _metadata_of(self, topics: frozenset[str]) -> None:
        before = self._metadata.cluster.version

        def answered(cluster: Cluster) -> bool | None:
            """All topics exist, or a new answer says of each that it does not."""
            missing = [topic for topic in topics if topic not in cluster.topics]
            asked = cluster.version > before and (cluster.complete or all(topic in cluster.errors for topic in missing))
            return not missing or asked or None

        try:
            await self._metadata.wait_for(answered, METADATA_SECONDS, "the topics of the group")
        except RequestTimedOut as error:
            logger.warning("group %r: assigning what is known: %s", self._group.group_id, error)

    def watch(self, topics: frozenset[str]) -> None:
        """Have the metadata follow what the group reads, for as long as this member leads it."""
        self.watched = topics
        self._interest.set(topics)
