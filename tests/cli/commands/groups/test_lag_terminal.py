"""``aiokc lag --watch`` as a process on a terminal of the system: resize, Ctrl-C, SIGTERM."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable

import pytest

from aiokc.testing import Cluster
from tests.cli.screens import Screens

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo terminals")


class Terminal:
    """The end of a pseudo terminal that a person sits at."""

    def __init__(self, columns: int, lines: int) -> None:
        self.person, self.program = pty.openpty()
        self.screens = Screens(columns, lines)
        self.resize(columns, lines)

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.program, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screens.resize(columns, lines)

    def until(self, seen: Callable[[Screens], bool], seconds: float = 30) -> None:
        """Read what the program writes, until the screens show it."""
        deadline = time.monotonic() + seconds
        while not seen(self.screens):
            ready, _, _ = select.select([self.person], [], [], max(0.0, deadline - time.monotonic()))
            assert ready, f"not seen within {seconds} s: {self.screens.now.rows}"
            self.screens.feed(os.read(self.person, 1 << 16).decode())

    def close(self) -> None:
        os.close(self.person)
        os.close(self.program)


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_the_terminal_is_restored(number: signal.Signals, code: int) -> None:
    terminal = Terminal(100, 12)
    with Cluster(topics={"t": 2}).in_thread() as cluster:
        cluster.append("t", b"1", b"2", b"3")
        with subprocess.Popen(
            [sys.executable, "-m", "aiokc", "lag", "g", "-b", cluster.bootstrap, "--watch", "1h"],
            stdin=terminal.program,
            stdout=terminal.program,
            stderr=terminal.program,
            env={**{k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")}, "TERM": "xterm"},
        ) as process:
            try:
                terminal.until(lambda screens: "there is no such group" in screens.second.rows[-1])
                assert terminal.screens.hides_cursor
                terminal.resize(30, 8)
                process.send_signal(signal.SIGWINCH)  # the shell's terminal would
                terminal.until(lambda screens: screens.second.rows[-1].endswith("…"))  # an hour before the next tick
                process.send_signal(number)
                terminal.until(lambda screens: not screens.is_second and not screens.hides_cursor)
                assert process.wait(30) == code
            finally:
                process.kill()
    terminal.close()
