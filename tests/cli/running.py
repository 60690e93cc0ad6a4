"""Runs the command in the test's own loop, beside its cluster; the streams are in memory."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import NamedTuple

from aiokc.cli.exit_codes import DONE
from aiokc.cli.main import execute, prepared, report
from aiokc.cli.parser import Shown, parse
from aiokc.cli.problems import Problem
from aiokc.cli.system import System


class Stream(io.TextIOWrapper):
    """A stream in memory, which may claim to be a terminal."""

    def __init__(self, content: bytes = b"", *, is_terminal: bool = False) -> None:
        self.written = io.BytesIO(content)
        super().__init__(self.written, encoding="utf-8", errors="backslashreplace", newline="\n")
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal

    @property
    def text(self) -> str:
        """What was written there."""
        self.flush()
        return self.written.getvalue().decode()


class Result(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


def system_of(*, columns: int | None = None, environ: Mapping[str, str] | None = None, stdin: bytes = b"") -> System:
    """Return a System of streams in memory; with ``columns`` stdout and stderr are a terminal of this width."""
    is_terminal = columns is not None
    variables = {"HOME": "/nonexistent", **({"COLUMNS": str(columns)} if is_terminal else {}), **(environ or {})}
    return System(Stream(stdin), Stream(is_terminal=is_terminal), Stream(is_terminal=is_terminal), variables)


async def aiokc(
    *words: str,
    bootstrap: str | None = None,
    columns: int | None = None,
    environ: Mapping[str, str] | None = None,
    system: System | None = None,
    stdin: bytes = b"",
) -> Result:
    """Run ``aiokc`` with these words. ``columns``: on a terminal of this width; else stdout is a pipe.

    ``stdin`` is what it reads there, ``bootstrap`` the brokers of AIOKC_BOOTSTRAP_SERVERS.
    BrokenPipeError and cancellation are those of main().
    """
    variables = {**({"AIOKC_BOOTSTRAP_SERVERS": bootstrap} if bootstrap else {}), **(environ or {})}
    system = system or system_of(columns=columns, environ=variables, stdin=stdin)
    try:
        module, args = parse(words)
    except Shown as shown:
        return Result(DONE, str(shown), "")
    except Problem as problem:
        return Result(problem.exit_code, "", f"aiokc: {problem}\n{problem.hint}\n")
    try:
        context = prepared(module, args, system)
    except Problem as problem:
        code = report(problem, system)
    else:
        code = await execute(module, context)
    assert isinstance(system.stdout, Stream)
    assert isinstance(system.stderr, Stream)
    return Result(code, system.stdout.text, system.stderr.text)
