"""What the snapshot keeps of topics that nobody follows: no errors, and of the topics those that were answered last."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Final
from uuid import UUID

from .snapshot import Cluster

#: So many topics that nobody follows stay: to send to one of them again, or to commit its offsets, needs no request.
_KEPT: Final = 1000


def without_old_errors(cluster: Cluster, followed: Collection[str] | None) -> Cluster:
    """Return the snapshot with errors of topics that are followed only (None: all are).

    Nothing asks for the others any more, so their errors would stay for ever:

    1. A producer is refused a topic. It sends on, and each send raises what the snapshot says.
    2. After metadata_max_idle_ms the topic counts as idle, and is not asked for any more.
    3. The rights are granted. Sends would still raise that error, and raise it before they have the topic followed.
    """
    if followed is None or cluster.errors.keys() <= set(followed):
        return cluster
    return replace(cluster, errors={topic: code for topic, code in cluster.errors.items() if topic in followed})


def without_old_topics(cluster: Cluster, followed: Collection[str] | None, topic_ids: Collection[UUID]) -> Cluster:
    """Return the snapshot without topics that nobody follows by name or id, but for the 1,000 answered last.

    A process that sends to thousands of short-lived topics would keep all of them. A complete snapshot stays as it is:
    what it lacks does not exist.
    """
    if followed is None or cluster.complete or len(cluster.topics) <= _KEPT:
        return cluster
    others = [
        name for name, topic in cluster.topics.items() if name not in followed and topic.topic_id not in topic_ids
    ]
    if len(others) <= _KEPT:
        return cluster
    dropped = set(others[:-_KEPT])
    return replace(cluster, topics={name: topic for name, topic in cluster.topics.items() if name not in dropped})
