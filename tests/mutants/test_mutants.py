"""The wrong changes are what they claim to be, and the fast tests notice them."""

from __future__ import annotations

import sys

import pytest

from tests.suite.child_process import run_to_end

from .explained import EXPLAINED
from .mutant import ROOT, Mutant, chosen, mutants, mutants_of

# It makes all mutants there are.
pytestmark = pytest.mark.timeout(300)

SOURCE = '''
"""A module."""
LEAST = 3
CODES = frozenset({1, 2})

class Counter:
    """``é`` is a letter of two bytes."""

    def count(self, limit: int | None = None) -> None:
        """Count."""
        while self.value < 3 and not self.ended:
            self.value += 1  # é
            self.told.append(self.value)
            if limit is not None:
                continue
            logger.info("no mutant of %d", 1)
        self.last = min(self.value, LEAST)
        self.notify(at_once=True)

    async def wait(self) -> int:
        await self.changed.wait()
        return 1 if self.value else 0

    def fail(self) -> None:
        if self.ended:
            raise ValueError(1 + 1)
'''


@pytest.fixture(scope="module")
def everything() -> list[Mutant]:
    return mutants()


def made(source: str = SOURCE) -> list[Mutant]:
    return list(mutants_of("aiokc/core/counter.py", source))


def changes(function: str) -> set[tuple[str, str]]:
    """Return the edits of a function, and the texts that result."""
    return {(mutant.operator, mutant.text) for mutant in made() if mutant.function == function}


def test_what_is_changed() -> None:
    assert changes("Counter.fail") == {
        ("return early", "return\n        if self.ended:\n            raise ValueError(1 + 1)"),
        ("always", "True"),
        ("never", "False"),
        ("raise nothing", "pass"),
    }, "and nothing of a message"
    assert changes("Counter.wait") == {
        ("drop a call", "pass"),
        ("the other branch", "(0 if self.value else 1)"),
        ("one more", "2"),
        ("one more", "1"),
    }
    assert {change for change in changes("Counter.count") if change[0] != "return early"} == {
        ("and / or", "(self.value < 3 or not self.ended)"),
        ("drop a condition", "(self.value < 3)"),
        ("drop a condition", "(not self.ended)"),
        ("another comparison", "(self.value <= 3)"),
        ("another comparison", "(limit is None)"),
        ("one more", "4"),
        ("one more", "2"),
        ("no not", "(self.ended)"),
        ("drop an update", "pass"),
        ("drop a call", "pass"),
        ("always", "True"),
        ("never", "False"),
        ("go on", "pass"),
        ("drop an assignment", "pass"),
        ("min / max, any / all", "max"),
        ("drop an argument", "self.notify()"),
        ("the other constant", "False"),
    }
    assert changes("") == {("drop an element", "{1}"), ("drop an element", "{2}")} | {
        ("one more", number) for number in "234"
    }


def test_a_mutant_is_known_by_what_it_says() -> None:
    """A key depends neither on the module's name nor on the rest of it, even if there are similar lines."""
    before = {mutant.key: mutant.line for mutant in made()}
    moved = SOURCE.replace("class Counter", "GREATEST: Final = 70\n\n\nclass Counter").replace("# é", "# another word")
    after = {mutant.key: mutant.line for mutant in mutants_of("aiokc/core/other/place.py", moved)}
    assert before == after
    twice = made("def f(a: int) -> None:\n    g(a)\n    g(a)\n")
    assert [mutant.line for mutant in twice if mutant.operator == "drop a call"] == ["g(a)", "g(a)"]
    assert len({mutant.key for mutant in twice}) == len(twice)


def test_a_seed_chooses_the_same_ones_in_whatever_order_they_stand() -> None:
    first = [mutant.key for mutant in chosen(made(), 3, 10)]
    assert first == [mutant.key for mutant in chosen(made()[::-1], 3, 10)]
    assert first == [mutant.key for mutant in chosen(made(), 3, 20)][:10]
    assert first != [mutant.key for mutant in chosen(made(), 4, 10)]


def test_all_of_them_are_python_and_differ(everything: list[Mutant]) -> None:
    assert len(everything) > 5_000
    assert len({mutant.key for mutant in everything}) == len(everything)
    for mutant in chosen(everything, 5, 150):
        compile(mutant.source, mutant.path, "exec")
        assert mutant.source != (ROOT / mutant.path).read_text()
        assert mutant.diff.count("\n+") > 1, mutant


def test_what_is_explained_is_still_there(everything: list[Mutant]) -> None:
    gone = [one for one in EXPLAINED if not any(map(one.is_of, everything))]
    assert gone == [], "the line or the function has changed: is the reason still true?"


def test_mutants_that_are_caught_and_those_that_are_not(everything: list[Mutant]) -> None:
    """The tests of one module catch its mutants; those of another one, which does not cover it, do not."""
    arguments = [sys.executable, "-m", "tests.mutants", "-v", "-n", "2", "--seed", "2", "--tests"]
    caught = run_to_end([*arguments, "tests/core/test_backoff.py", "--of", "backoff"], seconds=100, cwd=ROOT)
    assert caught.returncode == 0, caught.stdout + caught.stderr
    assert "2 mutants in" in caught.stdout
    assert "a test failed: " in caught.stdout
    assert "(tests/core/test_backoff.py::" in caught.stdout
    missed = run_to_end([*arguments, "tests/core/test_rate_limit.py", "--of", "backoff"], seconds=100, cwd=ROOT)
    assert missed.returncode == 1, missed.stdout + missed.stderr
    assert "0 survivors explained, 2 not" in missed.stdout
    assert "no fast test calls it: " in missed.stdout
    assert "\n+++ " in missed.stdout


@pytest.mark.long
@pytest.mark.timeout(3_600)
def test_ten_of_them_are_caught_or_explained() -> None:
    done = run_to_end([sys.executable, "-m", "tests.mutants", "-n", "10", "--seed", "1"], seconds=3_500, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
