"""Tests of the simulation's command line: its progress, the command that repeats a failing seed, its exit code."""

from __future__ import annotations

import io
import re
import shlex

import pytest

from . import runner
from .__main__ import Progress, main
from .runner import FLAGS, Twist, Verdict, judge


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def verdict(seed: int, *kinds: str) -> Verdict:
    return Verdict(seed, kinds, tuple(f"{kind} at 1.0" for kind in kinds), "abc", 1, 0, f"again {seed}", "", ())


def test_good_seeds_are_counted(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["-n", "2", "--jobs", "1"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert re.fullmatch(r"2 of 2 seeds, \d+ a minute, 0 failed", said.err.splitlines()[-1])


def test_a_failing_seed_is_printed_and_replays_as_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    bug = "do not look up what is committed"
    first = next(seed for seed in range(40) if judge(seed, twist=Twist(bug)).kinds)

    assert main(["-n", "1", "--first", str(first), "--jobs", "1", "--bug", bug]) == 1

    said = capsys.readouterr()
    assert said.out.startswith(f"seed {first} failed\n")
    assert re.search(rf"these failed:\n  make simulate SEED={first} ARGS=.+\n$", said.err)
    found = re.search(r"\(history (\w+)\): make simulate SEED=(\d+) ARGS=(.+)\n", said.out)
    assert found is not None
    (arguments,) = shlex.split(found[3])
    assert main(["--seed", found[2], *shlex.split(arguments)]) == 1
    assert f"history {found[1]}," in capsys.readouterr().out


def test_many_seeds_are_dealt_over_all_kinds_of_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Twist] = []

    def judged_here(seed: int, twist: Twist) -> Verdict:
        asked.append(twist)
        return verdict(seed)

    monkeypatch.setattr(runner, "judge", judged_here)
    for seed in range(14):
        runner._judge_dealt(seed)
    assert asked == [*runner.KINDS, *runner.KINDS]
    in_some = {flag for twist in runner.KINDS for flag in FLAGS if getattr(twist, flag)}
    assert in_some == {*FLAGS} - {"eager"}
    assert judge(1000, twist=Twist(loops=True)).again == "make simulate SEED=1000 ARGS=--loops"


def test_on_a_terminal_one_line_changes_elsewhere_lines_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(0, 1000, 20))
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    plain, terminal = io.StringIO(), Terminal()
    for stream in (plain, terminal):
        progress = Progress(2, stream)
        progress.add(verdict(1))
        progress.add(verdict(2, "lost"))
        progress.end()
    assert [line.split(",")[0] for line in plain.getvalue().splitlines()] == [
        "1 of 2 seeds",
        "2 of 2 seeds",
        "2 of 2 seeds",
        "these failed:",
        "  again 2",
    ]
    assert terminal.getvalue().count("\r\x1b[K") == len(terminal.getvalue().split("\r")) - 1
    assert terminal.getvalue().endswith("these failed:\n  again 2\n")
