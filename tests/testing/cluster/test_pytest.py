"""The fixtures, in a test suite of their own, under each plugin for async tests."""

from __future__ import annotations

import pytest

pytest_plugins = ("pytester",)

CONFTEST = """
import pytest

@pytest.fixture(scope="session")
def kafka_cluster_options():
    return {"brokers": 2, "topics": {"events": 1}}
"""

SETTINGS = "[pytest]\nasyncio_mode = strict\nasyncio_default_fixture_loop_scope = function\n"

TESTS = """
import aiokc
import pytest
from aiokc.error_codes import ErrorCode
from aiokc.testing.faults import Hold
from aiokc.wire.messages.fetch import FetchRequest

@pytest.mark.%s
@pytest.mark.parametrize("run", [1, 2])
async def test_a_handler(kafka_cluster, run):
    assert kafka_cluster.end_offset("events") == 0
    kafka_cluster.append("events", b"a record")
    hold = Hold()
    held = kafka_cluster.intercept(FetchRequest, hold)
    partition = aiokc.TopicPartition("events", 0)
    async with aiokc.Consumer(bootstrap_servers=kafka_cluster.bootstrap) as consumer:
        consumer.assign([partition])
        consumer.seek(partition, 0)
        await held.caught()
        await hold.arrived()
        hold.release()
        (record,) = (await consumer.getmany())[partition]
    assert record.value == b"a record"

@pytest.mark.parametrize("run", [1, 2])
def test_of_all(shared_kafka_cluster, run):
    assert shared_kafka_cluster.append("events", b"x") == run - 1
"""


@pytest.mark.parametrize("plugin", ["asyncio", "anyio"])
def test_the_fixtures(pytester: pytest.Pytester, plugin: str) -> None:
    pytester.makeconftest(CONFTEST)
    pytester.makepyfile(TESTS % plugin)
    pytester.makeini(SETTINGS)
    result = pytester.runpytest_subprocess("-W", "error", "-k", "not trio")  # found by its entry point
    result.assert_outcomes(passed=4)


def test_options_that_leave_out_the_brokers(pytester: pytest.Pytester) -> None:
    pytester.makeconftest(CONFTEST.replace('"brokers": 2, ', ""))
    pytester.makepyfile(
        """
        def test_of_its_own(kafka_cluster):
            before = kafka_cluster.leader("events")
            assert kafka_cluster.move_leader("events") != before
            assert len(kafka_cluster.bootstrap.split(",")) == 3

        def test_of_all(shared_kafka_cluster):
            assert len(shared_kafka_cluster.bootstrap.split(",")) == 3
        """
    )
    pytester.makeini(SETTINGS)
    pytester.runpytest_subprocess("-W", "error").assert_outcomes(passed=2)
