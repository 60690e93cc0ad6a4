from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.measuring import process
from benchmarks.measuring.process import ROOT, ProcessFailed, last_line


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module whose text a test writes to module.py in its temporary folder."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "module_of_the_test"


def write(folder: Path, text: str) -> None:
    (folder / "module_of_the_test.py").write_text(text)


def test_a_module_runs_as_main_with_its_job(module: str, tmp_path: Path) -> None:
    write(tmp_path, "import os, sys\nprint('first')\nprint(sys.argv[1:], __name__, os.environ['A'])")
    assert last_line(module, "--job", "{}", timeout=200, environment={"A": "b"}) == "['--job', '{}'] __main__ b"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise KeyError('client')", "ended with code 1: KeyError: 'client'"),
        ("import sys; sys.exit(3)", "ended with code 3: it said nothing"),
        ("", "it ended without a figure"),
    ],
)
def test_a_process_that_has_no_figure_says_why(module: str, tmp_path: Path, text: str, reason: str) -> None:
    write(tmp_path, text)
    with pytest.raises(ProcessFailed, match=reason):
        last_line(module, "{}", timeout=200)


def test_what_a_process_has_started_does_not_outlive_it(module: str, tmp_path: Path) -> None:
    """A JVM, for instance, whose worker was killed. It is seen to end by a pipe, which it alone still holds open."""
    path = tmp_path / "held"
    os.mkfifo(path)
    text = """
import subprocess, sys
with open({path!r}, "wb") as held:
    subprocess.Popen(["sleep", "600"], stdin=held, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
sys.exit("the reason")
"""
    write(tmp_path, text.format(path=str(path)))
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as held:
        with pytest.raises(ProcessFailed, match="ended with code 1: the reason"):
            last_line(module, "{}", timeout=200)
        has_ended, _, _ = select.select([held], [], [], 30)
    assert has_ended


@pytest.mark.parametrize("end", ["raise KeyError('client')", "import signal; signal.pause()"])
def test_the_end_of_what_a_process_said_is_kept(module: str, tmp_path: Path, end: str) -> None:
    write(tmp_path, f"import sys; print('x' * 5_000, 'a warning', file=sys.stderr, flush=True)\n{end}")
    for timeout in (2, 200):  # on a busy machine it may have said nothing within the short one
        with pytest.raises(ProcessFailed) as raised:
            last_line(module, "{}", timeout=timeout)
        if raised.value.said:
            break
    assert "a warning" in raised.value.said
    assert len(raised.value.said) == 2_000


def test_a_process_that_nobody_ends_ends_itself(module: str, tmp_path: Path) -> None:
    """Its starter was killed by SIGKILL: it would try to reach a broker that is gone for ever."""
    write(tmp_path, "import signal\nsignal.pause()")
    command = [sys.executable, "-m", process.__name__, "1", module]
    assert subprocess.run(command, cwd=ROOT, timeout=200, check=False).returncode == -signal.SIGALRM


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_what_the_blocks_of_a_program_end(number: signal.Signals) -> None:
    program = """
from benchmarks.measuring.process import exit_on_signals
import signal
exit_on_signals()
try:
    print("ready", flush=True)
    while True:
        signal.pause()
finally:
    print("ended", flush=True)
"""
    with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert running.stdout.readline() == "ready\n"
        running.send_signal(number)
        assert running.communicate(timeout=200)[0] == "ended\n"
    assert running.returncode == 2


def test_what_nohup_ignores_stays_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    handled = []
    monkeypatch.setattr(signal, "getsignal", {signal.SIGTERM: signal.SIG_DFL, signal.SIGHUP: signal.SIG_IGN}.get)
    monkeypatch.setattr(signal, "signal", lambda number, _: handled.append(number))
    process.exit_on_signals()
    assert handled == [signal.SIGTERM]
