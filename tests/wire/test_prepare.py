"""What consumers and producers send at their start is compiled by then, so that none of it holds the event loop."""

from __future__ import annotations

import subprocess
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec

import pytest

from aiokc.testing import Cluster

pytestmark = pytest.mark.timeout(60)

ZSTD = "compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd"
_KINDS = ("Request", "Response")
_PROGRAM = """
from aiokc import Consumer
from aiokc.wire import compile_read, compile_write
print(*(f"{cls.__name__}:{version}" for cls, version, _ in [*compile_read._readers, *compile_write._writers]))
"""
_CLIENTS = """
import asyncio, sys
from aiokc import Consumer, Producer, ProducerRecord, TopicPartition
from aiokc.wire import compile_read, compile_write

def compiled():
    caches = compile_read._readers, compile_read._sliced, compile_write._writers
    return {(place, cls.__name__, version) for place, cache in enumerate(caches) for cls, version, _ in cache}

async def main():
    before = compiled()
    async with Producer(bootstrap_servers=sys.argv[1]) as producer:
        await producer.send_many("t", [ProducerRecord("t", bytes(100), partition=n % 2) for n in range(2_000)])
        await producer.flush()
    partitions = [TopicPartition("t", 0), TopicPartition("t", 1)]
    options = {"auto_offset_reset": "earliest", "enable_auto_commit": False}
    async with Consumer(bootstrap_servers=sys.argv[1], **options) as consumer:
        consumer.assign(partitions)
        seen = 0
        while seen < 2_000:
            seen += sum(map(len, (await consumer.getmany()).values()))
    print(len(before) > 20, sorted(compiled() - before))

asyncio.run(main())
"""


def test_what_a_start_needs_is_compiled_with_the_import() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=200, check=True)
    apis = [
        *("ApiVersions:3", "Metadata:13", "FindCoordinator:3", "JoinGroup:9", "SyncGroup:5", "Heartbeat:4"),
        *("OffsetFetch:10", "OffsetCommit:10", "ListOffsets:11", "Fetch:18"),
    ]
    names = [f"{name}{kind}:{version}" for name, version in (api.split(":") for api in apis) for kind in _KINDS]
    assert set(names) - set(done.stdout.split()) == set()


async def test_no_client_compiles_anything_while_its_first_records_are_written_and_read() -> None:
    """A long Fetch response is read in slices, by a reader of its own; a lone batch knows the answer to expect."""
    async with Cluster(topics={"t": 2}) as cluster:
        command = sys.executable, "-c", _CLIENTS, cluster.bootstrap
        process = await create_subprocess_exec(*command, stdout=PIPE, stderr=PIPE)
        out, err = await process.communicate()
    assert (out.decode(), err.decode()) == ("True []\n", "")


@pytest.mark.parametrize(("codec", "packages"), [("none", []), ("lz4", ["cramjam"]), ("zstd", [ZSTD])])
def test_the_package_that_compresses_is_imported_with_the_producer(codec: str, packages: list[str]) -> None:
    program = f"""
import sys
from aiokc import Producer
Producer(compression_type={codec!r})
print([name for name in ("cramjam", {ZSTD!r}) if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=200, check=True)
    assert done.stdout == f"{packages}\n"
