"""Other clients' packages that tests compare with; without them those tests are skipped only under ``--without-peers``.

Builds of them for the newest Python appear later than aiokc has to work there: ``--without-peers`` runs the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

import pytest

#: What the option may leave out. Any other missing package is an error.
PEERS: Final = frozenset(
    {
        "aiokafka",
        "confluent_kafka",
        "duckdb",
        "importlinter",
        "kafka",
        "kio",
        "lz4",
        "pandas",
        "polars",
        "pyarrow",
        "pyspark",
        "rich",
        "snappy",
        "zstandard",
    }
)


class WithoutPeers(MetaPathFinder):
    """The last finder of modules: it skips the test, or the file of tests, that imports a peer."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name in PEERS:
            pytest.skip(f"without {name}", allow_module_level=True)
