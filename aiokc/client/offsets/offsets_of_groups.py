"""Keeps the GroupOffsets of the groups that a Client looks at from outside: of the last ones, and of those in use."""

from __future__ import annotations

from typing import Final
from weakref import WeakValueDictionary

from ...config import ClientConfig
from ..cluster.cluster_client import ClusterClient
from .group_offsets import GroupOffsets

#: So many groups' coordinators are remembered between calls. A monitor may ask for thousands of groups, each new ones.
_KEPT: Final = 100


class OffsetsOfGroups:
    """One GroupOffsets for each group.

    All calls in progress for one group share one object, however many other groups are asked for meanwhile: it keeps
    their commits in order. What the last call leaves behind is remembered for the last hundred groups only.
    """

    def __init__(self, config: ClientConfig, cluster_client: ClusterClient[ClientConfig]) -> None:
        self._config = config
        self._cluster_client = cluster_client
        self._alive: WeakValueDictionary[str, GroupOffsets] = WeakValueDictionary()
        self._kept: dict[str, GroupOffsets] = {}  # the one used last is the last

    def of(self, group_id: str) -> GroupOffsets:
        group = self._alive.get(group_id)
        if group is None:
            group = self._alive[group_id] = self._made(group_id)
        self._kept.pop(group_id, None)
        self._kept[group_id] = group
        if len(self._kept) > _KEPT:
            del self._kept[next(iter(self._kept))]
        return group

    def _made(self, group_id: str) -> GroupOffsets:
        cluster_client = self._cluster_client
        return GroupOffsets(
            self._config,
            cluster_client.pool,
            group_id,
            cluster_client.random,
            request_metadata=cluster_client.metadata.request_update,
        )
