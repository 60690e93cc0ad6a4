"""The command line ``python -m tests.simulation``: runs many seeds with progress, or one seed with its history.

Many seeds are dealt over all kinds of worlds, unless an option chooses one. The exit code is 0 if every seed is good, 1
if one fails, 130 after Ctrl-C.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from typing import Final, TextIO

from .planted_bugs import PLANTED_BUGS
from .producers.bugs import PRODUCER_BUGS
from .runner import FLAGS, Twist, Verdict, dealt, judged

_TERMINAL_SECONDS: Final = 0.5
_PLAIN_SECONDS: Final = 10.0


class Progress:
    """The progress of a run: on a terminal one line that changes, elsewhere a plain line now and then."""

    def __init__(self, total: int, stream: TextIO) -> None:
        self.done = 0
        self.failed: list[Verdict] = []
        self._total = total
        self._stream = stream
        self._terminal = stream.isatty()
        self._began = self._shown = time.monotonic()

    def add(self, verdict: Verdict) -> None:
        """Count one more seed; print its verdict if it failed."""
        self.done += 1
        if verdict.kinds:
            self.failed.append(verdict)
            self._clear()
            print(verdict.text, flush=True)
        now = time.monotonic()
        if now - self._shown >= (_TERMINAL_SECONDS if self._terminal else _PLAIN_SECONDS):
            self._shown = now
            self._say(self._line, end="" if self._terminal else "\n")

    def end(self) -> None:
        """Print the last line, and the failed seeds again, whose verdicts may have scrolled away."""
        self._clear()
        self._say(self._line, end="\n")
        if self.failed:
            self._say("\n  ".join(["these failed:", *(verdict.again for verdict in self.failed)]), end="\n")

    @property
    def _line(self) -> str:
        pace = self.done / max(time.monotonic() - self._began, 1e-3) * 60
        return f"{self.done} of {self._total} seeds, {pace:.0f} a minute, {len(self.failed)} failed"

    def _clear(self) -> None:
        if self._terminal:
            self._say("", end="")

    def _say(self, text: str, *, end: str) -> None:
        begin = "\r\x1b[K" if self._terminal else ""  # overwrite the current line
        print(f"{begin}{text}", end=end, file=self._stream, flush=True)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this seed only, and print its plan and its history")
    parser.add_argument("-n", type=int, default=1000, metavar="N", help="how many seeds (default: %(default)s)")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first of them (default: %(default)s)")
    parser.add_argument("--jobs", type=int, help="processes (default: one for each core)")
    parser.add_argument(
        "--bug", choices=sorted([*PLANTED_BUGS, *PRODUCER_BUGS]), help="with this bug planted in the client"
    )
    parser.add_argument("--impatient", action="store_true", help="users cancel nearly every call")
    parser.add_argument("--eager", action="store_true", help="groups know range and roundrobin only")
    parser.add_argument("--secure", action="store_true", help="members log in; sessions end, ACLs change")
    parser.add_argument("--consumer", action="store_true", help="groups have members of the consumer protocol")
    parser.add_argument("--producers", action="store_true", help="worlds of producers, in the place of consumers")
    parser.add_argument("--transactional", action="store_true", help="the producers have transactions")
    parser.add_argument("--loops", action="store_true", help="worlds of transactional loops alone")
    parser.add_argument("--plain", action="store_true", help="consumers without any of these, as for one --seed")
    options = parser.parse_args(arguments)
    twist = Twist(**{name: getattr(options, name) for name in ("bug", *FLAGS)})
    if options.seed is not None:
        return _replay(options.seed, twist)
    seeds = range(options.first, options.first + options.n)
    is_plain = options.plain or twist != Twist()
    return _run_many(
        judged(seeds, jobs=options.jobs, twist=twist) if is_plain else dealt(seeds, jobs=options.jobs), seeds
    )


def _replay(seed: int, twist: Twist) -> int:
    (verdict,) = judged([seed], jobs=1, twist=twist, whole_history=True)
    print(verdict.plan)
    print("\n".join(verdict.history))
    print(verdict.text if verdict.kinds else f"seed {seed} is good")
    print(f"history {verdict.digest}, {verdict.rounds} rounds of the loop")
    return 1 if verdict.kinds else 0


def _run_many(verdicts: Iterable[Verdict], seeds: range) -> int:
    progress = Progress(len(seeds), sys.stderr)
    try:
        for verdict in verdicts:
            progress.add(verdict)
    except KeyboardInterrupt:
        progress.end()
        return 130
    progress.end()
    return 1 if progress.failed else 0


if __name__ == "__main__":
    sys.exit(main())
