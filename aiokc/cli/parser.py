"""The parsers: one for each command, made when it is used, with the options that all commands have."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import Any, NoReturn, cast

from .commands.table import COMMANDS, split_command
from .problems import UsageProblem, cut, nearest, quoted

#: Options of every command that take the next word as their value.
_VALUED = frozenset(("-b", "--bootstrap-servers", "-X", "--option", "--profile", "--config", "--timeout", "--color"))

#: What other tools call a command.
_ELSEWHERE = {
    **dict.fromkeys(("consume", "read", "consumer"), "tail, and cat up to the end"),
    **dict.fromkeys(("send", "write", "producer"), "produce"),
    "describe": "topics show, or groups show",
    "list": "topics, or groups",
    **dict.fromkeys(("brokers", "nodes", "metadata"), "cluster"),
    "reset": "reset-offsets",
}

_NEGATIVE = re.compile(r"-\d")
_LONG = re.compile(r"(?:(?<=[\s(])|^)'([^']{100})[^']+'")  # in quotes


class Shown(Exception):
    """The command line asks for a text, such as help: it goes to stdout, and the command ends with 0."""


class Parser(argparse.ArgumentParser):
    """An ArgumentParser that raises: UsageProblem for an error, Shown for the help."""

    def error(self, message: str) -> NoReturn:
        unknown = message.removeprefix("unrecognized arguments: ").split()
        if unknown and message != " ".join(unknown):
            options = [option for action in self._actions for option in action.option_strings]
            if unknown[0].startswith("-"):
                message = f"unknown option {cut(unknown[0])}{nearest(unknown[0].partition('=')[0], options)}"
            else:
                message = f"unexpected {quoted(unknown[0])}"
        message = _LONG.sub(r"'\1'…", message)  # in what argparse itself tells
        raise UsageProblem(message, f"'{self.prog} --help' says more")

    def print_help(self, file: object = None) -> NoReturn:
        raise Shown(self.format_help())


class _Formatter(argparse.HelpFormatter):
    """Fills the lines of descriptions, and keeps those that begin with a space: examples."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def _format_action_invocation(self, action: argparse.Action) -> str:
        """Write the value once behind all spellings, as Python 3.13 and later do."""
        if not action.option_strings:
            return super()._format_action_invocation(action)
        value = "" if action.nargs == 0 else f" {self._format_args(action, action.dest.upper())}"
        return ", ".join(action.option_strings) + value

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(line if line.startswith(" ") else textwrap.fill(line, width) for line in text.splitlines())


def parse(words: Sequence[str]) -> tuple[ModuleType, argparse.Namespace]:
    """Return the module of the command in ``words`` and its arguments. Raises UsageProblem and Shown."""
    command, rest = split_command(list(words), _VALUED)
    if command is None:
        if any(word in ("--version", "-V") for word in rest):
            raise Shown(_version())
        if not rest or any(word in ("-h", "--help") for word in rest):
            raise Shown(overview())
        raise UsageProblem("no command is given", _TRY_HELP)
    if command == "help":
        raise Shown(parser_of(" ".join(rest)).format_help() if " ".join(rest) in COMMANDS else overview())
    if command not in COMMANDS:
        meant = _ELSEWHERE.get(command)
        hint = f"; here that is {meant}" if meant else nearest(command, COMMANDS)
        raise UsageProblem(f"unknown command {quoted(command)}{hint}", _TRY_HELP)
    parser, module = parser_of(command), module_of(command)
    try:
        # Of mixed arguments argparse loses the "--", behind which a name may begin with a dash.
        read = parser.parse_args if "--" in rest else parser.parse_intermixed_args
        return module, read(_joined(parser, rest))
    except UsageProblem as problem:
        not_here = getattr(module, "NOT_HERE", {})
        problem.hint = next((not_here[word] for word in rest if word in not_here), problem.hint)
        raise


def _joined(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """Join ``--at -1h`` to ``--at=-1h``: argparse takes a word with a dash for an option, unless it is a number."""
    valued = {option for action in parser._actions if action.nargs is None for option in action.option_strings}
    joined: list[str] = []
    for word in words:
        if joined and joined[-1] in valued and _NEGATIVE.match(word):
            joined[-1] += f"={word}" if joined[-1].startswith("--") else word
        else:
            joined.append(word)
    return joined


_TRY_HELP = "'aiokc --help' lists the commands"


def module_of(command: str) -> ModuleType:
    """Import the module of a command."""
    return import_module(f"aiokc.cli.commands.{COMMANDS[command][0]}")


def parser_of(command: str) -> Parser:
    """Return the parser of a command."""
    module = module_of(command)
    examples = "examples:" + "".join(f"\n  {line}\n      {meaning}" for line, meaning in module.EXAMPLES)
    notes = getattr(module, "NOTES", "")
    parser = Parser(
        prog=f"aiokc {command}",
        description=module.HELP,
        epilog=f"{notes}\n\n{examples}" if notes else examples,
        formatter_class=_Formatter,
        allow_abbrev=False,
        **cast("Any", _plain()),
    )
    module.add_arguments(parser)
    if getattr(module, "NEEDS_CLUSTER", True):
        _add_cluster(parser)
    _add_output(parser, formats=getattr(module, "SHOWS_ROWS", True))
    words = [_word(action) for action in parser._actions if not action.option_strings]
    parser.usage = " ".join((parser.prog, "[OPTION…]", *words))
    return parser


def _word(action: argparse.Action) -> str:
    word = str(action.metavar or action.dest)
    return {"?": f"[{word}]", "*": f"[{word}…]", "+": f"{word}…"}.get(str(action.nargs), word)


def _plain() -> dict[str, bool]:
    import sys

    return {"color": False} if sys.version_info >= (3, 14) else {}  # argparse colours by itself from there on


def _add_cluster(parser: argparse.ArgumentParser) -> None:
    where = parser.add_argument_group("the cluster")
    where.add_argument(
        "-b", "--bootstrap-servers", metavar="HOST:PORT,…", help="brokers to connect to first (localhost:9092)"
    )
    where.add_argument(
        *("-X", "--option"),
        dest="options",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="an option of the command's client in aiokc, or its name in Java or librdkafka; repeatable",
    )
    where.add_argument("--profile", metavar="NAME", help="[profile.NAME] of the configuration file")
    where.add_argument("--config", metavar="FILE", help="the configuration file (~/.config/aiokc/config.toml)")
    where.add_argument("--timeout", metavar="TIME", help="how long to try, such as 500ms, 10s or 2m (30s)")


def _add_output(parser: argparse.ArgumentParser, *, formats: bool) -> None:
    look = parser.add_argument_group("output")
    if formats:
        choice = look.add_mutually_exclusive_group()
        for name, meaning in (
            ("table", "columns for people (the default)"),
            ("json", "JSON Lines: one object a line"),
            ("csv", "CSV with a header"),
        ):
            choice.add_argument(f"--{name}", dest="format", action="store_const", const=name, help=meaning)
    else:
        parser.set_defaults(format=None)
    look.add_argument("--color", choices=("auto", "always", "never"), default="auto", help="colours (auto)")
    look.add_argument("-v", "--verbose", action="count", default=0, help="log to stderr; twice: in detail")
    look.add_argument("-q", "--quiet", action="store_true", help="nothing on stderr but errors")


def overview() -> str:
    """Return the help about all commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {line}" for name, (_, line) in COMMANDS.items()]
    return "\n".join(
        (
            "usage: aiokc COMMAND [OPTION…]",
            "",
            "Look at a Kafka cluster, its topics, records and groups, and send records.",
            "",
            "commands:",
            *lines,
            "",
            "'aiokc COMMAND --help' explains a command, with examples. Nothing but 'produce' changes a cluster without",
            "--execute.",
            "",
        )
    )


def _version() -> str:
    from importlib.metadata import version

    return f"aiokc {version('aiokc')}\n"
