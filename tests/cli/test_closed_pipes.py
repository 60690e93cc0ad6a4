"""A reader that closes its pipe, and a full disk: what a command did, and what it found, is told all the same."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from aiokc import TopicPartition
from aiokc.cli.commands.local import config_show
from aiokc.cli.context import Context
from aiokc.cli.main import main
from aiokc.cli.problems import Refused
from aiokc.testing import Cluster
from aiokc.testing.brokers.api_keys import ApiKey

from .commands.groups.running_groups import commit, filled
from .refused_commits import refuse_partition_1
from .running import Result, Stream, aiokc, system_of

pytestmark = pytest.mark.timeout(30)

_LONG = "x" * 20_000  # more than is held back for a pipe


class Broken(Stream):
    """A stream that takes ``room`` characters and passes none of them on."""

    def __init__(self, error: int = errno.EPIPE, room: int = 8192) -> None:
        super().__init__()
        self._error, self._room = OSError(error, os.strerror(error)), room  # EPIPE makes it a BrokenPipeError
        self.taken = ""

    def write(self, text: str) -> int:
        self.taken += text
        if len(self.taken) > self._room:
            raise self._error
        return len(text)

    def flush(self) -> None:
        if self.taken and not self.closed:
            raise self._error

    def close(self) -> None:
        self.taken = ""
        super().close()

    @property
    def text(self) -> str:
        return ""


# Commands that end in each way


async def _refused(context: Context) -> int:
    raise Refused("the group has members", "stop them")


async def _found(context: Context) -> int:
    return 3


async def _failed(context: Context) -> int:
    context.fail("orders-1", "is refused")
    return context.exit_code


async def _done(context: Context) -> int:
    context.say("to undo this: run that")
    return 0


WAYS = {
    "refused": (_refused, 4, "aiokc: the group has members\nstop them\n"),
    "found": (_found, 3, ""),
    "failed": (_failed, 1, "error: orders-1: is refused\n"),
    "done": (_done, 0, "to undo this: run that\n"),
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """Let ``aiokc config show`` write long lines and end in this way; return its exit code and what it says."""
    ends, code, says = WAYS[request.param]

    async def run(context: Context) -> int:
        context.out.lines([_LONG, _LONG])
        return await ends(context)

    monkeypatch.setattr(config_show, "run", run)
    return code, says


def test_the_exit_code_and_what_is_said_are_those_without_the_pipe(way: tuple[int, str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    system = system_of()
    with open(writing, "w") as system.stdout:
        code = main(["config", "show"], system)
    assert isinstance(system.stderr, Stream)
    assert (code, system.stderr.text) == way


@pytest.mark.parametrize("line", ["a line", _LONG], ids=["held back", "written"])
def test_where_it_is_flushed_makes_no_difference(monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    async def run(context: Context) -> int:
        context.out.lines([line])
        context.out.flush()
        context.out.rows(config_show.COLUMNS, [("a", "b", "c")])
        return await _failed(context)

    monkeypatch.setattr(config_show, "run", run)
    for words in ([], ["--csv"], ["--json"]):
        system = system_of()
        system.stdout = Broken()
        assert main(["config", "show", *words], system) == 1
        assert isinstance(system.stderr, Stream)
        assert system.stderr.text == "error: orders-1: is refused\n"


def test_a_full_disk_hides_nothing_and_is_a_failure_itself(way: tuple[int, str]) -> None:
    code, says = way
    system = system_of()
    with open("/dev/full", "w") as system.stdout:
        assert main(["config", "show"], system) == (code or 1)
    assert isinstance(system.stderr, Stream)
    assert system.stderr.text == says + ("" if code else "aiokc: [Errno 28] No space left on device\n")


def test_a_full_disk_is_told_where_nothing_is_left_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a buffer (python -u) the last flush has nothing to do."""

    class Unbuffered(Broken):
        def flush(self) -> None:
            pass

    async def run(context: Context) -> int:
        context.out.lines(["a line"])
        return 0

    monkeypatch.setattr(config_show, "run", run)
    system = system_of()
    system.stdout = Unbuffered(errno.ENOSPC, room=0)
    assert main(["config", "show"], system) == 1
    assert isinstance(system.stderr, Stream)
    assert system.stderr.text == "aiokc: [Errno 28] No space left on device\n"


def test_nobody_reads_stderr_either(way: tuple[int, str]) -> None:
    """As with ``2>&1 | head -1``."""
    reading, writing = os.pipe()
    os.close(reading)
    system = system_of()
    with open(os.dup(writing), "w") as system.stdout, open(writing, "w") as system.stderr:
        assert main(["config", "show"], system) == way[0]


# Commands beside a cluster


@pytest_asyncio.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster(topics={"orders": 2}) as cluster:
        filled(cluster, "orders", 10, 20)
        await commit(cluster, "billing", "orders", 4, 20)
        yield cluster


Run = Callable[..., Any]


@pytest.fixture(params=[8192, 0], ids=["held back", "written"])
def run(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Run:
    """Run a command whose stdout nobody reads any more."""

    async def run_it(*words: str) -> Result:
        variables = {"AIOKC_BOOTSTRAP_SERVERS": cluster.bootstrap, "XDG_STATE_HOME": str(tmp_path)}
        system = system_of(environ=variables)
        system.stdout = Broken(room=request.param)
        try:
            return await aiokc(*words, system=system)
        except BrokenPipeError:  # main() makes this of it
            assert isinstance(system.stderr, Stream)
            return Result(0, "", system.stderr.text)

    return run_it


async def test_a_reset_that_is_refused_in_part_tells_of_it_and_of_the_way_back(run: Run, cluster: Cluster) -> None:
    cluster.intercept(ApiKey.OFFSET_COMMIT, refuse_partition_1)
    result = await run("reset-offsets", "billing", "--all-topics", "--to", "0", "--execute")
    assert cluster.committed("billing")[TopicPartition("orders", 0)] == 0
    assert result.code == 1
    assert "error: orders-1: OFFSET_METADATA_TOO_LARGE" in result.err
    assert "to undo this: aiokc reset-offsets billing --from-file" in result.err


async def test_a_check_finds_what_it_finds(run: Run) -> None:
    result = await run("lag", "billing", "--fail-above", "5")
    assert (result.code, result.err.partition(" (")[0]) == (3, "above 5: billing orders-0")


async def test_the_doctor_goes_on_to_its_end(run: Run) -> None:
    assert (await run("doctor", "no-such-topic")).code == 3


async def test_a_deletion_tells_the_way_back(run: Run, cluster: Cluster) -> None:
    result = await run("groups", "delete", "billing", "--execute")
    assert cluster.committed("billing") == {}
    assert result.code == 0
    assert result.err.startswith("to undo this: aiokc reset-offsets billing --from-file")


async def test_a_watch_ends(run: Run) -> None:
    """It would go on for ever."""
    assert await run("lag", "--watch", "100ms") == (0, "", "")


async def test_a_watch_ends_with_what_it_finds(run: Run) -> None:
    assert (await run("lag", "--watch", "100ms", "--fail-above", "5")).code == 3


async def test_rows_reach_a_reader(cluster: Cluster) -> None:
    """The same without a closed pipe."""
    result = await aiokc("lag", "billing", "--json", "--fail-above", "5", bootstrap=cluster.bootstrap)
    assert (result.code, [json.loads(line)["lag"] for line in result.out.splitlines()]) == (3, [6, 0])
