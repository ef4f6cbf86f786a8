"""The embedded ZooKeeper as a process: found ready, restarted on its port, refused where the port is taken."""

from __future__ import annotations

from pathlib import Path

import pytest

from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.process import ProcessFailed
from strandline.cli.zookeeper import EmbeddedZooKeeper
from strandline.runtime.loopback import zookeeper_folder


def test_it_serves_when_start_returns_and_not_after_stop(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        assert server.port is not None
        assert zookeeper_folder(server.port, timeout_s=30) == tmp_path / "data" / "version-2"
    assert zookeeper_folder(server.port) is None


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_its_data_are_below_its_folder_whatever_that_is_called(
    locale: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LC_ALL", locale)
    folder = tmp_path / "dätä \\ x, #y=\u2028日本😀"
    with EmbeddedZooKeeper(folder) as server:
        assert server.port is not None
        assert zookeeper_folder(server.port, timeout_s=30) == folder / "data" / "version-2"
        assert any((folder / "data" / "version-2").iterdir())
    assert [entry.name for entry in tmp_path.iterdir()] == [folder.name]


def test_it_comes_back_on_the_same_port_after_a_kill(tmp_path: Path) -> None:
    with EmbeddedZooKeeper(tmp_path) as server:
        address = server.address
        server.kill()
        server.start()
        assert server.address == address


def test_it_is_recorded_before_it_serves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever clears up after a command that was killed meanwhile finds it there."""

    def is_cut(*_: object) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr(EmbeddedZooKeeper, "_wait_until_serving", is_cut)
    cluster = EmbeddedCluster(tmp_path, 1)
    with pytest.raises(KeyboardInterrupt):
        cluster.start_zookeeper()
    recorded = EmbeddedCluster.recorded(tmp_path)
    assert recorded.zookeeper.process.is_alive
    recorded.kill()
    assert not cluster.zookeeper.process.is_alive


def test_a_port_in_use_is_named(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    second = EmbeddedZooKeeper(tmp_path, port=zookeeper.port)
    with pytest.raises(ProcessFailed, match=f"port {zookeeper.port} on 127.0.0.1 is taken"):
        second.start()
    assert not second.process.is_alive
