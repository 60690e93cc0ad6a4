"""docs/testing.md: its tests pass under pytest, and each of its faults can be requested of a cluster that is in use."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import pytest

from aiokc import Consumer
from aiokc.testing import ApiKey, Certificates, Cluster, ErrorCode, faults
from tests.suite.child_process import run_to_end
from tests.suite.unused_faults import forget

from .examples import ROOT, Example, examples, tables

EXAMPLES = examples("docs/testing.md")
(FAULTS,) = tables("docs/testing.md", "A fault, in one line")
(GROUP_FAULTS,) = tables("docs/testing.md", "Groups of the consumer protocol")
_, LOGIN_FAULTS = tables("docs/testing.md", "TLS, SASL and ACLs")


@pytest.mark.timeout(180)
def test_its_tests_pass(tmp_path: Path) -> None:
    """Each in a file of its own, in one run; an example of a fixture becomes a conftest.py beside it."""
    for number, example in enumerate(EXAMPLES):
        folder = tmp_path / f"example_{number}"
        folder.mkdir()
        fixtures, tests = split(example)
        (folder / "conftest.py").write_text(fixtures)
        (folder / f"test_example_{number}.py").write_text(tests)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    done = run_to_end(
        [sys.executable, "-m", "pytest", "-q", "-W", "error", "-p", "no:cacheprovider", tmp_path],
        seconds=150,  # four of CPU time, where no other program wants some
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(example.code.count('def test_') for example in EXAMPLES)} passed" in done.stdout


def split(example: Example) -> tuple[str, str]:
    """Fixtures are for conftest.py, as the page says."""
    fixtures, found, tests = example.code.partition("\n\ndef test_")
    return (fixtures, found + tests) if "@pytest.fixture" in fixtures else ("", example.code)


@pytest.mark.parametrize(
    ("line", "protocol"),
    [(line, protocol) for of, protocol in ((FAULTS, "classic"), (GROUP_FAULTS, "consumer")) for _, line in of],
)
async def test_a_fault(line: str, protocol: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It can be requested as written, of a cluster with a member at work, and nothing breaks inside the brokers."""
    async with Cluster(brokers=3, topics={"events": 1}) as cluster:
        cluster.append("events", b"0")
        cluster.append("events", b"1")
        options = {"bootstrap_servers": cluster.bootstrap, "auto_offset_reset": "earliest", "group_protocol": protocol}
        async with Consumer("events", group_id="billing", **options) as consumer:  # type: ignore[arg-type]
            async with asyncio.timeout(20):
                await consumer.getone()
            if "bring_up" in line:
                cluster.take_down(1)
            exec(line, {"cluster": cluster, "faults": faults, "ApiKey": ApiKey, "ErrorCode": ErrorCode})
            cluster.heal()
            forget()  # it may not have happened yet: tests/testing checks what each fault does


@pytest.mark.parametrize("line", [line for _, line in LOGIN_FAULTS])
async def test_a_fault_of_logins(line: str) -> None:
    """It can be requested as written, of a cluster with a member that has logged in, and nothing breaks inside."""
    certificates = Certificates()
    async with Cluster(topics={"events": 1}, tls=certificates, sasl={"alice": "a secret"}) as cluster:
        cluster.append("events", b"0")
        options = {
            "bootstrap_servers": cluster.bootstrap,
            "auto_offset_reset": "earliest",
            "security_protocol": "SASL_SSL",
            "ssl_truststore_certificates": certificates.ca_pem,
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": "alice",
            "sasl_plain_password": "a secret",
        }
        async with Consumer("events", group_id="billing", **options) as consumer:  # type: ignore[arg-type]
            async with asyncio.timeout(20):
                await consumer.getone()
            exec(line, {"cluster": cluster, "certificates": certificates, "ErrorCode": ErrorCode})
            cluster.heal()


def test_no_fault_is_missing() -> None:
    lines = "\n".join(line for _, line in FAULTS)
    ways = [name for name, value in vars(faults).items() if getattr(value, "__module__", "") == faults.__name__]
    functions = {name for name in ways if name[0].islower() and name != "api_key_of"}
    assert {name for name in functions if f"faults.{name}(" not in lines} == set()


def test_all_that_a_cluster_can_do_is_on_the_page() -> None:
    text = (ROOT / "docs/testing.md").read_text()
    names = {name for name in dir(Cluster) if not name.startswith("_") and name not in ("start", "stop", "host")}
    assert {name for name in names if f"{name}(" not in text and f".{name}" not in text} == set()
