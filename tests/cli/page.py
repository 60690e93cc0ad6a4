"""The part of docs/cli.md that is made from the parsers: options, columns of help and exit codes.

python -m tests.cli.page      writes it into the page
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from pathlib import Path

from aiokc.cli.commands.table import COMMANDS
from aiokc.cli.exit_codes import MEANINGS
from aiokc.cli.parser import Parser, module_of, parser_of

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
BEGIN, END = "<!-- commands: begin -->", "<!-- commands: end -->"
#: The groups of options that most commands have: they are described once.
COMMON = ("the cluster", "output")


def commands() -> str:
    """Return the sections of all commands, the options that they share, and the exit codes."""
    lines: list[str] = ["## Commands", ""]
    lines += [f"- [`aiokc {name}`](#{_anchor(name)}): {line}" for name, (_, line) in COMMANDS.items()]
    for name in COMMANDS:
        lines += ["", *_section(name)]
    lines += ["", "## Options of every command", "", *_table(parser_of("topics"), COMMON, inside=True)]
    lines += ["", "## Exit codes", "", "| code | meaning |", "|---|---|"]
    lines += [f"| {code} | {meaning} |" for code, meaning in MEANINGS.items()]
    return "\n".join(lines)


def _anchor(name: str) -> str:
    return f"aiokc-{name.replace(' ', '-')}"


def _section(name: str) -> Iterator[str]:
    module, parser = module_of(name), parser_of(name)
    yield f"### aiokc {name}"
    yield ""
    yield f"`{parser.usage}`"
    yield ""
    yield _text(module.HELP)
    if table := list(_table(parser, COMMON, inside=False)):
        yield ""
        yield from table
    if notes := getattr(module, "NOTES", ""):
        yield ""
        yield "```text"
        yield from textwrap.wrap(notes, 110)
        yield "```"
    yield ""
    yield "```console"
    for line, meaning in module.EXAMPLES:
        yield f"# {meaning}"
        yield f"$ {line}"
    yield "```"


def _table(parser: Parser, groups: tuple[str, ...], *, inside: bool) -> Iterator[str]:
    rows = []
    for group in parser._action_groups:
        if (group.title in groups) is inside:
            rows += [_row(action) for action in group._group_actions if action.help and action.dest != "help"]
    if rows:
        yield "| option | meaning |"
        yield "|---|---|"
        yield from rows


def _row(action: argparse.Action) -> str:
    choices = "{" + ",".join(map(str, action.choices)) + "}" if action.choices else action.dest.upper()
    value = "" if action.nargs == 0 else f" {action.metavar or choices}"
    named = ", ".join(f"`{option}{value}`" for option in action.option_strings) or f"`{action.metavar or action.dest}`"
    return f"| {named.replace('|', f'{chr(92)}|')} | {_text((action.help or '').replace('%%', '%'))} |"


def _text(text: str) -> str:
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("<", "&lt;").replace("*", "\\*").replace("_", "\\_")


def page() -> str:
    """Return the page as it should be."""
    before, rest = PAGE.read_text().split(BEGIN)
    _, after = rest.split(END)
    return f"{before}{BEGIN}\n{commands()}\n{END}{after}"


if __name__ == "__main__":
    PAGE.write_text(page())
