"""A broker for the examples alone: they have time limits, and the shared broker is busy with what other tests left."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from aiokc.testing.kafka import LocalKafka


@pytest.fixture(scope="package")
def kafka() -> Iterator[LocalKafka]:
    with LocalKafka() as running:
        yield running
