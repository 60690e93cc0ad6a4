"""A broker for the examples alone: they are timed, and the one that all tests share is busy with what those left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokc.testing.kafka import LocalKafka


@pytest.fixture(scope="package")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka() as running:
        yield running
