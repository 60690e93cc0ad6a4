"""The requests that a consumer sends at its start are compiled by then, so that none of them holds the event loop."""

from __future__ import annotations

import subprocess
import sys

_KINDS = ("Request", "Response")
_PROGRAM = """
from aiokc import Consumer
from aiokc.wire import compile_read, compile_write
print(*(f"{cls.__name__}:{version}" for cls, version, _ in [*compile_read._readers, *compile_write._writers]))
"""


def test_what_a_start_needs_is_compiled_with_the_import() -> None:
    done = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=50, check=True)
    apis = [
        *("ApiVersions:3", "Metadata:13", "FindCoordinator:3", "JoinGroup:9", "SyncGroup:5", "Heartbeat:4"),
        *("OffsetFetch:10", "OffsetCommit:10", "ListOffsets:11", "Fetch:18"),
    ]
    names = [f"{name}{kind}:{version}" for name, version in (api.split(":") for api in apis) for kind in _KINDS]
    assert set(names) - set(done.stdout.split()) == set()
