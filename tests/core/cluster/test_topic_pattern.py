"""Which topics a pattern matches."""

from __future__ import annotations

import re
from collections.abc import Iterable

from aiokc.core.cluster.topic_pattern import TopicPattern
from aiokc.types import TopicInfo


def info(*names: str) -> dict[str, TopicInfo]:
    return {name: TopicInfo(name, {}, is_internal=name.startswith("__")) for name in names}


def matches(pattern: TopicPattern, names: Iterable[str], every: int = 100) -> frozenset[str]:
    steps = pattern.match(info(*names), every=every)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            return frozenset(done.value)


def test_the_whole_name_must_match() -> None:
    """As in Java; a Python programmer may expect re.match()."""
    pattern = TopicPattern(re.compile("events"))
    assert matches(pattern, ["events", "events-2", "my-events"]) == {"events"}
    assert matches(TopicPattern(re.compile("events.*|log")), ["events-2", "log", "logs"]) == {"events-2", "log"}


def test_topics_that_kafka_keeps_for_itself_are_left_out() -> None:
    names = ["__consumer_offsets", "__mine", "events"]
    everything = re.compile(".*")
    assert matches(TopicPattern(everything), names) == {"events"}
    assert matches(TopicPattern(everything, exclude_internal=False), names) == set(names)


def test_a_name_that_is_gone_is_forgotten_and_looked_at_again() -> None:
    pattern = TopicPattern(re.compile("a+"))
    assert matches(pattern, ["a", "aa", "b"]) == {"a", "aa"}
    assert matches(pattern, ["b"]) == frozenset()
    assert matches(pattern, ["a", "b"]) == {"a"}


def test_many_names_are_looked_at_in_steps() -> None:
    names = [f"t{number}" for number in range(1000)]
    pattern = TopicPattern(re.compile(r"t\d*7"))
    steps = list(pattern.match(info(*names), every=100))
    assert len(steps) == 10
    assert matches(pattern, names) == {name for name in names if name.endswith("7")}


def test_patterns_are_equal_where_they_mean_the_same() -> None:
    one = TopicPattern(re.compile("a"))
    assert one == TopicPattern(re.compile("a"))
    assert hash(one) == hash(TopicPattern(re.compile("a")))
    assert one != TopicPattern(re.compile("a", re.IGNORECASE))
    assert one != TopicPattern(re.compile("a"), exclude_internal=False)
    assert one != "a"
