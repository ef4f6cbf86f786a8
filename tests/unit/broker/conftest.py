"""A broker's replicas round an empty disk in memory."""

from __future__ import annotations

import pytest

from strandline.testkit.replica_site import ReplicaSite


@pytest.fixture
async def site(autojump_clock) -> ReplicaSite:
    """min.insync.replicas is 2; nothing runs in the background."""
    return ReplicaSite()
