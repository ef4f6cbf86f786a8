"""The two sites of the suite for the coordination seam: in memory on a virtual clock, and the real ZooKeeper."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import trio
import trio.testing

from strandline.cli.zookeeper import EmbeddedZooKeeper
from strandline.testkit.zookeeper.server import MemoryZooKeeper
from support.coordination_sites import PATIENCE_S, MemorySite, RealSite, Site


@pytest.fixture(scope="session")
def real_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedZooKeeper]:
    server = EmbeddedZooKeeper(Path(tmp_path_factory.mktemp("zookeeper")))
    server.start(timeout_s=2 * PATIENCE_S)
    yield server
    server.stop()


@pytest.fixture(params=["memory", "zookeeper"])
def site_kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def site_clock(site_kind: str) -> trio.abc.Clock | None:
    """pytest-trio runs a test on the clock among its own arguments; None is the real one."""
    return trio.testing.MockClock(autojump_threshold=0) if site_kind == "memory" else None


@pytest.fixture
async def site(site_kind: str, request: pytest.FixtureRequest, nursery: trio.Nursery) -> AsyncIterator[Site]:
    if site_kind == "memory":
        server = MemoryZooKeeper(latency_s=0.002)
        yield MemorySite(server)
        return
    real = RealSite(request.getfixturevalue("real_zookeeper"), f"/{request.node.originalname}")
    yield real
    await real.close()
