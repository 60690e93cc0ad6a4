"""Copies of objects that have slots and nothing else, as the C extension makes them."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest

from aiokc.native import NATIVE, extension
from tests.suite.untracking import UNTRACKS

pytestmark = pytest.mark.skipif(not NATIVE, reason="it is the extension's")


class Slotted:
    __slots__ = ("never_set", "of_all", "own")

    def __init__(self, of_all: Any) -> None:
        self.own, self.of_all = 0, of_all


class WithDict:
    pass


class WithReferences:
    __slots__ = ("__weakref__", "one")


class OfAnother(Slotted):
    __slots__ = ("more",)


def test_each_has_what_the_first_one_had_and_changes_alone() -> None:
    shared = object()
    before = sys.getrefcount(shared)
    one, two, three = extension.copies(Slotted(shared), 3)
    assert sys.getrefcount(shared) == before + 3
    one.own, one.of_all = 1, None
    two.never_set = "now"
    assert (one.own, two.own, three.own) == (1, 0, 0)
    assert (one.of_all, two.of_all) == (None, shared)
    assert not hasattr(three, "never_set")
    assert {type(each) for each in (one, two, three)} == {Slotted}
    assert gc.is_tracked(two) is not UNTRACKS
    del one, two, three
    assert sys.getrefcount(shared) == before


def test_as_many_as_are_wanted_and_the_collector_goes_on_as_before() -> None:
    assert extension.copies(Slotted(None), 0) == []
    assert gc.isenabled()
    gc.disable()
    try:
        assert len(extension.copies(Slotted(None), 1_000)) == 1_000
        assert not gc.isenabled()
    finally:
        gc.enable()
    with pytest.raises(SystemError):
        extension.copies(Slotted(None), -1)
    assert gc.isenabled()


@pytest.mark.parametrize("one", [WithDict(), WithReferences(), OfAnother(None), object(), "text", 5, (), [], Slotted])
def test_what_has_more_than_slots_is_refused(one: object) -> None:
    with pytest.raises(TypeError, match="has more than slots"):
        extension.copies(one, 1)


def test_an_object_of_the_extension_is_refused() -> None:
    with pytest.raises(TypeError, match="has more than slots"):
        extension.copies(extension.RecordParts(), 1)
