"""``aiokc doctor``: what it prints, and its exit codes."""

from __future__ import annotations

import csv
import json

import pytest

from aiokc.testing import Cluster
from tests.cli.running import aiokc
from tests.net.scripted import dead_port, serving

SECRET = "correct-horse-battery-staple"


async def test_a_healthy_cluster_is_0() -> None:
    async with Cluster(2, topics={"orders": 2}) as cluster:
        cluster.append("orders", b"x")
        result = await aiokc("doctor", "orders", bootstrap=cluster.bootstrap)
        assert (result.code, result.err) == (0, "")
        assert result.out.endswith("\nNothing is wrong.\n")
        lines = [line for line in result.out.splitlines() if line and not line.startswith("Nothing")]
        assert {line.split()[0] for line in lines} == {"ok"}
        assert "topic 'orders': 2 partitions" in result.out


async def test_what_is_found_is_3() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        result = await aiokc("doctor", "ordres", bootstrap=cluster.bootstrap)
        assert result.code == 3
        assert "problem  topic 'ordres': The cluster has no topic 'ordres'" in result.out
        assert "         try: look at the spelling" in result.out
        assert result.out.splitlines()[-1].startswith("The first cause, at the step topic: ")
        result = await aiokc("doctor", "-g", "biling", bootstrap=cluster.bootstrap)
        assert result.code == 3
        assert result.out.endswith("It works, with 1 warning.\n")


async def test_wrong_options_are_2() -> None:
    result = await aiokc("doctor", "-X", "sasl_mechanism=SCRAM-SHA-256", "--json", bootstrap="127.0.0.1:1")
    assert result.code == 2
    (found,) = map(json.loads, result.out.splitlines())
    assert (found["step"], found["verdict"]) == ("config", "problem")
    result = await aiokc("doctor", "-X", "sasl_mechanism=SCRAM-SHA-256", bootstrap="127.0.0.1:1")
    assert (result.code, result.out) == (2, "")
    assert "sasl_plain_username" in result.err
    assert (await aiokc("doctor", "a", "b")).code == 2
    assert (await aiokc("doctor", "--nonsense")).code == 2


async def test_options_of_producers_are_not_the_doctors() -> None:
    async with Cluster() as cluster:
        options = {"AIOKC_LINGER_MS": "5", "AIOKC_CLIENT_RACK": "b"}
        result = await aiokc("doctor", bootstrap=cluster.bootstrap, environ=options)
        assert (result.code, result.err) == (0, "")
    result = await aiokc("doctor", "-X", "linger_ms=5", bootstrap="127.0.0.1:1")
    assert (result.code, result.out) == (2, "")
    assert "is not one of a Consumer," in result.err


async def test_a_cluster_that_is_not_reached_is_5() -> None:
    result = await aiokc("doctor", bootstrap=f"127.0.0.1:{dead_port()}")
    assert result.code == 5
    assert "refuses connections" in result.out
    variables = {
        "AIOKC_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        "AIOKC_SASL_MECHANISM": "SCRAM-SHA-256",
        "AIOKC_SASL_PLAIN_USERNAME": "alice",
        "AIOKC_SASL_PLAIN_PASSWORD": SECRET,
    }
    async with Cluster(sasl={"alice": "another"}) as cluster:
        result = await aiokc("doctor", "--json", bootstrap=cluster.bootstrap, environ=variables)
        assert result.code == 5
        assert json.loads(result.out.splitlines()[-1])["code"] == "authentication.refused"
        assert SECRET not in result.out + result.err


async def test_json_and_csv_have_all_findings() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        result = await aiokc("doctor", "orders", "--json", bootstrap=cluster.bootstrap)
        found = [json.loads(line) for line in result.out.splitlines()]
        assert {one["step"] for one in found} >= {"config", "dns", "tcp", "api_versions", "metadata", "topic", "fetch"}
        keys = ["step", "verdict", "code", "subject", "text", "advice", "elapsed_ms", "details"]
        assert all(list(one) == keys for one in found)
        result = await aiokc("doctor", "orders", "--csv", bootstrap=cluster.bootstrap)
        rows = list(csv.DictReader(result.out.splitlines()))
        assert [row["code"] for row in rows] == [one["code"] for one in found]


@pytest.mark.parametrize("columns", [40, 100])
async def test_lines_fit_the_terminal(columns: int) -> None:
    result = await aiokc("doctor", "--color", "never", bootstrap=f"127.0.0.1:{dead_port()}", columns=columns)
    assert all(len(line) <= columns for line in result.out.splitlines())
    result = await aiokc("doctor", bootstrap=f"127.0.0.1:{dead_port()}", columns=columns)
    assert "\x1b[31;1mproblem\x1b[0m" in result.out


async def test_what_a_hostile_server_sends_does_not_reach_the_terminal() -> None:
    async with serving(_escapes) as server:
        result = await aiokc("doctor", bootstrap=server.bootstrap, columns=80)
    assert result.code == 5
    assert "\x1b]0;" not in result.out


async def _escapes(peer: object) -> None:
    await peer.read(4)  # type: ignore[attr-defined]
    peer.send(b"\x1b]0;owned\x07\x1b[2J" * 4)  # type: ignore[attr-defined]


async def test_help_has_examples() -> None:
    result = await aiokc("doctor", "--help")
    assert result.code == 0
    assert "aiokc doctor orders -g billing" in result.out
