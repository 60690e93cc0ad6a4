"""Live views and progress bars, as an emulated terminal shows them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from contextlib import AbstractContextManager

import pyte
import pytest

from aiokc.cli.lag.display import RichDisplay
from aiokc.cli.output.live import Live
from aiokc.cli.output.progress import progress
from aiokc.cli.output.terminal import Terminal
from aiokc.cli.system import System
from tests.cli.running import Stream, system_of


def screen_of(text: str, columns: int, lines: int) -> list[str]:
    screen = pyte.Screen(columns, lines)
    pyte.Stream(screen).feed(text.replace("\n", "\r\n"))
    return [line.rstrip() for line in screen.display]


def shown_on(system: System) -> str:
    assert isinstance(system.stdout, Stream)
    return system.stdout.text


def test_each_frame_takes_the_place_of_the_one_before() -> None:
    system = system_of(columns=40, environ={"LINES": "6"})
    with Live(system, Terminal(system, "auto")) as view:
        view.show(["a long first line of the first frame", "two", "three"])
        view.show(["ONE", "TWO"])
        assert screen_of(shown_on(system), 40, 6) == ["ONE", "TWO", "", "", "", ""]
        view.show([f"line {number}" for number in range(20)])
        assert screen_of(shown_on(system), 40, 6)[-1] == "… 15 more lines"
        view.show(["\x1b[1m" + "x" * 100 + "\x1b[0m", "below"])
        assert screen_of(shown_on(system), 40, 6)[:3] == ["x" * 40, "below", ""]
    assert shown_on(system).count("\x1b[?1049h") == shown_on(system).count("\x1b[?1049l") == 1
    assert shown_on(system).endswith("below\n")  # the last frame stays, whole


def test_the_screen_is_given_back_when_the_view_is_interrupted() -> None:
    system = system_of(columns=40)
    with pytest.raises(KeyboardInterrupt), Live(system, Terminal(system, "auto")) as view:  # noqa: PT012
        view.show(["one"])
        raise KeyboardInterrupt
    assert "\x1b[?25h\x1b[?1049l" in shown_on(system)


class Window(Stream):
    """A terminal whose window may be closed: then all writes fail."""

    is_there = True

    def write(self, text: str) -> int:
        self._check()
        return super().write(text)

    def flush(self) -> None:
        self._check()
        super().flush()

    def _check(self) -> None:
        if not self.is_there:
            raise OSError(errno.EIO, "Input/output error")


def draws_live(system: System) -> AbstractContextManager[object]:
    return Live(system, Terminal(system, "auto"))


def draws_a_bar(system: System) -> AbstractContextManager[object]:
    return progress(system, Terminal(system, "auto"), "orders", 1000, quiet=False, shows_records=False)


def draws_with_rich(system: System) -> AbstractContextManager[object]:
    return RichDisplay(system, Terminal(system, "auto"))


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # a bar has a thread that draws
@pytest.mark.parametrize("view", [draws_live, draws_a_bar, draws_with_rich])
def test_a_window_that_is_closed_hides_no_cancellation(
    view: Callable[[System], AbstractContextManager[object]],
) -> None:
    """Else the exit code is 1, and not that of SIGHUP, which has cancelled the command."""
    window = Window(is_terminal=True)
    with pytest.raises(asyncio.CancelledError), view(System(Stream(), window, window, {"TERM": "xterm"})):  # noqa: PT012
        window.is_there = False
        raise asyncio.CancelledError
    window.is_there = True


def test_frames_in_a_pipe_follow_each_other() -> None:
    system = system_of()
    with Live(system, Terminal(system, "auto")) as view:
        view.show(["one"])
        view.show(["two"])
    assert shown_on(system) == "one\n\ntwo\n"


def test_a_bar_is_on_stderr_when_a_person_waits_for_a_pipe() -> None:
    system = System(Stream(), Stream(), Stream(is_terminal=True), {"COLUMNS": "60", "TERM": "xterm"})
    with progress(system, Terminal(system, "auto"), "orders", 1000, quiet=False) as bar:
        bar.reached(500)
    assert isinstance(system.stderr, Stream)
    assert "orders" in system.stderr.text
    assert shown_on(system) == ""


@pytest.mark.parametrize("quiet", [True, False])
def test_no_bar_without_a_person(quiet: bool) -> None:
    system = System(Stream(), Stream(), Stream(is_terminal=quiet), {})
    with progress(system, Terminal(system, "auto"), "orders", 1000, quiet=quiet) as bar:
        bar.reached(500)
    assert isinstance(system.stderr, Stream)
    assert system.stderr.text == ""
