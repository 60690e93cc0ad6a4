from __future__ import annotations

import pytest
from confluent_kafka import KafkaException, TopicPartition

from benchmarks import load


@pytest.mark.parametrize(
    ("held", "reason"),
    [
        ([(0, 100), (0, 100), (0, 100)], None),
        (
            [(0, 100), (0, 60), (0, 0)],
            r"holds offsets \(0, 60\) and not \(0, 100\) in partition 1, and others in 2 of 3",
        ),
        ([(0, 100)], "the offsets of topic t cannot be found"),
    ],
    ids=["whole", "broken off", "a partition less"],
)
def test_a_topic_that_is_there_holds_what_it_should(
    monkeypatch: pytest.MonkeyPatch, held: list[tuple[int, int]], reason: str | None
) -> None:
    """A run that was broken off while it loaded a topic of AIOKC_BOOTSTRAP's broker left a part of it."""

    class Reader:
        def __init__(self, _: object) -> None: ...
        def close(self) -> None: ...
        def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
            number: int = partition.partition
            if number >= len(held):
                raise KafkaException("no such partition")
            return held[number]

    monkeypatch.setattr(load, "create_topic", lambda *_: False)
    monkeypatch.setattr(load, "Consumer", Reader)
    if reason is None:
        load.load_spread("localhost:1", "t", 3, 300, 100)
        return
    with pytest.raises(load.LoadFailed, match=reason):
        load.load_spread("localhost:1", "t", 3, 300, 100)
