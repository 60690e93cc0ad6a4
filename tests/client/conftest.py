from __future__ import annotations

import pytest

from aiokc.client.aio import time_slice
from aiokc.client.produce import callbacks, sender


@pytest.fixture
def endless_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """A time slice lasts for ever. Else one may end at any point of a test, where the machine is busy with others."""
    for module in (time_slice, callbacks, sender):
        monkeypatch.setattr(module, "SLICE_SECONDS", 1e9)
