"""An admin port in memory."""

from __future__ import annotations

import pytest
import trio

from support.admin_site import Site


@pytest.fixture
async def site(nursery: trio.Nursery) -> Site:
    site = Site()
    await site.run(nursery)
    return site
