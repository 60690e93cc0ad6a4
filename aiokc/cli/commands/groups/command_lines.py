"""Command lines to copy: the same cluster, with other words."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ...output.escapes import escaped

if TYPE_CHECKING:
    from ...context import Context

_C1: Final = re.compile("[\x80-\x9f]")


def command_line(context: Context, command: str, names: Sequence[str], *options: str) -> str:
    """Return ``aiokc`` with these words, and with the options of this run that say which cluster is meant.

    What the environment says is not repeated: the line is run in the same shell. Secrets are not in options. Names of
    which one begins with a dash stand at the end, behind "--".
    """
    args = context.args
    where: list[str] = []
    for option, value in (
        ("-b", args.bootstrap_servers),
        ("--profile", args.profile),
        ("--config", args.config),
        ("--timeout", args.timeout),
    ):
        if value is not None:
            where += [option, value]
    for value in args.options:
        where += ["-X", value]
    words = [*names, *options, *where]
    if any(name.startswith("-") for name in names):
        words = [*options, *where, "--", *names]
    return " ".join(map(_word, ["aiokc", *command.split(), *words]))


def _word(text: str) -> str:
    r"""Return ``text`` as a word of the shell; control characters as bash and zsh read them, $''.

    Whoever joins a group chooses its name, and what is to be copied from a terminal must not move its cursor.
    """
    if escaped(text) == text:
        return shlex.quote(text)
    text = text.replace("\\", r"\\").replace("'", r"\'")
    text = _C1.sub(lambda found: f"\\u{ord(found[0]):04x}", text)  # \x85 would be a byte, and no character of UTF-8
    return f"$'{escaped(text)}'"


def option_words(name: str, value: str) -> list[str]:
    """Return an option and its value, which may begin with a dash."""
    return [f"{name}={value}"] if value.startswith("-") else [name, value]
