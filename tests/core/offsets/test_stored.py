"""StoredOffsets: which of two commits of a partition is the newer one."""

from __future__ import annotations

from uuid import UUID

import pytest

from aiokc.core.offsets.stored import StoredOffsets
from aiokc.types import OffsetAndMetadata, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
FORMER, NEW = UUID(int=1), UUID(int=2)


def at(offset: int, topic_id: UUID | None = None) -> OffsetAndMetadata:
    return OffsetAndMetadata(offset, topic_id=topic_id)


@pytest.mark.parametrize("is_rewind", [False, True])
def test_a_later_call_that_named_its_offset_is_newer_whatever_it_named(is_rewind: bool) -> None:
    stored = StoredOffsets()
    stored.note({T0: at(3)}, 2, is_named=True)
    assert stored.is_newer(T0, at(8), 1, is_rewind=is_rewind)
    assert not stored.is_newer(T0, at(8), 3, is_rewind=is_rewind)


def test_a_later_auto_commit_is_newer_only_if_it_is_higher_and_nothing_was_taken_back() -> None:
    stored = StoredOffsets()
    stored.note({T0: at(5)}, 2, is_named=False)
    assert stored.is_newer(T0, at(4), 1, is_rewind=False)
    assert not stored.is_newer(T0, at(4), 1, is_rewind=True)
    assert not stored.is_newer(T0, at(6), 1, is_rewind=False)


def test_an_auto_commit_does_not_make_the_call_before_it_forgotten() -> None:
    stored = StoredOffsets()
    stored.note({T0: at(3)}, 2, is_named=True)
    stored.note({T0: at(4)}, 3, is_named=False)
    assert stored.is_newer(T0, at(8), 1, is_rewind=False)


def test_an_entry_is_let_go_of_once_every_older_commit_is_over() -> None:
    stored = StoredOffsets()
    stored.note({T0: at(3), T1: at(3)}, 2, is_named=True)
    stored.note({T0: at(4)}, 3, is_named=True)
    stored.let_go(1)
    assert stored.is_newer(T1, at(8), 1, is_rewind=False)
    stored.let_go(2)
    assert stored.is_newer(T0, at(8), 2, is_rewind=False)
    assert stored._stored.keys() == {T0}
    stored.let_go(3)
    assert not stored._stored


def test_what_may_be_stored_is_sent_again_in_the_place_of_what_might_undo_it() -> None:
    stored, newest = StoredOffsets(), at(9)
    stored.note({T0: at(5)}, 2, is_named=False)
    stored.note({T0: newest}, 4, is_named=False, is_sure=False)
    assert stored.to_send(T0, at(8), 3, is_rewind=False) is newest
    assert stored.to_send(T0, at(10), 3, is_rewind=False) == at(10)
    assert stored.to_send(T0, at(8), 3, is_rewind=True) == at(8)
    assert stored.to_send(T0, at(8), 5, is_rewind=False) == at(8)
    stored.note({T0: newest}, 1, is_named=True)  # sent again by a commit that was called for before
    assert stored.to_send(T0, at(8), 3, is_rewind=False) is None, "it is no older than it was"
    stored.note({T0: newest}, 5, is_named=True, is_sure=False)
    assert stored.to_send(T0, at(10), 3, is_rewind=True) is newest, "a later call named it"


def test_what_was_stored_for_a_former_topic_is_no_newer() -> None:
    stored = StoredOffsets()
    stored.note({T0: at(9, FORMER)}, 2, is_named=True)
    assert not stored.is_newer(T0, at(1, NEW), 1, is_rewind=False)
    stored.note({T0: at(1, NEW)}, 3, is_named=False)
    assert not stored.is_newer(T0, at(1, NEW), 1, is_rewind=False)
