"""What a group's commits have stored of each partition, or may have, and whether it is newer than one to be stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...types import OffsetAndMetadata, TopicPartition
from ..subscription.position import is_of_another_topic


class _Stored(NamedTuple):  # which takes a third of the time that a dataclass does to make
    """The offset of a partition that was committed last.

    named    the order of the newest call that named its offset and was stored; 0: none. What is stored may be newer.
    known    when ``offset`` was known: the order of its call; of an auto-commit, that of the moment in its slot
    is_sure  False: its commit got no answer, so that nobody knows whether it was stored
    """

    named: int
    known: int
    offset: OffsetAndMetadata
    is_sure: bool


class StoredOffsets:
    """The offsets that this client has stored for one group, each with the order of its commit.

    An entry matters to older commits only, and stays for as long as one of these is under way (``let_go``).
    """

    def __init__(self) -> None:
        self._stored: dict[TopicPartition, _Stored] = {}  # the one noted last is the last
        self._newest = 0  # no entry is known at a later order

    def note(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        order: int,
        *,
        is_named: bool,
        is_sure: bool = True,
    ) -> None:
        """These are stored. ``is_named``: their call named them; else they were asked for in the commit's slot.

        Without ``is_sure``, they may be: their commit had no answer, or did not even reach the coordinator.
        """
        for tp, offset in offsets.items():
            before = self._stored.get(tp)
            if before is not None and before.offset is offset and before.known > order:  # ``to_send`` has told it
                self._stored[tp] = _Stored(before.named, before.known, offset, is_sure)
                continue
            self._stored.pop(tp, None)
            is_first = before is None or is_of_another_topic(before.offset, offset.topic_id)
            named = order if is_named else 0 if before is None or is_first else before.named
            self._stored[tp] = _Stored(named, order, offset, is_sure)
        self._newest = max(self._newest, order)

    def let_go(self, oldest: int) -> None:
        """No commit under way, or to come, is below the order ``oldest``: keep only what is newer than that.

        An entry noted behind one that is kept may stay with it, if it comes from a second attempt, which is older.
        """
        if self._newest <= oldest:
            self._stored.clear()
            return
        over: list[TopicPartition] = []
        for tp, stored in self._stored.items():
            if stored.known > oldest:
                break
            over.append(tp)
        for tp in over:
            del self._stored[tp]

    def to_send(
        self, tp: TopicPartition, offset: OffsetAndMetadata, order: int, *, is_rewind: bool
    ) -> OffsetAndMetadata | None:
        """Return what a commit sends of ``tp`` that was called for at ``order``, with ``offset``.

        None: nothing, since a newer offset is stored. If nobody knows whether the newer one is, that one: ``offset``
        might undo it, and without any the commit might be answered as done though neither is stored.
        """
        if not self.is_newer(tp, offset, order, is_rewind=is_rewind):
            return offset
        newer = self._stored[tp]
        return None if newer.is_sure else newer.offset

    def is_newer(self, tp: TopicPartition, offset: OffsetAndMetadata, order: int, *, is_rewind: bool) -> bool:
        """Whether the offset noted for ``tp`` is newer than ``offset``, which was known at ``order``.

        That is so if a later call named an offset, and that was stored. Where auto-commit has stored one since, that is
        newer only if it is higher, too: then the application had come further by then. An auto-commit leaves out the
        records that the application still holds, and ``offset`` may include these. When that auto-commit was called for
        does not matter: if ``offset`` were left out for a lower one, its commit would be answered as done, and stored
        by nobody. An offset behind what was processed at the time of its call (``is_rewind``) is a decision of the
        application: that an auto-commit knew of more is no reason against it.
        """
        stored = self._stored.get(tp)
        if stored is None or is_of_another_topic(stored.offset, offset.topic_id):
            return False
        if stored.named > order:
            return True
        return not is_rewind and stored.known > order and stored.offset.offset > offset.offset
