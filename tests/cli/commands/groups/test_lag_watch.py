"""``aiokc lag --watch``: as lines in virtual time, and as a live view on a terminal."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from aiokc import ErrorCode
from aiokc.cli.commands.groups.lag import _interval_ms, _patience
from aiokc.cli.context import Context
from aiokc.cli.lag.display import PlainDisplay, RichDisplay, display_for
from aiokc.cli.parser import parse
from aiokc.cli.system import System
from aiokc.testing import Cluster
from aiokc.testing.brokers.api_keys import ApiKey
from aiokc.testing.brokers.exchange import Exchange
from aiokc.testing.faults import drop
from tests.cli.running import Result, Stream, aiokc, system_of
from tests.cli.screens import Screens, TerminalStream
from tests.client.virtually import virtually

from .running_groups import commit, csv_rows, filled


class VirtualSystem(System):
    """A system whose clock is the loop's."""

    def now(self) -> float:
        return 1_800_000_000 + asyncio.get_running_loop().time()


def piped(cluster: Cluster) -> VirtualSystem:
    """A system whose stdout is a pipe."""
    return VirtualSystem(Stream(), Stream(), Stream(), {"AIOKC_BOOTSTRAP_SERVERS": cluster.bootstrap, "HOME": "/none"})


def on_terminal(cluster: Cluster, columns: int = 100, lines: int = 12, **environ: str) -> VirtualSystem:
    """A system with a terminal of this size."""
    size = {"COLUMNS": str(columns), "LINES": str(lines)}
    variables = {"AIOKC_BOOTSTRAP_SERVERS": cluster.bootstrap, "HOME": "/none", **size, **environ}
    return VirtualSystem(Stream(), TerminalStream(columns, lines), Stream(is_terminal=True), variables)


@asynccontextmanager
async def watching(system: System, *words: str) -> AsyncIterator[asyncio.Task[Result]]:
    """Run ``aiokc lag`` beside the block; Ctrl-C ends it with the block."""
    task = asyncio.create_task(aiokc("lag", *words, system=system))
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.exception() is None


def text_of(stream: Any) -> str:
    assert isinstance(stream, Stream)
    return stream.text


def screens_of(system: System) -> Screens:
    assert isinstance(system.stdout, TerminalStream)
    return system.stdout.screens


async def drain(cluster: Cluster, group: str = "billing", ticks: int = 5) -> None:
    """Commit ten records more every two seconds."""
    for tick in range(1, ticks + 1):
        await asyncio.sleep(2)
        await commit(cluster, group, "t", 10 * tick)


def test_each_tick_writes_its_rows() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 100)
        await commit(cluster, "billing", "t", 0)
        system = piped(cluster)
        async with watching(system, "billing", "--watch", "--json"):
            await asyncio.sleep(1)
            await drain(cluster)
        rows = [json.loads(line) for line in text_of(system.stdout).splitlines()]
        assert [row["lag"] for row in rows] == [100, 100, 90, 80, 70, 60]
        times = [row["time_ms"] for row in rows]
        assert all(1900 <= later - earlier <= 2200 for earlier, later in pairwise(times))
        assert (rows[0]["in_per_second"], rows[0]["out_per_second"], rows[0]["eta_ms"]) == (None, None, None)
        assert rows[-1]["in_per_second"] == 0
        assert rows[-1]["out_per_second"] == pytest.approx(4, rel=0.1)  # 40 in ten seconds
        assert rows[-1]["eta_ms"] == pytest.approx(15_000, rel=0.1)
        assert text_of(system.stderr) == ""

    virtually(story, brokers=1)


def test_csv_has_one_heading() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 7, 8)
        await commit(cluster, "billing", "t", 0, 0)
        system = piped(cluster)
        async with watching(system, "--watch", "1s", "--csv", "--total"):
            await asyncio.sleep(3.5)
        rows = csv_rows(text_of(system.stdout))
        assert [(row["group"], row["partitions"], row["lag"]) for row in rows] == [("billing", "2", "15")] * 4

    virtually(story, brokers=1)


def test_csv_has_its_heading_with_the_first_answer() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 7)
        await commit(cluster, "billing", "t", 0)
        asked = 0

        def is_after_the_start(exchange: Exchange) -> bool:
            nonlocal asked
            asked += 1
            return asked > 1

        cluster.intercept(ApiKey.METADATA, drop(), where=is_after_the_start)
        system = piped(cluster)
        async with watching(system, "--watch", "1s", "--csv"):
            await asyncio.sleep(10)
            assert "no answer yet" in text_of(system.stderr)
            cluster.heal()
            await asyncio.sleep(10)
        rows = csv_rows(text_of(system.stdout))
        assert len(rows) > 1
        assert {(row["group"], row["lag"]) for row in rows} == {("billing", "7")}

    virtually(story, brokers=1)


def test_an_offset_above_the_end_of_a_log_that_grows_is_told_once() -> None:
    async def story(cluster: Cluster) -> None:
        await commit(cluster, "billing", "t", 5_000)
        system = piped(cluster)
        async with watching(system, "billing", "--watch", "1s", "--json"):
            for _ in range(4):
                filled(cluster, "t", 7)
                await asyncio.sleep(1)
        ends = [json.loads(line)["end"] for line in text_of(system.stdout).splitlines()]
        assert len(set(ends)) > 1
        (line,) = text_of(system.stderr).splitlines()
        assert line.startswith("warning: group 'billing', t-0: what the group has committed is above the log's end")

    virtually(story, brokers=1)


def test_a_table_in_a_pipe() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 7)
        await commit(cluster, "billing", "t", 0)
        system = piped(cluster)
        async with watching(system, "--watch", "billing"):  # the interval left out, the group is no time
            await asyncio.sleep(3)
        out = text_of(system.stdout)
        assert "\x1b" not in out
        assert len(out.splitlines()) == 4
        assert out.splitlines()[0].split() == [
            *("TIME", "GROUP", "TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "LAG-TIME", "MEMBER"),
            *("IN/s", "OUT/s", "ETA"),
        ]
        assert out.splitlines()[3].split()[-3:] == ["0.0", "0.0", "never"]

    virtually(story, brokers=1)


def test_it_ends_where_a_row_is_above_the_limit() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 5)
        await commit(cluster, "billing", "t", 0)
        system = piped(cluster)
        async with watching(system, "--watch", "--json", "--fail-above", "9") as task:
            await asyncio.sleep(5)
            assert not task.done()
            filled(cluster, "t", 5)
            await asyncio.sleep(2)
            assert task.done()
            assert task.result().code == 3
        assert "above 9: billing t-0 (10 records" in text_of(system.stderr)

    virtually(story, brokers=1)


def test_a_broker_that_goes_away_and_returns() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 5)
        await commit(cluster, "billing", "t", 0)
        system = piped(cluster)
        async with watching(system, "--watch", "--json", "--timeout", "3s"):
            await asyncio.sleep(5)
            cluster.take_down(1)
            await asyncio.sleep(60)
            before = len(text_of(system.stdout).splitlines())
            cluster.bring_up(1)
            await asyncio.sleep(20)
            assert len(text_of(system.stdout).splitlines()) >= before + 3
        warning, well = text_of(system.stderr).splitlines()  # once, and not at each tick
        assert warning.startswith("warning: no answer for ")
        assert well == "the cluster answers again"

    virtually(story, brokers=1)


@pytest.mark.parametrize(
    ("words", "variables", "seconds"),
    [
        ("--watch", {}, 5),
        ("--watch 10s", {}, 20),
        ("--watch 10s --timeout 3s", {}, 3),
        ("--watch -X default.api.timeout.ms=60000", {}, 60),
        ("--watch", {"AIOKC_DEFAULT_API_TIMEOUT_MS": "60000"}, 60),
        ("billing", {}, 30),
    ],
)
def test_how_long_a_look_may_take(words: str, variables: dict[str, str], seconds: int) -> None:
    _, args = parse(["lag", *words.split()])
    context = Context(args, system_of(environ=variables))
    options = {"default_api_timeout_ms": context.timeout_ms, **_patience(context, _interval_ms(context))}
    assert options == {"default_api_timeout_ms": seconds * 1000}


@pytest.fixture(params=[PlainDisplay, RichDisplay])
def display(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., object]:
    """Each kind of display in turn."""
    kind: Callable[..., object] = request.param
    monkeypatch.setattr("aiokc.cli.commands.groups.lag_watch.display_for", kind)
    return kind


@pytest.mark.usefixtures("display")
def test_a_live_view() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 100, 40)
        await commit(cluster, "billing", "t", 0, 40)
        system = on_terminal(cluster)
        screens = screens_of(system)
        async with watching(system, "billing", "--watch"):
            await asyncio.sleep(1)
            await drain(cluster)
            during = screens.is_second, screens.hides_cursor
            title, total, heading, first, second, foot = screens.second.rows
            assert title.startswith("aiokc lag billing")
            assert title.endswith("every 2 s")
            assert total.startswith("LAG 60  IN/s 0  OUT/s ")
            assert heading.split()[:2] == ["TOPIC", "PARTITION"]
            assert first.split()[:5] == ["t", "0", "40", "100", "60"]
            assert second.split()[:5] == ["t", "1", "40", "40", "0"]
            assert foot == "Ctrl-C ends"
            assert {"green", "blue"} <= screens.second.colors(3) | screens.second.colors(4)
            assert screens.first.rows == [""]
        afterwards = screens.is_second, screens.hides_cursor
        assert (during, afterwards) == ((True, True), (False, False))  # as it was, with the last picture
        assert [row.split()[:2] for row in screens.first.rows[2:]] == [["TOPIC", "PARTITION"], ["t", "0"], ["t", "1"]]

    virtually(story, brokers=1)


@pytest.mark.usefixtures("display")
def test_a_live_view_does_not_flicker() -> None:
    """Whatever part of a picture has arrived: what was seen is seen, until something else is in its place."""

    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 100, 40)
        await commit(cluster, "billing", "t", 0, 0)
        system = on_terminal(cluster)
        screens = screens_of(system)
        async with watching(system, "billing", "--watch", "500ms"):
            await asyncio.sleep(2)
            sights: list[list[str]] = []
            assert isinstance(system.stdout, TerminalStream)
            system.stdout.seen = lambda: sights.append(screens.second.rows if screens.is_second else [])
            await asyncio.sleep(5)
            system.stdout.seen = lambda: None
        assert len(sights) >= 20
        assert {tuple(line.split()[:1] and line.split()[0] for line in sight) for sight in sights} == {
            ("aiokc", "LAG", "TOPIC", "t", "t", "Ctrl-C")
        }

    virtually(story, brokers=1)


@pytest.mark.usefixtures("display")
def test_a_live_view_of_forty_columns_and_a_resize() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 100, 40)
        await commit(cluster, "billing", "t", 0, 0)
        system = on_terminal(cluster, columns=40, lines=10)
        screens = screens_of(system)
        async with watching(system, "billing", "--watch"):
            await asyncio.sleep(3)
            narrow = screens.second.rows
            assert narrow[2].split() == ["TOPIC", "PARTITION", "LAG", "OUT/s", "ETA"]
            assert len(narrow) == 6
            screens.resize(120, 5)
            system.environ.update(COLUMNS="120", LINES="5")  # type: ignore[attr-defined]
            await asyncio.sleep(2)
            wide = screens.second.rows
            assert wide[2].split()[:4] == ["TOPIC", "PARTITION", "COMMITTED", "END"]
            assert wide[3].split()[:2] == ["t", "0"]
            assert wide[4:] == ["Ctrl-C ends"] or wide[4].startswith("1 more")

    virtually(story, brokers=1)


@pytest.mark.usefixtures("display")
def test_a_live_view_without_colours() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 100)
        await commit(cluster, "billing", "t", 0)
        system = on_terminal(cluster, NO_COLOR="1")
        screens = screens_of(system)
        async with watching(system, "--watch"):
            await asyncio.sleep(3)
            assert set().union(*(screens.second.colors(line) for line in range(6))) == {"default"}

    virtually(story, brokers=1)


@pytest.mark.usefixtures("display")
def test_a_live_view_of_a_broker_that_goes_away_and_returns() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 100)
        await commit(cluster, "billing", "t", 0)
        system = on_terminal(cluster)
        screens = screens_of(system)
        async with watching(system, "--watch"):
            await asyncio.sleep(3)
            cluster.take_down(1)
            await asyncio.sleep(30)
            *_, row, foot = screens.second.rows
            assert row.split()[:2] == ["t", "0"]  # what was known last
            assert re.match(r"no answer for (2[5-9]|3\d)\.\d s: ", foot)
            assert "red" in screens.second.colors(len(screens.second.rows) - 1)
            cluster.bring_up(1)
            await asyncio.sleep(20)
            assert screens.second.rows[-1] == "Ctrl-C ends"
        assert text_of(system.stderr) == ""  # nothing was written across the picture

    virtually(story, brokers=1)


@pytest.mark.usefixtures("display")
def test_a_live_view_tells_of_a_group_that_is_not_there() -> None:
    async def story(cluster: Cluster) -> None:
        system = on_terminal(cluster)
        screens = screens_of(system)
        async with watching(system, "billing", "--watch"):
            await asyncio.sleep(1)
            assert screens.second.rows[-1] == "group 'billing': there is no such group"
            filled(cluster, "t", 100)
            await commit(cluster, "billing", "t", 0)
            await asyncio.sleep(3)
            assert screens.second.rows[3].split()[:2] == ["t", "0"]

    virtually(story, brokers=1)


def test_a_dumb_terminal_gets_lines() -> None:
    async def story(cluster: Cluster) -> None:
        filled(cluster, "t", 100)
        await commit(cluster, "billing", "t", 0)
        system = on_terminal(cluster, columns=200, TERM="dumb")
        async with watching(system, "--watch"):
            await asyncio.sleep(3)
        assert "\x1b" not in text_of(system.stdout)

    virtually(story, brokers=1)


def test_a_defect_is_no_missing_answer() -> None:
    """What is not Kafka's or the network's fault ends the command, with the terminal restored."""

    async def story(cluster: Cluster) -> None:
        system = on_terminal(cluster)
        cluster.intercept(ApiKey.LIST_GROUPS, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        async with watching(system, "--watch"):
            await asyncio.sleep(3)
            assert screens_of(system).is_second  # an answer all the same
        assert not screens_of(system).is_second

    virtually(story, brokers=1)


def test_without_rich_the_plain_display_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    from aiokc.cli.output.terminal import Terminal

    system = System(Stream(), Stream(is_terminal=True), Stream(), {})
    assert isinstance(display_for(system, Terminal(system, "auto")), RichDisplay)
    for name in ("rich", "rich.console", "rich.live"):
        monkeypatch.setitem(__import__("sys").modules, name, None)
    assert isinstance(display_for(system, Terminal(system, "auto")), PlainDisplay)
