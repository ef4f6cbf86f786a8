"""Brokers of `strandline up` have admin ports that somebody can write into a scraper's file: the same ones at each
start, and those that were asked for where that can be."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from strandline.cli import cluster as clusters
from strandline.cli.cluster import ADMIN_BASE_PORT, EmbeddedCluster, up
from strandline.cli.process import Daemon
from strandline.runtime.config.properties import parse_properties
from strandline.runtime.loopback import LOOPBACK

TAKEN: set[int] = set()


@pytest.fixture(autouse=True)
def nothing_starts(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Brokers get as far as their server.properties. TAKEN ports are somebody else's, all others are free."""

    def start(self: EmbeddedCluster, timeout_s: float = 0) -> None:
        self.zookeeper.fix_port(2181)
        for broker_id in self.broker_ids:
            self.start_broker(broker_id, wait=False)

    def free_port(preferred: int | None, *, taken: frozenset[int]) -> int:
        used = taken | TAKEN
        return (
            preferred
            if preferred and preferred not in used
            else next(p for p in range(20_000, 21_000) if p not in used)
        )

    monkeypatch.setattr(EmbeddedCluster, "start", start)
    monkeypatch.setattr(Daemon, "start", lambda *_, **__: None)
    monkeypatch.setattr(clusters, "free_port", free_port)
    yield
    TAKEN.clear()


def told(cluster: EmbeddedCluster) -> list[str]:
    """What the brokers read, which is what the cluster says."""
    files = [cluster.broker_folder(each) / "server.properties" for each in cluster.broker_ids]
    read = [parse_properties(file.read_text())["admin.listener"] for file in files]
    assert read == [str(cluster.admin_address(each) or "") for each in cluster.broker_ids]
    return read


def of_ports(*ports: int, host: str = LOOPBACK) -> list[str]:
    return [f"{host}:{port}" for port in ports]


def test_broker_n_has_the_nth_port_from_9644_on_at_each_start(tmp_path: Path) -> None:
    assert ADMIN_BASE_PORT == 9644
    assert told(up(tmp_path, 3)) == told(up(tmp_path)) == of_ports(9644, 9645, 9646)


def test_a_port_that_is_taken_is_replaced_which_is_said_and_the_other_one_stays(tmp_path: Path) -> None:
    said: list[str] = []
    TAKEN.add(9645)
    assert told(up(tmp_path, 2, warn=said.append)) == of_ports(9644, 20_000)
    assert said == ["the admin port of broker 2 is 20000, since 9645 is not free"]
    TAKEN.clear()
    assert told(up(tmp_path, 2, warn=said.append)) == of_ports(9644, 20_000)
    assert len(said) == 1


def test_a_port_of_the_users_own_is_the_first_brokers_and_the_others_count_up_from_it(tmp_path: Path) -> None:
    up(tmp_path, 2)
    asked = {"admin.listener": "0.0.0.0:9700"}
    assert told(up(tmp_path, 2, overrides=asked)) == told(up(tmp_path)) == of_ports(9700, 9701, host="0.0.0.0")


def test_any_free_port_is_the_usual_one_where_that_is_free(tmp_path: Path) -> None:
    assert told(up(tmp_path, 2, overrides={"admin.listener": "0.0.0.0:0"})) == of_ports(9644, 9645, host="0.0.0.0")


def test_admin_ports_that_are_switched_off_stay_off(tmp_path: Path) -> None:
    assert told(up(tmp_path, 2, overrides={"admin.listener": ""})) == told(up(tmp_path)) == ["", ""]


def test_listeners_and_admin_ports_do_not_take_each_others(tmp_path: Path) -> None:
    cluster = up(tmp_path, 3, base_port=9644)
    listeners = [cluster.address(each).port for each in cluster.broker_ids]
    admins = [int(each.rpartition(":")[2]) for each in told(cluster)]
    assert len({*listeners, *admins}) == 6
