"""TransactionalLoops in simulated worlds: amid rebalances, crashes and faults each record is copied exactly once."""

from __future__ import annotations

from typing import Any

import pytest

from aiokc import TransactionalLoop

from ..checking.history import CutShort, replaced
from ..producers.loops import draw, run


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "seeds",
    [
        range(1000, 1006),
        # In this process alone: five minutes on an idle core, and longer on a busy one.
        pytest.param(range(1006, 2000), marks=[pytest.mark.long, pytest.mark.timeout(3600)]),
    ],
)
def test_each_record_is_copied_exactly_once(seeds: range) -> None:
    cut = 0
    for seed in seeds:
        anomalies, history = run(draw(seed))
        assert anomalies == [], f"{draw(seed).text}\n{anomalies}"
        cut += sum(isinstance(event, CutShort) for _, event in history)
    print(f"{len(seeds)} worlds, {cut} runs of loops were cancelled")
    assert cut > 0


def test_a_seed_replays_exactly() -> None:
    assert run(draw(1003))[1].digest == run(draw(1003))[1].digest


async def _nothing_to_recover(self: TransactionalLoop[Any, Any]) -> None:
    """The loop goes on behind records whose transaction was aborted."""
    self._undone = frozenset()


def _no_way_back(self: TransactionalLoop[Any, Any], batch: Any) -> None:
    """The position stays behind the batch."""


def test_a_loop_that_does_not_go_back_after_an_abort_is_caught() -> None:
    with (
        replaced(TransactionalLoop, "_recover", _nothing_to_recover),
        replaced(TransactionalLoop, "_rewind", _no_way_back),
    ):
        assert any({one.kind for one in run(draw(seed))[0]} & {"lost", "offsets"} for seed in range(1000, 1030))
