from __future__ import annotations

import pytest

from aiokc.testing import Certificates


@pytest.fixture(scope="session")
def certificates() -> Certificates:
    """An authority, which all clusters of these tests share: keys take time to make."""
    made = Certificates()
    assert made.server_pem
    return made
