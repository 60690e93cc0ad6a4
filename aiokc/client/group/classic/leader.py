"""The work of the group leader: runs the assignor, and follows the topics of all members in the metadata."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from typing import Final

from ....core.assignors.values import NO_RACKS, Racks
from ....core.cluster.missing_topics import MissingTopics
from ....core.cluster.snapshot import Cluster
from ....core.group.classic.messages import ClassicGroup
from ....core.group.events import ComputeAssignment, Event, Fatal
from ....errors import ConnectionFailed, RequestTimedOut
from ....net.own_thread import OwnThread
from ....net.user_errors import leaves_the_loop
from ...cluster.metadata import Metadata

logger = logging.getLogger("aiokc.group")

# How long the leader waits for the metadata of topics that only other members read. The other members wait for the
# leader, for their request timeout at most. If the metadata come later, the partition counts have changed, and the
# group rebalances again.
METADATA_SECONDS: Final = 5.0
# With more members and partitions together than this, the assignor runs in a thread. For so many the slowest of our
# assignors (sticky, where members differ in their topics) needs about 3 ms on a slow machine.
_SMALL_GROUP: Final = 150


class GroupLeader:
    """The group leader's part of a membership: it works out assignments, and follows the topics of the whole group."""

    def __init__(self, group: ClassicGroup, metadata: Metadata, patience: float) -> None:
        """``patience``: for how many seconds a topic must be missing before that is a reason to rebalance."""
        self.watched: frozenset[str] = frozenset()
        self._group = group
        self._metadata = metadata
        self._missing = MissingTopics(patience)
        self._counted: frozenset[str] = frozenset()  # topics that existed when partitions were counted
        self._thread: OwnThread | None = None
        self._interest = metadata.interest(may_create=True)

    def basis(self, topics: frozenset[str]) -> Mapping[str, object]:
        """What an assignment of ``topics`` depends on: partition counts and, if this member has a rack, the replicas.

        Java compares the racks of the replicas; this does not, because a broker that is away for a restart is no reason
        to rebalance.
        """
        cluster = self._metadata.cluster
        counts = cluster.partition_counts(topics)
        return counts if self._group.rack_id is None else {**counts, "": cluster.replicas(topics)}

    def news(self) -> Mapping[str, object] | None:
        """Return the ``basis`` of the watched topics by the newest metadata; None while they may lack one by mistake.

        None also where nothing is watched.
        """
        if self._lacks_by_mistake():
            self._metadata.request_update()
            return None
        self._counted = self.watched & self._metadata.cluster.topics.keys()
        return self.basis(self.watched) if self.watched else None

    def _lacks_by_mistake(self) -> bool:
        """Whether the metadata lack topics that existed when partitions were counted, and have not done so for long."""
        missing = (self._counted & self.watched) - self._metadata.cluster.topics.keys()
        return bool(self._missing.kept(missing, self._metadata.refreshed_at))

    async def compute(self, task: ComputeAssignment) -> Event:
        """Run the assignor on the newest metadata of all topics of the group; in a thread if it may take long.

        If it exits, the membership fails like for any other error, and the exit leaves the loop.
        """
        event = await self._computed(task)
        if isinstance(event, Fatal):
            leaves_the_loop(event.error.__cause__)
        return event

    async def _computed(self, task: ComputeAssignment) -> Event:
        self.watch(task.topics)
        await self._metadata_of(task.topics)
        cluster = self._metadata.cluster
        counts = cluster.partition_counts(task.topics)
        has_racks = any(member.subscription.rack_id for member in task.members)
        racks: Racks = cluster.replica_racks(task.topics) if has_racks else NO_RACKS
        basis = self.basis(task.topics)
        self._counted = task.topics & cluster.topics.keys()
        if self._thread is None and len(task.members) + sum(counts.values()) <= _SMALL_GROUP:
            return self._group.assign(task, counts, racks, basis)
        # The assignor has a thread of its own: the application may keep the loop's default threads busy for longer than
        # a session lasts. A cancelled assignment runs to its end, and its result is dropped. The next assignment waits
        # for that end: an assignor may be the application's code, which need not be thread-safe.
        if self._thread is None:
            self._thread = OwnThread("aiokc assignor")
        assign = partial(self._group.assign, task, counts, racks, basis)
        try:
            return await self._thread.run(assign)
        except ConnectionFailed as error:  # no thread to spare just now; so no assignor runs in one
            logger.warning(
                "group %r: the assignor runs in the event loop, which holds it up: %s", self._group.group_id, error
            )
            return assign()

    def close(self) -> None:
        """Assign nothing more. Do not wait for an assignor that is running: its thread ends when it returns."""
        self._interest.close()
        if self._thread is not None:
            self._thread.close()
            self._thread = None

    async def _metadata_of(self, topics: frozenset[str]) -> None:
        before = self._metadata.cluster.version

        def answered(cluster: Cluster) -> bool | None:
            """All topics exist, or a new metadata answer says which do not, and those have not just existed."""
            missing = [topic for topic in topics if topic not in cluster.topics]
            if self._lacks_by_mistake():
                return None
            asked = cluster.version > before and (cluster.complete or all(topic in cluster.errors for topic in missing))
            return not missing or asked or None

        try:
            await self._metadata.wait_for(answered, METADATA_SECONDS, "the topics of the group")
        except RequestTimedOut as error:
            logger.warning("group %r: assigning what is known: %s", self._group.group_id, error)

    def watch(self, topics: frozenset[str]) -> None:
        """Have the metadata follow ``topics``, which the group reads, for as long as this member leads it."""
        self.watched = topics
        self._interest.set(topics)
