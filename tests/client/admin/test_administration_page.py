"""docs/administration.md: its programs run, and its tables have every target, reason and call that there is."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from aiokc import Client, TopicPartition
from aiokc.admin import EARLIEST, ResetReason, ResetTarget
from aiokc.client.admin.cluster_calls import ClusterCalls
from aiokc.client.admin.group_calls import GroupCalls
from aiokc.testing import Cluster
from tests.docs.examples import ROOT, Example, examples, tables

PAGE = (ROOT / "docs" / "administration.md").read_text()
EXAMPLES = examples("docs/administration.md")
TARGETS, REASONS = tables("docs/administration.md", "Resetting offsets")


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    """Some records, and a group that has read some of them."""

    async def fill(bootstrap: str) -> None:
        async with Client(bootstrap_servers=bootstrap) as client:
            await client.commit("billing", {TopicPartition("events", 0): 5, TopicPartition("events", 1): 5})
            await client.list_offsets({TopicPartition("events", 0): EARLIEST})

    with Cluster(topics={"events": 2}).in_thread() as running:
        for partition in (0, 1):
            running.append("events", *(b"%d" % number for number in range(10)), partition=partition)
        asyncio.run(fill(running.bootstrap))
        yield running


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example.name)
def test_a_program_runs(
    example: Example,
    cluster: Cluster,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    code = example.code.replace("localhost:9092", cluster.bootstrap)
    exec(compile(code, example.name, "exec"), {"__name__": "__main__"})
    assert "billing" in (said := capsys.readouterr().out) or "events" in said


def test_it_has_programs() -> None:
    assert len(EXAMPLES) == 3


def test_targets_and_reasons_are_those_that_there_are() -> None:
    named = {name for row in TARGETS for name in re.findall(r"\b([A-Z]\w+)[(.]", row[0])}
    assert named == {kind.__name__ for kind in get_args(ResetTarget)}
    assert [row[0] for row in REASONS] == [reason.value for reason in ResetReason if reason.value]


def test_every_call_is_there() -> None:
    calls = [name for cls in (ClusterCalls, GroupCalls) for name in vars(cls) if not name.startswith("_")]
    assert len(calls) == 14
    missing = [name for name in calls if f"`{name}" not in PAGE]
    assert missing == []
