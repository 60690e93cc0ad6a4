"""Divides partitions among OffsetCommit and OffsetFetch requests: by their number, and by topics' ids."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias
from uuid import UUID

from ...types import OffsetAndMetadata, TopicPartition
from ..subscription.position import is_of_another_topic
from .messages import TopicIds

#: Returns the id that a topic's name has now; None where it is not known.
FindTopicId: TypeAlias = Callable[[str], UUID | None]

# The most partitions in one OffsetFetch or OffsetCommit; more of them take several requests, one after the other. So
# neither writing a request nor reading its answer holds the loop for long.
AT_ONCE: Final = 1_000


def fetch_portions(partitions: Sequence[TopicPartition]) -> Iterator[Sequence[TopicPartition]]:
    for begin in range(0, len(partitions), AT_ONCE):
        yield partitions[begin : begin + AT_ONCE]


def commit_portion(
    remaining: Mapping[TopicPartition, OffsetAndMetadata],
    passed: Collection[TopicPartition],
    current_id: FindTopicId,
) -> dict[TopicPartition, OffsetAndMetadata]:
    """What the next OffsetCommit stores of ``remaining``: offsets with ids before those without; empty if none is left.

    Left out are the partitions that have ``passed`` already, and the offsets of a former topic.
    """
    ids: dict[str, UUID | None] = {}
    by_id: dict[TopicPartition, OffsetAndMetadata] = {}
    by_name: dict[TopicPartition, OffsetAndMetadata] = {}
    for tp, offset in remaining.items():
        if tp in passed:
            continue
        if tp.topic not in ids:
            ids[tp.topic] = current_id(tp.topic)
        if offset.topic_id is None:
            if len(by_name) < AT_ONCE:
                by_name[tp] = offset
        elif not is_of_another_topic(offset, ids[tp.topic]):
            by_id[tp] = offset
            # If the metadata have no such topic at the moment, offsets of several former topics of this name may be
            # left: one request takes those of one topic.
            ids[tp.topic] = offset.topic_id
        if len(by_id) == AT_ONCE:
            break
    return by_id or by_name


def known_ids(partitions: Iterable[TopicPartition], find_id: FindTopicId) -> TopicIds:
    found = {topic: find_id(topic) for topic in {tp.topic for tp in partitions}}
    return {topic: topic_id for topic, topic_id in found.items() if topic_id is not None}
