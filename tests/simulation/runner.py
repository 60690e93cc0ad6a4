"""Many worlds on all cores. Each runs in a process whose strings hash as they always do: that is part of the seed."""

from __future__ import annotations

import multiprocessing
import os
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from .history import replaced_item
from .plan import draw
from .planted_bugs import PLANTED_BUGS, planted
from .world import run

_CHUNK: Final = 4
_SHOWN: Final = 5


@dataclass(frozen=True)
class Verdict:
    """What came of one seed. ``kinds`` are the anomalies' names; ``plan`` and ``history`` are for reading."""

    seed: int
    kinds: tuple[str, ...]
    anomalies: tuple[str, ...]
    digest: str
    rounds: int
    plan: str
    history: tuple[str, ...]

    @property
    def text(self) -> str:
        """The first anomalies, and how to see them again."""
        shown = [f"  {anomaly}" for anomaly in self.anomalies[:_SHOWN]]
        more = [f"  ... {len(self.anomalies) - _SHOWN} more"] if len(self.anomalies) > _SHOWN else []
        replay = f"  again: python -m tests.simulation --seed {self.seed}"
        return "\n".join([f"seed {self.seed} failed", *shown, *more, replay])


def judge(seed: int, *, bug: str | None = None, whole_history: bool = False) -> Verdict:
    """Run one world in this process, with a planted bug if one is named."""
    group = PLANTED_BUGS[bug].group if bug is not None else None
    plan = draw(seed, group=group)
    try:
        with planted(bug):
            outcome = run(plan)
    except Exception:
        return Verdict(seed, ("error",), (traceback.format_exc(),), "", 0, plan.text, ())
    anomalies = outcome.anomalies
    return Verdict(
        seed,
        tuple(dict.fromkeys(anomaly.kind for anomaly in anomalies)),
        tuple(map(str, anomalies)),
        outcome.history.digest,
        outcome.rounds,
        plan.text,
        tuple(outcome.history.lines()) if whole_history else (),
    )


def judged(
    seeds: Iterable[int], *, jobs: int | None = None, bug: str | None = None, whole_history: bool = False
) -> Iterator[Verdict]:
    """Yield the verdict of each seed, in order, from as many processes as there are cores."""
    with _workers(jobs) as pool:
        work = partial(judge, bug=bug, whole_history=whole_history)
        yield from pool.map(work, seeds, chunksize=_CHUNK)


def first_catches(bugs: Iterable[str], most_seeds: int) -> dict[str, Verdict | None]:
    """For each planted bug, the first verdict that is not "good" within so many seeds."""
    with _workers(None) as pool:
        futures = {bug: pool.submit(first_catch, bug, most_seeds) for bug in bugs}
        return {bug: future.result() for bug, future in futures.items()}


def first_catch(bug: str, most_seeds: int) -> Verdict | None:
    """The first seed whose world shows a planted bug, as one of the anomalies that it should cause."""
    expected, first = PLANTED_BUGS[bug].kinds, PLANTED_BUGS[bug].first
    for seed in range(first, first + most_seeds):
        verdict = judge(seed, bug=bug)
        if expected & set(verdict.kinds):
            return verdict
    return None


@contextmanager
def _workers(jobs: int | None) -> Iterator[ProcessPoolExecutor]:
    with replaced_item(os.environ, "PYTHONHASHSEED", "0"):
        pool = ProcessPoolExecutor(jobs or os.cpu_count(), mp_context=multiprocessing.get_context("spawn"))
        try:
            yield pool
        finally:
            pool.shutdown(cancel_futures=True)
