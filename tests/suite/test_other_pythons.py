"""Finding other Pythons and installing for them; whether the tests pass there is shown by running them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.suite.other_pythons import (
    LEFT_OUT,
    NEEDED,
    ROOT,
    TESTS,
    WHERE_BUILT,
    candidates,
    locked,
    newest_of_each,
    not_found,
)
from tests.suite.peers.without_peers import WithoutPeers


def _program(path: Path, said: str, code: int = 0) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\necho {said}\nexit {code}\n")
    path.chmod(0o755)
    return path


def test_they_are_looked_for_on_path_and_in_pyenv(tmp_path: Path) -> None:
    on_path = [_program(tmp_path / "bin" / name, "") for name in ("python3", "python3.13")]
    for name in ("python3-config", "python3.13t", "python3.13-gdb.py", "python2"):
        _program(tmp_path / "bin" / name, "")
    in_pyenv = _program(tmp_path / "pyenv" / "versions" / "3.14.1" / "bin" / "python3.14", "")
    path = f"{tmp_path / 'bin'}:{tmp_path / 'nowhere'}"
    assert list(candidates(path, tmp_path / "pyenv")) == [*on_path, in_pyenv]


def test_the_newest_of_each_minor_version_that_can_be_used(tmp_path: Path) -> None:
    def python(name: str, said: str, code: int = 0) -> Path:
        return _program(tmp_path / name, said, code)

    mine = " ".join(map(str, sys.version_info[:3]))
    programs = [
        python("too old", "3 10 13 1 /old"),
        python("this one", f"{mine} 1 /mine"),
        python("3.91.1", "3 91 1 1 /of ours/3.91.1"),
        python("3.91.4", "3 91 4 1 /of ours/3.91.4"),
        python("3.91.2", "3 91 2 1 /of ours/3.91.2"),
        python("of another kind", "3 92 0 0 /pypy"),
        python("a shim of what is not chosen", "", 127),
        python("3.90", "3 90 0 1 /3.90"),
        tmp_path / "gone",
    ]
    assert newest_of_each(programs) == {(3, 90): Path("/3.90"), (3, 91): Path("/of ours/3.91.4")}


def test_a_real_interpreter_answers_as_these_do() -> None:
    """The Python that runs this is left out for its version, and for nothing else."""
    assert newest_of_each([Path(sys.executable)]) == {}
    assert newest_of_each([Path(sys.executable)], mine=(3, 10)).keys() == {sys.version_info[:2]}


def test_what_is_promised_and_not_there_is_named() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    assert not_found(project, [], mine=(3, 11)) == ["3.12", "3.13", "3.14", "3.15"]
    assert not_found(project, [(3, 12), (3, 13), (3, 15)], mine=(3, 11)) == ["3.14"]
    assert not_found(project, [(3, minor) for minor in range(12, 20)], mine=(3, 11)) == []


def test_what_they_need_is_locked() -> None:
    text = locked((ROOT / "dev.lock").read_text(), (*NEEDED, *WHERE_BUILT))
    assert text.count("==") == len(NEEDED) + len(WHERE_BUILT)
    assert text.count("--hash=") > text.count("==")
    with pytest.raises(KeyError):
        locked(text, ["no-such-package"])


def test_the_tests_that_they_run_exist() -> None:
    assert [name for name in (*TESTS, *LEFT_OUT) if not (ROOT / name).exists()] == []


def test_what_asks_for_a_missing_peer_is_skipped_and_nothing_else() -> None:
    with pytest.raises(pytest.skip.Exception, match="without duckdb"):
        WithoutPeers().find_spec("duckdb", None, None)
    WithoutPeers().find_spec("cramjam", None, None)  # a module that misses it must see the error
