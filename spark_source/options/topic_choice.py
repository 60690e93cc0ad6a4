"""The options `subscribe`, `subscribePattern` and `assign`: which topics and partitions a query reads. Pure."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from aiokc import TopicPartition
from aiokc.errors import ConfigError

from ..offsets import ANCHOR, quoted
from .values import json_object

STRATEGIES: Final = ("assign", "subscribe", "subscribePattern")
ONLY_READS: Final = "this source writes nothing; write with format('kafka'), or with aiokc.Producer in foreachPartition"

# An escaped character, or an expression in brackets, and the first [ inside of it.
_BRACKETS: Final = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\[\]\\])*(\[)?", re.DOTALL)


@dataclass(frozen=True)
class TopicChoice:
    """What one of the options `assign`, `subscribe` and `subscribePattern` says.

    ``topics`` are the names to look up, or None if ``pattern`` (in Python's notation) decides; as in Spark's own
    source, it may match any part of a name. ``partitions`` is None if the query reads all partitions of its topics.
    """

    option: str
    topics: frozenset[str] | None
    pattern: str | None = None
    partitions: frozenset[TopicPartition] | None = None

    def wants_topic(self, topic: str) -> bool:
        """Return whether partitions of this topic are to be read."""
        if self.topics is not None:
            return topic in self.topics
        return re.search(self.pattern or "", topic) is not None

    def wants(self, tp: TopicPartition) -> bool:
        """Return whether this partition is to be read."""
        return tp in self.partitions if self.partitions is not None else self.wants_topic(tp.topic)


def subscribe(*topics: str) -> TopicChoice:
    """Return the choice of all partitions of these topics."""
    return TopicChoice("subscribe", frozenset(topics))


def parse_choice(given: Mapping[str, str]) -> TopicChoice:
    """Return the choice of these options (names in lower case). Raises ConfigError unless exactly one is given."""
    named = [option for option in STRATEGIES if option.lower() in given]
    if len(named) > 1:
        both = " and ".join(f"'{option}'" for option in named)
        raise ConfigError(f"options {both} exclude one another: keep one of them")
    text = given[named[0].lower()] if named else ""
    if not text.strip():
        raise ConfigError(
            f"option '{named[0] if named else 'subscribe'}' is missing; give topics ('subscribe': events,orders), "
            """a regular expression ('subscribePattern': events-.*) or partitions ('assign': {"events":[0,1]}). """
            f"To write: {ONLY_READS}"
        )
    return {"assign": _assigned, "subscribe": _subscribed, "subscribePattern": _matching}[named[0]](text)


def _subscribed(text: str) -> TopicChoice:
    topics = frozenset(topic.strip() for topic in text.split(",") if topic.strip())
    if not topics:
        raise ConfigError("option 'subscribe' names no topic; give one or more: 'events,orders'")
    for topic in sorted(topics):
        _check_name("subscribe", topic)
    return TopicChoice("subscribe", topics)


def _assigned(text: str) -> TopicChoice:
    example = '{"events":[0,1]}'
    partitions: set[TopicPartition] = set()
    for topic, numbers in json_object("assign", example, text).items():
        _check_name("assign", topic)
        if not isinstance(numbers, list):
            raise ConfigError(f"option 'assign': topic {quoted(topic)} must have a list of partitions, like {example}")
        for number in numbers:
            if isinstance(number, bool) or not isinstance(number, int) or number < 0:
                raise ConfigError(f"option 'assign': {quoted(number)} of topic {quoted(topic)} is no partition number")
            partitions.add(TopicPartition(topic, number))
    if not partitions:
        raise ConfigError(f"option 'assign' names no partition; give some, like {example}")
    return TopicChoice("assign", frozenset(tp.topic for tp in partitions), None, frozenset(partitions))


def _matching(text: str) -> TopicChoice:
    # Of what a pattern of topic names may need, only named groups are written differently in Java and Python.
    pattern = re.sub(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>", r"(?P<\1>", text.strip())
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # Python gives Java's [a-z&&[^b]] another meaning, and only warns
            re.compile(pattern)
        if any(found[1] for found in _BRACKETS.finditer(pattern)):
            raise re.error("[ in brackets")  # Java's union of two classes; Python means the character, and warns not
    except (re.error, Warning) as error:
        raise ConfigError(
            f"option 'subscribePattern': {quoted(text)} is no regular expression that Python understands ({error}); "
            "of Java's, leave out \\p{...}, \\Q...\\E, and in brackets && and another ["
        ) from error
    return TopicChoice("subscribePattern", None, pattern)


def _check_name(option: str, topic: str) -> None:
    if topic == ANCHOR or not re.fullmatch(r"[a-zA-Z0-9._-]{1,249}", topic):
        raise ConfigError(f"option '{option}': {quoted(topic)} cannot be a topic's name here")
