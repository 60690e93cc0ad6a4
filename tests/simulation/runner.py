"""Runs many worlds on all cores, with a verdict for each seed. PYTHONHASHSEED is fixed, as a part of the seed."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import signal
import traceback
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Final

from tests.suite.hang_guard import HangGuard

from .checking.history import CutShort, replaced_item
from .planted_bugs import PLANTED_BUGS, planted
from .producers import bugs as producer_bugs
from .producers import loops
from .producers import plan as producer_plan
from .producers import world as producer_world
from .worlds.plan import deserializing, draw, impatient, with_columns, with_patterns, with_protocols, with_recreations
from .worlds.securing import secured
from .worlds.world import run
from .worlds.wrong_leaders import with_wrong_leaders

_SHOWN: Final = 5
#: A world takes half a second, and some of producers ten, of a core of their own. One that takes this long is taken to
#: hang, and its process is ended.
_WORLD_SECONDS: Final = 600.0

#: Pools of so many processes that no call uses.
_idle: dict[int, ProcessPoolExecutor] = {}

#: The guard of a process that only runs worlds; in a test process the tests' own guard watches.
_guard: HangGuard | None = None


#: The fields of a Twist that are options of the command line by themselves.
FLAGS: Final = ("impatient", "eager", "secure", "consumer", "producers", "transactional", "loops")


@dataclass(frozen=True)
class Twist:
    """A change to the world of a seed: a bug of `PLANTED_BUGS`, or applications that cancel (`impatient`).

    ``eager``: groups use range and roundrobin only, and no member deserializes or reads columns, as in the first
    version of the simulation. ``secure``: members log in, sessions end, logins are refused, and ACLs change.
    ``consumer``: there is a group, with members of the consumer protocol (KIP-848). ``producers``: there are no
    members, but producers, with the bugs of `PRODUCER_BUGS`; ``transactional``: they have transactions. ``loops``:
    there are `TransactionalLoop`s, and nothing else.
    """

    bug: str | None = None
    impatient: bool = False
    eager: bool = False
    secure: bool = False
    consumer: bool = False
    producers: bool = False
    transactional: bool = False
    loops: bool = False

    @property
    def options(self) -> list[str]:
        """The command line options for this change."""
        flags = [f"--{name}" for name in FLAGS if getattr(self, name)]
        return [*(["--bug", self.bug] if self.bug else []), *flags]


_PLAIN: Final = Twist()
#: All kinds of worlds, but for those of the first version: who asks for many worlds, and for no kind, has each in turn.
KINDS: Final = (
    _PLAIN,
    Twist(consumer=True),
    Twist(secure=True),
    Twist(impatient=True),
    Twist(producers=True),
    Twist(producers=True, transactional=True),
    Twist(loops=True),
)


@dataclass(frozen=True)
class Verdict:
    """The result of one seed. ``kinds`` are the anomalies' names; ``plan`` and ``history`` are texts for people.

    ``again`` is the command that runs the seed again; ``cut_short`` counts the calls for records that were cancelled:
    where groups have members of the consumer protocol, only those of these members.
    """

    seed: int
    kinds: tuple[str, ...]
    anomalies: tuple[str, ...]
    digest: str
    rounds: int
    cut_short: int
    again: str
    plan: str
    history: tuple[str, ...]

    @property
    def text(self) -> str:
        """The first anomalies, and the command that shows them again."""
        shown = [f"  {anomaly}" for anomaly in self.anomalies[:_SHOWN]]
        more = [f"  ... {len(self.anomalies) - _SHOWN} more"] if len(self.anomalies) > _SHOWN else []
        replay = f"  again, and the same (history {self.digest or 'unknown'}): {self.again}"
        return "\n".join([f"seed {self.seed} failed", *shown, *more, replay])


def judge(seed: int, *, twist: Twist = _PLAIN, whole_history: bool = False) -> Verdict:
    """Run one world in this process."""
    again = f"make simulate SEED={seed}" + (f" ARGS={shlex.quote(shlex.join(twist.options))}" if twist.options else "")
    if twist.loops:
        return _judge_loops(seed, again, whole_history=whole_history)
    if twist.producers:
        return _judge_producers(seed, twist, again, whole_history=whole_history)
    cooperative = False if twist.eager else None
    if twist.bug is None:
        plan = draw(seed, cooperative=cooperative, group=True if twist.consumer else None)
        plan = plan if twist.eager else with_wrong_leaders(with_recreations(plan))
    else:
        bug = PLANTED_BUGS[twist.bug]
        plan = draw(seed, group=bug.group, cooperative=bug.cooperative)
        plan = with_recreations(plan, always=True) if bug.recreated else plan
        plan = with_wrong_leaders(plan, always=True) if bug.wrong_leaders else plan
    if not twist.eager:
        plan = with_columns(deserializing(plan))
    if twist.secure:
        plan = secured(plan)
    if twist.consumer or (twist.bug is not None and PLANTED_BUGS[twist.bug].consumer):
        plan = with_patterns(with_protocols(plan))
    if twist.impatient:
        plan = impatient(plan)
    watching = _guard.watching(f"a world: {again}", _WORLD_SECONDS) if _guard else nullcontext()
    try:
        with watching, planted(twist.bug):
            outcome = run(plan)
    except Exception:
        return Verdict(seed, ("error",), (traceback.format_exc(),), "", 0, 0, again, plan.text, ())
    anomalies = outcome.anomalies
    counted = {
        one.name for one in plan.members if not twist.consumer or one.options.get("group_protocol") == "consumer"
    }
    return Verdict(
        seed,
        tuple(dict.fromkeys(anomaly.kind for anomaly in anomalies)),
        tuple(map(str, anomalies)),
        outcome.history.digest,
        outcome.rounds,
        sum(isinstance(event, CutShort) and event.member in counted for _, event in outcome.history),
        again,
        plan.text,
        tuple(outcome.history.lines()) if whole_history else (),
    )


def _judge_loops(seed: int, again: str, *, whole_history: bool) -> Verdict:
    """Run one world of loops in this process."""
    plan = loops.draw(seed)
    watching = _guard.watching(f"a world: {again}", _WORLD_SECONDS) if _guard else nullcontext()
    try:
        with watching:
            anomalies, history = loops.run(plan)
    except Exception:
        return Verdict(seed, ("error",), (traceback.format_exc(),), "", 0, 0, again, plan.text, ())
    return Verdict(
        seed,
        tuple(dict.fromkeys(anomaly.kind for anomaly in anomalies)),
        tuple(map(str, anomalies)),
        history.digest,
        0,
        sum(isinstance(event, CutShort) for _, event in history),
        again,
        plan.text,
        tuple(history.lines()) if whole_history else (),
    )


def _judge_producers(seed: int, twist: Twist, again: str, *, whole_history: bool) -> Verdict:
    """Run one world of producers in this process."""
    plan = producer_plan.draw(seed, transactional=twist.transactional)
    if twist.bug is None or producer_bugs.PRODUCER_BUGS[twist.bug].wrong_leaders:
        plan = with_wrong_leaders(plan, always=twist.bug is not None)
    if twist.impatient:
        plan = producer_plan.impatient(plan)
    watching = _guard.watching(f"a world: {again}", _WORLD_SECONDS) if _guard else nullcontext()
    try:
        with watching, producer_bugs.planted(twist.bug):
            outcome = producer_world.run(plan)
    except Exception:
        return Verdict(seed, ("error",), (traceback.format_exc(),), "", 0, 0, again, plan.text, ())
    return Verdict(
        seed,
        tuple(dict.fromkeys(anomaly.kind for anomaly in outcome.anomalies)),
        tuple(map(str, outcome.anomalies)),
        outcome.history.digest,
        outcome.rounds,
        sum(isinstance(event, CutShort) for _, event in outcome.history),
        again,
        plan.text,
        tuple(outcome.history.lines()) if whole_history else (),
    )


def judged(
    seeds: Iterable[int], *, jobs: int | None = None, twist: Twist = _PLAIN, whole_history: bool = False
) -> Iterator[Verdict]:
    """Yield the verdict of each seed, in order, from ``jobs`` processes (None: one for each core)."""
    with _workers(jobs) as pool:
        work = partial(judge, twist=twist, whole_history=whole_history)
        yield from pool.map(work, seeds)


def dealt(seeds: Iterable[int], *, jobs: int | None = None) -> Iterator[Verdict]:
    """Yield the verdict of each seed, as ``judged`` does: each in a world of the next kind (``KINDS``)."""
    with _workers(jobs) as pool:
        yield from pool.map(_judge_dealt, seeds)


def _judge_dealt(seed: int) -> Verdict:
    return judge(seed, twist=KINDS[seed % len(KINDS)])


def cancelling(at_least: int, *, block: int, twist: Twist, first: int = 0) -> Iterator[str]:
    """Judge block after block of worlds until so many calls were cancelled in them. Yield what to say after each.

    AssertionError: the anomalies of the first block that has some.
    """
    cancelled, worlds = 0, 0
    while cancelled < at_least:
        verdicts = list(judged(range(first + worlds, first + worlds + block), twist=twist))
        assert not any(verdict.kinds for verdict in verdicts), "\n".join(one.text for one in verdicts if one.kinds)
        worlds += block
        cancelled += sum(verdict.cut_short for verdict in verdicts)
        yield f"{cancelled} calls were cancelled in {worlds} worlds"


def first_catches(bugs: Iterable[str], most_seeds: int) -> dict[str, Verdict | None]:
    """Return for each planted bug what ``first_catch`` returns; the bugs run in parallel."""
    with _workers(None) as pool:
        futures = {bug: pool.submit(first_catch, bug, most_seeds) for bug in bugs}
        return {bug: future.result() for bug, future in futures.items()}


def first_catch(bug: str, most_seeds: int) -> Verdict | None:
    """Return the verdict of the first seed that shows one of a planted bug's expected anomalies, None if none does."""
    expected, first, twist = _hunt(bug)
    for seed in range(first, first + most_seeds):
        verdict = judge(seed, twist=twist)
        if expected & set(verdict.kinds):
            return verdict
    return None


def _hunt(bug: str) -> tuple[frozenset[str], int, Twist]:
    """Return the anomalies that a bug shows, the first seed to try, and the worlds to look at."""
    of_producers = producer_bugs.PRODUCER_BUGS.get(bug)
    if of_producers is None:
        return PLANTED_BUGS[bug].kinds, PLANTED_BUGS[bug].first, Twist(bug)
    worlds = Twist(bug, producers=True, transactional=of_producers.transactional, impatient=of_producers.impatient)
    return of_producers.kinds, of_producers.first, worlds


@contextmanager
def _workers(jobs: int | None) -> Iterator[ProcessPoolExecutor]:
    """Processes that run worlds. They stay for the next call: each works for two seconds before its first world."""
    with replaced_item(os.environ, "PYTHONHASHSEED", "0"):
        count = jobs or os.cpu_count() or 1
        pool = _idle.pop(count, None) or ProcessPoolExecutor(
            count, mp_context=multiprocessing.get_context("spawn"), initializer=_begin_to_work
        )
        try:
            yield pool
        except BaseException:  # shutdown() would wait for the worlds under way
            for worker in list(pool._processes.values()):
                worker.kill()
            pool.shutdown(cancel_futures=True)
            raise
        _idle[count] = pool


def _begin_to_work() -> None:
    """Ignore SIGINT: a Ctrl-C reaches every process, and the main process ends the workers."""
    global _guard
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _guard = HangGuard()
