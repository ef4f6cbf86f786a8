"""Every test of storage starts with an empty disk in memory."""

from __future__ import annotations

import pytest

from support.storage_site import StorageSite


@pytest.fixture
def site() -> StorageSite:
    return StorageSite()
