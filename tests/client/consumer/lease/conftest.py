from __future__ import annotations

import pytest

from aiokc.client.aio import time_slice


@pytest.fixture
def endless_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time slice lasts for ever."""
    monkeypatch.setattr(time_slice, "SLICE_SECONDS", 1e9)
