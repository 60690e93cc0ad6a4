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
from collections.abc import Callable, Iterator

import pytest

from aiokc.testing import Cluster
from tests.cli.screens import Screens

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo terminals")


class Terminal:
    """The end of a pseudo terminal that a person sits at."""

    def __init__(self, columns: int, lines: int) -> None:
        self.person, self.program = pty.openpty()
        self.is_closed = False
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

    def hang_up(self) -> None:
        """Close the window: from now on the program can write nothing."""
        if not self.is_closed:
            os.close(self.person)
        self.is_closed = True

    def close(self) -> None:
        self.hang_up()
        os.close(self.program)


@pytest.fixture
def terminal() -> Iterator[Terminal]:
    terminal = Terminal(100, 12)
    yield terminal
    terminal.close()


@pytest.fixture
def watching(terminal: Terminal) -> Iterator[subprocess.Popen[bytes]]:
    """``lag --watch`` on the terminal, with its first answer, and an hour before the next one."""
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
                yield process
            finally:
                process.kill()


@pytest.mark.parametrize(
    ("number", "code"), [(signal.SIGINT, 130), pytest.param(signal.SIGTERM, 143, marks=pytest.mark.long)]
)
def test_the_terminal_is_restored(
    terminal: Terminal, watching: subprocess.Popen[bytes], number: signal.Signals, code: int
) -> None:
    assert terminal.screens.hides_cursor
    terminal.resize(30, 8)
    watching.send_signal(signal.SIGWINCH)  # the shell's terminal would
    terminal.until(lambda screens: screens.second.rows[-1].endswith("…"))
    watching.send_signal(number)
    terminal.until(lambda screens: not screens.is_second and not screens.hides_cursor)
    assert watching.wait(30) == code


@pytest.mark.usefixtures("hanging_up_is_not_ignored")
def test_a_closed_window_ends_it(terminal: Terminal, watching: subprocess.Popen[bytes]) -> None:
    terminal.hang_up()
    watching.send_signal(signal.SIGHUP)  # to the first program of the session the system would
    assert watching.wait(30) == 129
