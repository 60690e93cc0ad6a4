"""``aiokc completion``: bash completes with it; the scripts for zsh and fish name the same words."""

from __future__ import annotations

import asyncio
import re
import subprocess

import pytest

from aiokc.cli.commands.table import COMMANDS
from aiokc.cli.parser import parser_of
from tests.cli.running import aiokc

CASES = {
    "aiokc off": {"offsets"},
    "aiokc topics s": {"show"},
    "aiokc topics show --con": {"--config", "--configs"},
    "aiokc cat --val": {"--value"},
    "aiokc cat t --value j": {"json"},
    "aiokc cat --color al": {"always"},
    "aiokc config s": {"show"},
    "aiokc config show --al": {"--all"},
    "aiokc completion z": {"zsh"},
    "aiokc topics --nope": set(),
}


def test_bash_completes_commands_options_and_choices() -> None:
    script = asyncio.run(aiokc("completion", "bash")).out
    for line in CASES:
        words = " ".join(f"'{word}'" for word in line.split())
        script += f'COMP_WORDS=({words}); COMP_CWORD={len(line.split()) - 1}; _aiokc; echo "${{COMPREPLY[@]}}"\n'
    done = subprocess.run(["bash", "--norc", "-c", script], capture_output=True, text=True, timeout=30, check=True)
    assert done.stderr == ""
    found = [set(line.split()) for line in done.stdout.splitlines()]
    assert dict(zip(CASES, found, strict=True)) == CASES


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_a_script_names_every_command_and_option(shell: str) -> None:
    result = await aiokc("completion", shell)
    assert (result.code, result.err) == (0, "")
    for name in COMMANDS:
        assert all(word in result.out for word in name.split())
        for option in (option for action in parser_of(name)._actions for option in action.option_strings):
            spelled = re.sub(r"^--?", lambda dashes: "-l " if dashes[0] == "--" else "-s ", option)
            assert (spelled if shell == "fish" else option) in result.out


async def test_zsh_offers_the_choices_of_an_option() -> None:
    """With them zsh 5.9 completed ``aiokc lag --by `` in a terminal."""
    script = (await aiokc("completion", "zsh")).out
    assert "    'lag --by') compadd -- topic member; return;;\n" in script


async def test_quotes_are_balanced_in_every_line_of_fish() -> None:
    for line in (await aiokc("completion", "fish")).out.splitlines():
        assert len(re.findall(r"(?<!\\)'", line)) % 2 == 0, line
