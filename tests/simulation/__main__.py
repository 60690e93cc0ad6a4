"""python -m tests.simulation: many worlds from seeds, with progress; or one of them again, with its history."""

from __future__ import annotations

import argparse
import sys
import time
from typing import Final

from .planted_bugs import PLANTED_BUGS
from .runner import Verdict, judged

_PROGRESS_SECONDS: Final = 2.0


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed only, and print its plan and its history")
    parser.add_argument("-n", type=int, default=1000, metavar="N", help="how many seeds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default: %(default)s)")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each core)")
    parser.add_argument("--bug", choices=sorted(PLANTED_BUGS), help="with this bug planted in the client")
    options = parser.parse_args(arguments)
    if options.seed is not None:
        return _replay(options.seed, options.bug)
    return _run_many(options.first, options.n, options.jobs, options.bug)


def _replay(seed: int, bug: str | None) -> int:
    (verdict,) = judged([seed], jobs=1, bug=bug, whole_history=True)
    print(verdict.plan)
    print("\n".join(verdict.history))
    print(verdict.text if verdict.kinds else f"seed {seed} is good")
    print(f"history {verdict.digest}, {verdict.rounds} rounds of the loop")
    return 1 if verdict.kinds else 0


def _run_many(first: int, count: int, jobs: int | None, bug: str | None) -> int:
    began = shown = time.monotonic()
    failed: list[Verdict] = []
    for number, verdict in enumerate(judged(range(first, first + count), jobs=jobs, bug=bug), start=1):
        if verdict.kinds:
            failed.append(verdict)
            print(verdict.text, flush=True)
        now = time.monotonic()
        if now - shown >= _PROGRESS_SECONDS or number == count:
            shown = now
            pace = number / (now - began) * 60
            print(f"{number} of {count} seeds, {pace:.0f} a minute, {len(failed)} failed", file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
