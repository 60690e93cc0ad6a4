"""What a member of a KIP-848 group holds, and what its newest target takes away from it or gives it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from itertools import groupby
from operator import attrgetter
from typing import TypeAlias
from uuid import UUID

from ....types import TopicPartition
from .events import TopicIdPartition, topic_ids_of

Partitions: TypeAlias = tuple[TopicPartition, ...]


class Holdings:
    """The partitions of one membership, known to the coordinator by topic ids and to the application by names.

    ``held``    what the member has taken and not given up: also what it is giving up at the moment
    ``target``  the newest assignment; None before the first. A newer one replaces one that was not carried out

    A topic id whose name is not known yet stays out of what is taken. It never takes anything away: a partition goes
    only if its own id is in the target no more.
    """

    def __init__(self) -> None:
        self.held: dict[TopicIdPartition, TopicPartition] = {}
        self.target: frozenset[TopicIdPartition] | None = None
        self._in_target: frozenset[UUID] = frozenset()  # the topics of the target
        self._names: dict[UUID, str] = {}
        self._former: Set[UUID] = frozenset()

    @property
    def partitions(self) -> Partitions:
        return tuple(self.held.values())

    @property
    def topic_ids(self) -> Mapping[TopicPartition, UUID]:
        """The topic id by which each partition is held."""
        return {name: tp.topic_id for tp, name in self.held.items()}

    @property
    def owned(self) -> frozenset[TopicIdPartition]:
        return frozenset(self.held)

    @property
    def unnamed(self) -> frozenset[UUID]:
        """The topic ids of the target whose names are not known."""
        return self._in_target.difference(self._names)

    @property
    def topics(self) -> frozenset[str]:
        """The names, as far as they are known, of the topics that are held or in the target."""
        held = frozenset(tp.topic for tp in self.held.values())
        return held | {self._names[topic_id] for topic_id in self._in_target if topic_id in self._names}

    def named(self, names: Mapping[UUID, str]) -> None:
        """The newest metadata name these topics. Names that nothing here needs are not kept."""
        if not names:  # as with most heartbeats: then this must not cost a member with thousands of partitions anything
            return
        self._names.update(names)
        needed = topic_ids_of(self.held) | self._in_target | names.keys()
        self._names = {topic_id: name for topic_id, name in self._names.items() if topic_id in needed}

    def recreated(self, topic_ids: Set[UUID]) -> None:
        """The newest metadata have other ids for the names of these topics."""
        self._former = topic_ids

    @property
    def is_outdated(self) -> bool:
        """Whether a topic was recreated of which something is held, and that the target does not take away yet."""
        target = self.target or ()
        return bool(self._former) and any(tp.topic_id in self._former and tp in target for tp in self.held)

    def aim_at(self, target: Iterable[TopicIdPartition]) -> None:
        self._set_target(frozenset(target))

    def _set_target(self, target: frozenset[TopicIdPartition] | None) -> None:
        self.target = target
        self._in_target = topic_ids_of(target or ())

    def withdraws(self, target: Set[TopicIdPartition]) -> bool:
        """Whether ``target`` takes away what the present one gives and was not taken: its topic has no name yet."""
        return bool((self.target or frozenset()) - target - self.held.keys())

    def take_nothing_more(self) -> bool:
        """The rest of the target is not wanted any more; what it takes away still goes. Return whether it had any."""
        rest = (self.target or frozenset()) - self.held.keys()
        if self.target is not None:
            self._set_target(self.target - rest)
        return bool(rest)

    def going(self) -> Partitions:
        """What the target takes away."""
        gone = frozenset(self.held) - self.target if self.target is not None else ()
        return tuple(name for tp, name in self.held.items() if tp in gone) if gone else ()

    def give_up(self, partitions: Iterable[TopicPartition]) -> None:
        gone = frozenset(partitions)
        self.held = {tp: name for tp, name in self.held.items() if name not in gone}

    @property
    def is_behind(self) -> bool:
        """Whether the target takes something away, or gives something whose name is known."""
        if self.going():
            return True
        given = self._given()
        taken = set(self.held.values()) if given else set()
        names = self._names
        return any(
            tp.topic_id in names and TopicPartition(names[tp.topic_id], tp.partition) not in taken for tp in given
        )

    def take(self) -> Partitions:
        """Hold what the target gives, as far as its topics' names are known. Return what is new.

        To be called when nothing is ``going``: so a topic that was recreated is given up by its old id before it is
        taken by its new one.
        """
        coming = self._coming()
        self.held.update(coming)
        return tuple(coming.values())

    def _coming(self) -> dict[TopicIdPartition, TopicPartition]:
        coming: dict[TopicIdPartition, TopicPartition] = {}
        given = self._given()
        if not given:
            return coming
        taken = set(self.held.values())
        for topic_id, partitions in groupby(sorted(given, key=_order), attrgetter("topic_id")):
            topic = self._names.get(topic_id)
            if topic is None:
                continue
            for tp in partitions:
                name = TopicPartition(topic, tp.partition)
                # Two ids of one name: the coordinator takes the older one away by its next answer.
                if name not in taken:
                    coming[tp] = name
                    taken.add(name)
        return coming

    def _given(self) -> frozenset[TopicIdPartition]:
        return (self.target or frozenset()).difference(self.held)

    def lose(self) -> Partitions:
        """The membership is over. Return what was held; ``give_up`` follows when that is carried out."""
        self._set_target(None)
        return self.partitions


def _order(tp: TopicIdPartition) -> tuple[int, int]:
    return tp.topic_id.int, tp.partition  # as UUIDs are ordered: to compare these themselves takes a call in Python
