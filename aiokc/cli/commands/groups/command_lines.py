"""Command lines to copy: the same cluster, with other words."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...context import Context


def command_line(context: Context, *words: str) -> str:
    """Return ``aiokc`` with these words, and with the options of this run that say which cluster is meant.

    What the environment says is not repeated: the line is run in the same shell. Secrets are not in options.
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
    return shlex.join(["aiokc", *words, *where])
