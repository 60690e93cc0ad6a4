"""How many partitions go into one request, and which go together."""

from __future__ import annotations

from uuid import UUID

from aiokc.core.offsets.portions import commit_portion, fetch_portions, known_ids
from aiokc.types import OffsetAndMetadata, TopicPartition

OLD, NEW = UUID(int=1), UUID(int=2)


def test_every_partition_is_fetched_once_a_thousand_at_a_time() -> None:
    partitions = [TopicPartition("t", number) for number in range(2_001)]
    portions = list(fetch_portions(partitions))
    assert [len(portion) for portion in portions] == [1_000, 1_000, 1]
    assert [tp for portion in portions for tp in portion] == partitions


def test_offsets_with_ids_go_first_and_a_thousand_at_a_time() -> None:
    by_id = {TopicPartition("a", number): OffsetAndMetadata(1, topic_id=OLD) for number in range(1_001)}
    by_name = {TopicPartition("b", 0): OffsetAndMetadata(1)}
    remaining = by_name | by_id
    ids = {"a": OLD}
    for size in (1_000, 1, 1):
        portion = commit_portion(remaining, (), ids.get)
        assert len(portion) == size
        for tp in portion:
            del remaining[tp]
    assert commit_portion(remaining, (), ids.get) == {}


def test_what_was_refused_and_what_is_of_a_former_topic_is_left_out() -> None:
    former, refused, left = (TopicPartition(topic, 0) for topic in ("former", "refused", "left"))
    remaining = {
        former: OffsetAndMetadata(1, topic_id=OLD),
        refused: OffsetAndMetadata(2),
        left: OffsetAndMetadata(3),
    }
    assert commit_portion(remaining, {refused}, {"former": NEW}.get) == {left: OffsetAndMetadata(3)}


def test_offsets_of_two_topics_of_one_name_never_go_together() -> None:
    """The metadata have no topic of that name at the moment: neither id is wrong, and one request takes one."""
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)
    remaining = {first: OffsetAndMetadata(1, topic_id=OLD), second: OffsetAndMetadata(2, topic_id=NEW)}
    assert list(commit_portion(remaining, (), lambda topic: None)) == [first]


def test_topics_without_an_id_are_not_in_known_ids() -> None:
    assert known_ids([TopicPartition("a", 0), TopicPartition("b", 1)], {"a": OLD}.get) == {"a": OLD}
