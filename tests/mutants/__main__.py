"""python -m tests.mutants: makes wrong changes to the code from a seed, and lists those that no fast test notices.

The exit code is 0 where each one is caught or explained (explained.py), 1 where one is neither, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from typing import Final

from .covering import TESTED_BY, covering
from .explained import explanation
from .mutant import Mutant, chosen, mutants
from .trial import Outcome, Verdict, verdicts

_DESCRIPTION: Final = "Change the code wrongly, in one place at a time, and say which changes no fast test sees."


def main(arguments: list[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    wanted = _wanted(options)
    began = time.monotonic()
    tests = covering(options.tests)
    found: list[Verdict] = []
    unexplained: list[Verdict] = []
    shown = options.mutant is not None and len(wanted) == 1
    for verdict in verdicts(wanted, tests, processes=options.processes, seconds=options.seconds, shown=shown):
        found.append(verdict)
        reason = None if verdict.is_caught else explanation(verdict.mutant)
        if not verdict.is_caught and reason is None:
            unexplained.append(verdict)
        if options.verbose or not verdict.is_caught:
            print(f"[{len(found)} of {len(wanted)}] {_told(verdict, reason)}", flush=True)
    _sum_up(found, unexplained, time.monotonic() - began)
    return 1 if unexplained else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=_DESCRIPTION)
    parser.add_argument("-n", type=int, default=150, help="how many (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=1, help="which ones (default: %(default)s)")
    parser.add_argument("--mutant", nargs="+", metavar="KEY", help="only these; of one, all that its tests say")
    parser.add_argument("--of", default="", metavar="TEXT", help="only in modules whose path contains this")
    parser.add_argument(
        "--seconds",
        type=float,
        default=90.0,
        help="so long the tests of one may take, the quickest first (default: %(default)s)",
    )
    parser.add_argument("--tests", nargs="+", default=TESTED_BY, help="folders or files (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, help="at once (default: %(default)s)")
    parser.add_argument("-v", "--verbose", action="store_true", help="name those that are caught, too")
    return parser


def _wanted(options: argparse.Namespace) -> list[Mutant]:
    everything = mutants(options.of)
    if options.mutant is not None:
        wanted = [mutant for mutant in everything if mutant.key in options.mutant]
        if gone := set(options.mutant) - {mutant.key for mutant in wanted}:
            raise SystemExit(f"no mutant has the key {', '.join(sorted(gone))}: its line or its function has changed")
        return wanted
    return chosen(everything, options.seed, options.n)


def _told(verdict: Verdict, reason: str | None) -> str:
    said = f"{verdict.outcome.value}: {verdict.mutant}"
    if verdict.is_caught:
        return f"{said} ({verdict.by or 'before any test'}, {verdict.seconds:.1f} s)"
    left_out = f", {verdict.left_out} more were too many" if verdict.left_out else ""
    why = f"explained: {reason}\n" if reason is not None else ""
    return f"{said} ({verdict.tests} tests{left_out}, {verdict.seconds:.1f} s)\n{why}{verdict.mutant.diff}\n"


def _sum_up(found: list[Verdict], unexplained: list[Verdict], seconds: float) -> None:
    outcomes = Counter(verdict.outcome for verdict in found)
    caught = sum(verdict.is_caught for verdict in found)
    print(f"{len(found)} mutants in {seconds / 60:.1f} minutes: {caught} caught")
    for outcome in Outcome:
        if outcomes[outcome]:
            print(f"  {outcomes[outcome]:4} {outcome.value}")
    print(f"{len(found) - caught - len(unexplained)} survivors explained, {len(unexplained)} not")
    for verdict in unexplained:
        print(f"  {verdict.mutant}")


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
