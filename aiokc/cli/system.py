"""What the process gives the command: streams, environment, terminal and clock. Tests give another one."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping
from typing import TextIO


class System:
    """The streams, the environment, the terminal and the clock that a command runs with."""

    def __init__(
        self,
        stdin: TextIO | None = None,
        stdout: TextIO | None = None,
        stderr: TextIO | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        self.stdin = stdin or _or_nothing(sys.stdin, "r")
        self.stdout = stdout or _or_nothing(sys.stdout, "w")
        self.stderr = stderr or _or_nothing(sys.stderr, "w")
        self.environ = os.environ if environ is None else environ

    def tell(self, text: str) -> None:
        """Write to stderr, at once. Where it can't be written to nobody is told, and the command goes on.

        What a command changes does not depend on who reads of it, and its exit code still tells.
        """
        try:
            self.stderr.write(text)
            self.stderr.flush()
        except OSError:
            let_go(self.stderr)

    def now(self) -> float:
        """The time, in seconds since the epoch."""
        import time

        return time.time()

    def is_terminal(self, stream: TextIO) -> bool:
        """Whether a person looks at what is written there."""
        return not stream.closed and stream.isatty()

    def width(self, stream: TextIO) -> int:
        """The columns of the terminal behind ``stream``; COLUMNS overrides it, and 80 is meant where nothing says."""
        given = self.environ.get("COLUMNS", "")
        if given.isascii() and given.isdigit() and int(given) > 0:
            return int(given)
        try:
            return os.get_terminal_size(stream.fileno()).columns or 80
        except (OSError, ValueError, AttributeError):  # no terminal, or a stream without a file
            return 80

    def height(self, stream: TextIO) -> int:
        """The lines of the terminal behind ``stream``; LINES overrides it, and 24 is meant where nothing says."""
        given = self.environ.get("LINES", "")
        if given.isascii() and given.isdigit() and int(given) > 0:
            return int(given)
        try:
            return os.get_terminal_size(stream.fileno()).lines or 24
        except (OSError, ValueError, AttributeError):  # no terminal, or a stream without a file
            return 24

    def ask_secret(self, prompt: str) -> str | None:
        """Let the person at the terminal type a secret, unseen. None where there is no terminal to ask at.

        Raises EOFError where nothing is typed but Ctrl-D.
        """
        if not (self.is_terminal(self.stdin) and self.is_terminal(self.stderr)):
            return None
        import getpass

        try:
            return getpass.getpass(prompt, self.stderr)
        except EOFError:
            self.tell("\n")  # getpass ends the line only behind a secret
            raise


def escape_unencodable(stream: TextIO, encoding: str | None = None) -> None:
    r"""Write what the encoding of ``stream`` lacks as \x and \u escapes; it has ``encoding`` from now on, if given."""
    if isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(encoding=encoding, errors="backslashreplace")


def let_go(stream: TextIO) -> None:
    """Let go nowhere what is left for a stream without a reader, or without room: at its end Python flushes it, too."""
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):  # a stream without a file, in tests
        return
    with open(os.devnull, "wb") as nowhere:
        os.dup2(nowhere.fileno(), descriptor)


def _or_nothing(stream: TextIO | None, mode: str) -> TextIO:
    """Return a stream of the process; where it was started without (``>&-``), one that leads nowhere."""
    return open(os.devnull, mode) if stream is None else stream  # type: ignore[return-value]
