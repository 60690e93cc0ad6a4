"""``JavaProcess``: a Java process of a local cluster: start, readiness, pause, kill; it never outlives the test."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Final

from .jars import LocalKafkaError, last_lines

START_SECONDS: Final = 120.0
STOP_SECONDS: Final = 30.0
_POLL_SECONDS: Final = 0.05
_INTERRUPTS: Final = (signal.SIGINT, signal.SIGTERM)

# The watchdog's stdin is a pipe that our process holds open. However our process ends, even by SIGKILL, the pipe is
# closed; then the watchdog kills the Java process and removes its data. (PR_SET_PDEATHSIG would fire when the *thread*
# that started it ends.)
_WATCHDOG: Final = 'read -r _; kill -KILL "-$1"; [ -z "$2" ] || rm -rf "$2"'


class StartFailed(LocalKafkaError):
    """A broker ended while it was starting, or took too long; the message names its log."""


class PortTaken(StartFailed):
    """Another process took the port between our choice of it and the broker's start."""


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Handle SIGINT and SIGTERM at the end of the block.

    A handler that raises between the start of a process and the assignment to its attribute would leave a process that
    no code can end, or a watchdog that takes the loss of its pipe for the death of our process.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # signal handlers run only in the main thread
        return
    came: list[int] = []

    def remember(number: int, frame: FrameType | None) -> None:
        came.append(number)

    theirs = {number: handler for number in _INTERRUPTS if (handler := signal.getsignal(number)) is not None}
    for number in theirs:
        signal.signal(number, remember)
    try:
        yield
    finally:
        for number, handler in theirs.items():
            signal.signal(number, handler)
        for interrupt in came:
            signal.raise_signal(interrupt)


class JavaProcess(ABC):
    """One process: not running, running, or paused. `name` is its name in messages.

    `log` is the name of its log file in `folder`. The process ends with the Python process, however that ends; then,
    without `keep`, the parent folder of `folder` is removed too.
    """

    def __init__(self, name: str, folder: Path, log: str, *, keep: bool) -> None:
        self.name = name
        self._folder, self._keep = folder, keep
        self._log = folder / log
        self._process: subprocess.Popen[bytes] | None = None
        self._watchdog: subprocess.Popen[bytes] | None = None
        folder.mkdir()

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command line."""

    @abstractmethod
    def ready(self, brokers: int = 1) -> bool:
        """Return whether it answers and, if it is a broker, knows so many brokers."""

    @property
    def pid(self) -> int:
        """The process id. Raises LocalKafkaError while the process is not running."""
        return self._running_process().pid

    @property
    def running(self) -> bool:
        """Whether the process exists, even if it is paused or not ready yet."""
        return self._process is not None and self._process.poll() is None

    def launch(self) -> None:
        """Start the process and return at once; it does not answer yet."""
        if self.running:
            raise LocalKafkaError(f"{self.name} is running already (pid {self.pid})")
        self._forget_process()
        command = self.command()
        with _undisturbed(), self._log.open("ab") as log:
            # It runs in a session of its own: a Ctrl-C in the terminal must not reach it before we stop it.
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
            data = "" if self._keep else str(self._folder.parent)
            self._watchdog = subprocess.Popen(
                ["/bin/sh", "-c", _WATCHDOG, "watchdog", str(self._process.pid), data],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def wait_until_ready(self, brokers: int = 1, *, timeout: float = START_SECONDS) -> None:
        """Wait until it is ready. Raises StartFailed, with the end of its log, where it ends or takes too long."""
        deadline = time.monotonic() + timeout
        while not self.ready(brokers):
            if not self.running:
                raise self._start_failed("ended while it was starting")
            if time.monotonic() > deadline:
                raise self._start_failed(f"was not ready after {timeout:g} s")
            time.sleep(_POLL_SECONDS)

    def kill(self) -> None:
        """Kill the process (SIGKILL), as in a crash."""
        self._end(signal.SIGKILL)

    def terminate(self, *, timeout: float = STOP_SECONDS) -> None:
        """Stop the process cleanly (SIGTERM). It is killed if it still runs after `timeout` seconds."""
        self._end(signal.SIGTERM, timeout)

    def pause(self) -> None:
        """Freeze the process (SIGSTOP): its connections stay open, and it does not answer."""
        pid = self.pid
        os.killpg(pid, signal.SIGSTOP)
        if hasattr(os, "waitid"):  # not on older macOS
            # The signal is sent, but a thread that runs on another CPU may answer one more request before it stops.
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """Let a paused process go on."""
        os.killpg(self.pid, signal.SIGCONT)

    def close(self) -> None:
        """Kill the process if it runs, in whatever state, and end its watchdog."""
        if self.running:
            self.kill()
        self._forget_process()

    def log_tail(self) -> str:
        """Return the last lines of the log, which has warnings and errors only."""
        return last_lines(self._log.read_text(errors="replace")) if self._log.exists() else last_lines("")

    def _running_process(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            raise LocalKafkaError(f"{self.name} is not running")
        return self._process

    def _end(self, how: signal.Signals, timeout: float = STOP_SECONDS) -> None:
        process = self._running_process()
        os.killpg(process.pid, signal.SIGCONT)  # a paused process takes no SIGTERM
        os.killpg(process.pid, how)
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._forget_process()

    def _forget_process(self) -> None:
        """End the watchdog of a process that has ended, so that it can never kill a reused process id."""
        if self._watchdog is not None:
            self._watchdog.kill()
            self._watchdog.communicate()
        self._process = self._watchdog = None

    def _start_failed(self, what: str) -> StartFailed:
        log = self.log_tail()
        kind = PortTaken if "Address already in use" in log else StartFailed
        return kind(f"{self.name} {what}; the end of its log, {self._log}:\n{log}")


def write_properties(path: Path, properties: Mapping[str, str]) -> None:
    """Write a Java properties file; a value may have several lines."""
    lines = (f"{key}={value}".replace("\n", "\\n") for key, value in properties.items())
    path.write_text("".join(f"{line}\n" for line in lines))
