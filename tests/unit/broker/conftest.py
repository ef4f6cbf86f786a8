"""A broker's replicas round an empty disk in memory."""

from __future__ import annotations

import pytest

from support.replica_site import ReplicaSite


@pytest.fixture
async def site(autojump_clock) -> ReplicaSite:
    """min.insync.replicas is 2; nothing runs in the background."""
    return ReplicaSite()


@pytest.fixture
async def two_disks(autojump_clock) -> ReplicaSite:
    """The same over two log directories: T0 comes to lie in /logs, T1 in /more."""
    return ReplicaSite(config={"log.dirs": "/logs,/more"})
