"""``aiokc completion``: scripts that complete commands and options, made from the parsers."""

from __future__ import annotations

from argparse import Action, ArgumentParser
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ..table import COMMANDS

if TYPE_CHECKING:
    from ...context import Context

HELP = "Write a script that lets a shell complete commands and options."
EXAMPLES = (
    ("aiokc completion bash > ~/.local/share/bash-completion/completions/aiokc", "for bash"),
    ("aiokc completion zsh > ~/.zfunc/_aiokc", "for zsh, with ~/.zfunc in fpath"),
    ("aiokc completion fish > ~/.config/fish/completions/aiokc.fish", "for fish"),
)
NEEDS_CLUSTER = False
SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: ArgumentParser) -> None:
    """Add the arguments of this command."""
    parser.add_argument("shell", choices=SHELLS, metavar="bash|zsh|fish")


async def run(context: Context) -> int:
    """Write the script."""
    script = {"bash": _bash, "zsh": _zsh, "fish": _fish}[context.args.shell]
    context.out.lines(script())
    return 0


def _options(command: str) -> list[Action]:
    from ...parser import parser_of

    return [action for action in parser_of(command)._actions if action.option_strings]


def _words(command: str) -> str:
    """Return what may follow a command: its second words, its options and the choices of its argument."""
    seconds = [name.split()[1] for name in COMMANDS if name.startswith(f"{command} ")]
    options = (
        [option for action in _options(command) for option in action.option_strings] if command in COMMANDS else []
    )
    return " ".join([*seconds, *_choices(command), *options])


def _choices(command: str) -> list[str]:
    from ...parser import parser_of

    if command not in COMMANDS:
        return []
    positional = [action for action in parser_of(command)._actions if not action.option_strings]
    return [str(choice) for action in positional for choice in action.choices or ()]


def _firsts() -> list[str]:
    return list(dict.fromkeys(name.split()[0] for name in COMMANDS))


def _everything() -> list[str]:
    """Return all commands, and the first words of those with two."""
    return list(dict.fromkeys([*_firsts(), *COMMANDS]))


def _bash() -> Iterator[str]:
    yield "# bash completion for aiokc; made by: aiokc completion bash"
    yield "_aiokc() {"
    yield '  local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words="" choices=""'
    yield '  local command="${COMP_WORDS[1]}"'
    yield '  case "$command ${COMP_WORDS[2]}" in'
    for name in COMMANDS:
        if " " in name:
            yield f"    '{name}') if (( COMP_CWORD > 2 )); then command='{name}'; fi;;"
    yield "  esac"
    yield "  if (( COMP_CWORD == 1 )); then"
    yield f"    words='{' '.join(_firsts())} --help --version'"
    yield "  else"
    yield '    case "$command $before" in'
    for name in COMMANDS:
        for action in _options(name):
            if action.choices:
                for option in action.option_strings:
                    yield f"      '{name} {option}') choices='{' '.join(map(str, action.choices))}';;"
    yield "    esac"
    yield '    if [[ -n "$choices" ]]; then words="$choices"; else case "$command" in'
    for name in _everything():
        yield f"      '{name}') words='{_words(name)}';;"
    yield "    esac; fi"
    yield "  fi"
    yield '  COMPREPLY=($(compgen -W "$words" -- "$word"))'
    yield "}"
    yield "complete -o default -F _aiokc aiokc"


def _zsh() -> Iterator[str]:
    yield "#compdef aiokc"
    yield "# zsh completion for aiokc; made by: aiokc completion zsh"
    yield "_aiokc() {"
    yield '  local command="${words[2]}"'
    yield '  case "$command ${words[3]}" in'
    for name in COMMANDS:
        if " " in name:
            yield f"    '{name}') if (( CURRENT > 3 )); then command='{name}'; fi;;"
    yield "  esac"
    yield "  if (( CURRENT == 2 )); then"
    yield "    local -a commands=("
    for first in _firsts():
        yield f"      '{first}:{_quoted(COMMANDS.get(first, ('', 'more'))[1], ':')}'"
    yield "    )"
    yield "    _describe 'command' commands"
    yield "    return"
    yield "  fi"
    yield '  case "$command ${words[CURRENT-1]}" in'
    for name in COMMANDS:
        for action in _options(name):
            if action.choices:
                patterns = "|".join(f"'{name} {option}'" for option in action.option_strings)
                yield f"    {patterns}) compadd -- {' '.join(map(str, action.choices))}; return;;"
    yield "  esac"
    yield '  case "$command" in'
    for name in _everything():
        yield f"    '{name}') compadd -- {_words(name)};;"
    yield "  esac"
    yield "  _files"
    yield "}"
    yield 'if [ "$funcstack[1]" = "_aiokc" ]; then _aiokc "$@"; else compdef _aiokc aiokc; fi'


def _fish() -> Iterator[str]:
    yield "# fish completion for aiokc; made by: aiokc completion fish"
    for first in _firsts():
        line = _quoted(COMMANDS.get(first, ("", "more"))[1])
        yield f"complete -c aiokc -n __fish_use_subcommand -f -a '{first}' -d '{line}'"
    for name in COMMANDS:
        first, _, second = name.partition(" ")
        seen = f"__fish_seen_subcommand_from {first}"
        if second:
            others = f"; and not __fish_seen_subcommand_from {second}"
            yield f"complete -c aiokc -n '{seen}{others}' -f -a '{second}' -d '{_quoted(COMMANDS[name][1])}'"
            seen += f"; and __fish_seen_subcommand_from {second}"
        for choice in _choices(name):
            yield f"complete -c aiokc -n '{seen}' -f -a '{choice}'"
        for action in _options(name):
            yield f"complete -c aiokc -n '{seen}' {_fish_option(action)}"


def _fish_option(action: Action) -> str:
    parts = [f"-l {text[2:]}" if text.startswith("--") else f"-s {text[1:]}" for text in action.option_strings]
    if action.nargs != 0:
        parts.append("-x -a '" + " ".join(map(str, action.choices)) + "'" if action.choices else "-r")
    help_text = (action.help or "").replace("%%", "%")
    return " ".join([*parts, f"-d '{_quoted(help_text)}'"])


def _quoted(text: str, others: str = "") -> str:
    r"""Return ``text`` for single quotes of fish; for zsh, whose ' can't be quoted, without any."""
    if others:
        return text.replace("'", "").replace(others, f"\\{others}")
    return text.replace("\\", "\\\\").replace("'", "\\'")
