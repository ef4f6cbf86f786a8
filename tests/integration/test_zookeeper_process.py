"""The embedded ZooKeeper as a process: found ready, restarted on its port, refused where the port is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.cli.process import ProcessFailed
from strandline.cli.zookeeper import EmbeddedZooKeeper
from strandline.runtime.loopback import zookeeper_folder


def test_it_serves_when_start_returns_and_not_after_stop(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.port is not None
        assert zookeeper_folder(server.port, timeout_s=30) == tmp_path / "data" / "version-2"
    assert zookeeper_folder(server.port) is None


def test_it_comes_back_on_the_same_port_after_a_kill(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        address = server.address
        server.kill()
        server.start()
        assert server.address == address


def test_a_port_in_use_is_named(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    second = EmbeddedZooKeeper(tmp_path, port=zookeeper.port)
    with pytest.raises(ProcessFailed, match=f"port {zookeeper.port} on 127.0.0.1 is taken"):
        second.start()
    assert not second.process.is_alive
