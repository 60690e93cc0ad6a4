"""Every example of the help does what it says that it does: it ends well, and shows something."""

from __future__ import annotations

import pytest

from aiokc.cli.commands.table import COMMANDS
from aiokc.cli.parser import module_of
from tests.cli.examples import FOREVER, run_example

#: The examples of these have tests of their own: a cluster in a process, and the files of the person.
ELSEWHERE = {"fake"}
EXAMPLES = [line for name in COMMANDS if name not in ELSEWHERE for line, _ in module_of(name).EXAMPLES]


@pytest.mark.parametrize("line", EXAMPLES)
def test_an_example(line: str, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    if "--profile" in line:
        (path := tmp_path / "config.toml").write_text("[profile.staging]\n")  # type: ignore[operator]
        monkeypatch.setenv("AIOKC_CONFIG", str(path))
        line += f" --config {path}"
    result = run_example(line)
    runs_on = "--watch" in line or (line.split()[1] in FOREVER and " -e" not in line and " -c" not in line)
    well = (0, 3) if line.startswith("aiokc doctor") else (0,)  # the group of the examples has no members
    assert (result.code in well and not runs_on) or (result.code == 130 and runs_on), result.err
    assert "Traceback" not in result.err
    if line.startswith("aiokc produce"):
        assert (result.out, result.err) == ("", "2 records stored in orders\n")
    else:
        assert result.out or "--under-replicated" in line


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_with_their_meaning(name: str) -> None:
    examples = module_of(name).EXAMPLES
    assert examples
    assert all(line.startswith(f"aiokc {name}") and meaning for line, meaning in examples)
