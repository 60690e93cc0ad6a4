from __future__ import annotations

from pathlib import Path

import pytest

from aiokc.testing.kafka import libs


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own, with the jars of the real one, so that what is left in it can be seen."""
    (tmp_path / libs().parent.name).symlink_to(libs().parent)
    monkeypatch.setenv("AIOKC_KAFKA_HOME", str(tmp_path))
    monkeypatch.delenv("AIOKC_BOOTSTRAP", raising=False)
    return tmp_path
