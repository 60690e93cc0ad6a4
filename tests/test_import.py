"""The modules that ``import aiokc`` loads: it must stay quick for programs that use little of it."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import get_type_hints

import pytest

import aiokc
from aiokc.testing import Cluster

# Each takes long, and few clients need it: it is imported where it is used, off the event loop where that is possible.
LATER = {
    *("botocore", "cramjam", "cryptography", "gssapi", "pyarrow", "trustme", "uvloop"),
    *("http.client", "unittest", "urllib.request", "xml"),
    *("opentelemetry", "prometheus_client", "rich"),
    *("aiokc.testing", "aiokc.__main__", "aiokc.cli", "aiokc.contrib"),
}
# What clients with TLS or SASL need comes with the import, too. If it came when the client is made, that would hold the
# event loop for 8 ms: applications make their clients there. This may come later: the code of one source of tokens.
OF_A_SOURCE = "aiokc.net.credentials.tokens."

# A consumer's whole life in a process of its own: the cluster is elsewhere, so that nothing of it is loaded here.
LIFE = """
import asyncio, sys
from aiokc import Consumer

async def main():
    before = set(sys.modules)
    options = {"group_id": "billing", "auto_offset_reset": "earliest"}
    async with Consumer("events", bootstrap_servers=sys.argv[1], **options) as consumer:
        await consumer.getmany()
        await consumer.getone()
        async for record in consumer:
            break
        await consumer.getmany_columns()
        await consumer.commit()
        consumer.health(), consumer.metrics()
    print(*set(sys.modules) - before, sep="\\n")

asyncio.run(main())
"""

# What the sources of tokens other than that of the options need is imported for those only: the application makes its
# client in the event loop, which all of it together would hold for some 20 ms.
OF_TOKENS = {"json", *(f"{OF_A_SOURCE}{name}" for name in ("aws_credentials", "oidc", "https_post"))}
A_CLIENT = """
import sys
from aiokc import Client, Consumer

class Tokens:
    def token(self) -> str: ...

mechanism, *source = sys.argv[1:]
options = {"sasl_plain_username": "billing", "sasl_plain_password": "-"}
if mechanism == "OAUTHBEARER":
    options = {"sasl_oauthbearer_token_endpoint_url": "file:///token"}
    if source == ["provider"]:
        options = {"sasl_oauth_token_provider": Tokens()}
before = set(sys.modules)
Client(bootstrap_servers="localhost:9092", sasl_mechanism=mechanism, **options)
Consumer(bootstrap_servers="localhost:9092", sasl_mechanism=mechanism, **options)
print(*set(sys.modules) - before, sep="\\n")
"""


def loaded(statement: str) -> set[str]:
    """The modules that a bare interpreter has after the statement."""
    code = f"import sys\n{statement}\nprint(*sys.modules, sep='\\n')"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=200, check=True)
    return set(ran.stdout.split())


def of_aiokc(modules: set[str]) -> set[str]:
    return {name for name in modules if name.partition(".")[0] == "aiokc"}


def test_the_package_alone_is_next_to_nothing() -> None:
    modules = loaded("import aiokc")
    assert of_aiokc(modules) == {"aiokc"}
    assert "asyncio" not in modules


def test_a_value_loads_no_client() -> None:
    modules = loaded("from aiokc import TopicPartition, KafkaError, ConsumerConfig")
    assert not {name for name in modules if name.startswith(("aiokc.client", "aiokc.net", "aiokc.core", "aiokc.wire"))}
    assert not modules & {"asyncio", "anyio", "crc32c"}


@pytest.mark.parametrize("name", ["Consumer", "Client"])
def test_a_client_loads_nothing_that_few_clients_need(name: str) -> None:
    assert LATER & loaded(f"from aiokc import {name}") == set()


def test_a_client_without_a_group_loads_nothing_of_a_member() -> None:
    modules = loaded("from aiokc import Client")
    groups = ("aiokc.client.group.classic", "aiokc.core.group.machine", "aiokc.core.assignors", "aiokc.client.consumer")
    assert not {name for name in modules if name.startswith(groups)}


def test_all_names_load_with_none_of_what_few_need() -> None:
    modules = loaded("from aiokc import *; assert Consumer and Client and TopicPartition")
    assert LATER & modules == set()


async def test_a_consumer_imports_nothing_while_the_event_loop_runs() -> None:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("events")
        cluster.append("events", *[b"x"] * 3000)
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", LIFE, cluster.bootstrap), stdout=asyncio.subprocess.PIPE
        )
        async with asyncio.timeout(200):
            said, _ = await process.communicate()
        assert process.returncode == 0
    assert set(said.decode().split()) <= {"encodings.utf_16_be"}  # half a millisecond, for the names of topics


# What type checkers read, what is public, and where it comes from at run time: one list, written three times.


def for_type_checkers() -> Iterator[tuple[str, str]]:
    tree = ast.parse(Path(aiokc.__file__).read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If))
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            yield alias.name, f".{node.module}" if node.module else "."


def test_type_checkers_see_what_is_there_at_run_time() -> None:
    seen = dict(for_type_checkers())
    modules = {name for name, module in seen.items() if module == "."}
    assert modules == aiokc._PUBLIC_MODULES
    assert {name: module for name, module in seen.items() if name not in modules} == aiokc._MODULES
    assert sorted(aiokc._MODULES) == sorted(aiokc.__all__)


def test_annotations_of_public_names_can_be_read_at_run_time() -> None:
    """As libraries read them that inject dependencies. What dataclasses make in a subclass lacks its base's names."""
    for name in aiokc.__all__:
        public = getattr(aiokc, name)
        if not inspect.isclass(public):
            continue
        get_type_hints(public)
        for method in (name for name in dir(public) if not name.startswith("_")):
            if inspect.isroutine(member := getattr(public, method)) and hasattr(member, "__annotations__"):
                get_type_hints(member)


@pytest.mark.parametrize("name", aiokc.__all__)
def test_a_name_is_what_its_module_has(name: str) -> None:
    module = importlib.import_module(aiokc._MODULES[name], "aiokc")
    assert getattr(aiokc, name) is getattr(module, name)
    assert name in dir(aiokc)


def test_public_modules_need_no_import_of_their_own() -> None:
    code = (
        "import aiokc\nassert aiokc.errors.KafkaError is aiokc.KafkaError\nassert aiokc.records.NATIVE in (True, False)"
    )
    subprocess.run([sys.executable, "-c", code], timeout=200, check=True)


def test_the_extension_can_be_the_first_import() -> None:
    pytest.importorskip("aiokc._native.extension", reason="aiokc._native.extension is not built")
    assert "aiokc.records" not in loaded("import aiokc._native.extension")


def test_a_name_that_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'aiokc' has no attribute 'Sender'"):
        getattr(aiokc, "Sender")  # noqa: B009 (mypy knows that it is not there)
    with pytest.raises(ImportError, match="cannot import name 'Sender'"):
        exec("from aiokc import Sender")


@pytest.mark.parametrize(
    "login", [("PLAIN",), ("SCRAM-SHA-512",), ("OAUTHBEARER", "provider"), ("OAUTHBEARER", "file")], ids=" ".join
)
def test_a_client_that_logs_in_imports_what_its_source_of_tokens_needs_only(login: tuple[str, ...]) -> None:
    command = [sys.executable, "-c", A_CLIENT, *login]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
    came = set(ran.stdout.split())
    assert {name for name in came if not name.startswith(OF_A_SOURCE)} == set()
    assert came & OF_TOKENS == set()
    assert bool(came) == (login[0] == "OAUTHBEARER")
