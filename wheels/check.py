"""What is run where a wheel was installed: it has the extension, of this very Python, and it reads records.

setuptools builds a wheel without the extension where that does not compile, and says little about it. So this looks.
"""

from __future__ import annotations

import asyncio
import json
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import aiokc
import aiokc._native.extension as extension
from aiokc import Consumer
from aiokc.records import NATIVE
from aiokc.testing import Cluster


async def read() -> list[bytes | None]:
    async with Cluster(brokers=1) as cluster:
        cluster.create_topic("events")
        cluster.append("events", b"ann", b"bob", codec=4)
        consumer = Consumer("events", bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        async with asyncio.timeout(60), consumer:
            return [(await consumer.getone()).value for _ in range(2)]


def main() -> None:
    assert NATIVE
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert Path(extension.__file__).name == f"extension{suffix}", extension.__file__
    assert asyncio.run(read()) == [b"ann", b"bob"]
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        assert not sys._is_gil_enabled(), "something has turned the GIL on"  # type: ignore[attr-defined]
    (document,) = Path(aiokc.__file__).parent.parent.glob("aiokc-*.dist-info/sboms/aiokc.cdx.json")
    assert json.loads(document.read_text())["bomFormat"] == "CycloneDX"
    print(f"aiokc {metadata.version('aiokc')}: {suffix.lstrip('.')}, reads records")


if __name__ == "__main__":
    main()
