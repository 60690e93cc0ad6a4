"""Other people's packages that tests compare with, and what happens to those tests where they are not installed.

They are built for the newest Python later than aiokc has to work there: ``--without-peers`` runs the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from types import ModuleType
from typing import Final

import pytest

#: What the option may leave out. Whatever else is missing is an error.
PEERS: Final = frozenset(
    {
        "aiokafka",
        "confluent_kafka",
        "duckdb",
        "importlinter",
        "kafka",
        "kio",
        "lz4",
        "matplotlib",
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
    """The last to be asked where a module is: the test, or the file of tests, that asks for a peer is skipped."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
        if name in PEERS:
            pytest.skip(f"without {name}", allow_module_level=True)
