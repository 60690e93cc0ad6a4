"""A cluster that does not take the credentials, or goes away meanwhile: exit code 5, and no secret in any word."""

from __future__ import annotations

import pytest

from aiokc.testing import Cluster, faults
from aiokc.wire.messages.discovery import MetadataRequest
from tests.cli.running import aiokc
from tests.client.virtually import virtually

PASSWORD = "correct-horse"
LOGIN = (
    *("-X", "security.protocol=SASL_PLAINTEXT", "-X", "sasl.mechanism=SCRAM-SHA-256", "-X", "sasl.username=me"),
    *("-X", "sasl.password={env=WORD}", "--timeout", "5s"),
)


@pytest.mark.parametrize("verbose", [[], ["-vv"]])
async def test_a_wrong_password(verbose: list[str]) -> None:
    async with Cluster(topics={"orders": 1}, sasl={"me": PASSWORD}) as cluster:
        where = {"bootstrap": cluster.bootstrap}
        result = await aiokc("topics", *LOGIN, "--csv", **where, environ={"WORD": PASSWORD})  # type: ignore[arg-type]
        assert (result.code, result.out) == (0, "topic,partitions,replicas,records\norders,1,1,0\n")
        result = await aiokc("topics", *LOGIN, *verbose, **where, environ={"WORD": "wrong-donkey"})  # type: ignore[arg-type]
        assert (result.code, result.out) == (5, "")
        assert "SCRAM-SHA-256" in result.err
        assert "wrong-donkey" not in result.err


async def test_credentials_in_the_clear_are_refused() -> None:
    result = await aiokc("topics", *LOGIN, "-X", "sasl.mechanism=PLAIN", environ={"WORD": PASSWORD})
    assert (result.code, result.out) == (2, "")
    assert "allow_plaintext_credentials" in result.err


def test_a_broker_that_does_not_answer() -> None:
    async def story(cluster: Cluster) -> None:
        cluster.intercept(MetadataRequest, faults.drop())
        result = await aiokc("topics", "--timeout", "20s", bootstrap=cluster.bootstrap)
        assert (result.code, result.out) == (5, "")
        assert "Metadata" in result.err
        assert "Traceback" not in result.err

    virtually(story)


async def test_the_log_is_seen_with_verbose_only() -> None:
    async with Cluster(topics={"orders": 1}) as cluster:
        assert (await aiokc("topics", bootstrap=cluster.bootstrap)).err == ""
        assert (await aiokc("topics", "-vv", bootstrap=cluster.bootstrap)).err != ""
        assert (await aiokc("topics", bootstrap=cluster.bootstrap)).err == ""
