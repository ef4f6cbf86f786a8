"""The compose file with one broker, for development; and what a client says of an address that it cannot reach."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest
from engine import Compose, strandline

PATIENCE_S = 120


@pytest.fixture(scope="module")
def single(new_compose: Callable[[str], Compose]) -> Iterator[Compose]:
    compose = new_compose("docker-compose.single.yml")
    try:
        compose("up", "-d", "--build", timeout_s=1800)
        compose.wait_healthy("broker")
        yield compose
    finally:
        compose("down", "-v", "--remove-orphans")


def test_a_single_broker_serves_both_sides_without_replication_settings(single: Compose, ports: list[int]) -> None:
    host = f"localhost:{ports[0]}"
    made = strandline("topics", "--create", "--topic", "one", "--bootstrap", host)
    assert made.returncode == 0, made.stderr
    single("exec", "-T", "broker", "strandline", "produce", "--topic", "one", stdin="a\nb\n")
    assert strandline("consume", "--bootstrap", host, "-t", "one", "-o", ":end").stdout == "a\nb\n"


def test_an_advertised_address_that_cannot_be_reached_is_named_by_the_client(single: Compose, ports: list[int]) -> None:
    network = single.engine.docker("network", "ls", "-q", "-f", f"name={single.project}").strip()
    port = str(ports[1])
    container = single.engine.docker(
        *("run", "-d", "--network", network, "-p", f"127.0.0.1:{port}:{port}"),
        *("-e", "STRANDLINE_BROKER_ID=5", "-e", "STRANDLINE_ZOOKEEPER_CONNECT=zookeeper:2181"),
        *("-e", f"STRANDLINE_ADVERTISED_LISTENERS=PLAINTEXT://no-such-host.invalid:{port}", "strandline"),
    ).strip()
    try:
        wanted = f"advertised=PLAINTEXT://no-such-host.invalid:{port}"
        deadline = time.monotonic() + PATIENCE_S
        while wanted not in (log := single.engine.logs(container)):
            assert time.monotonic() < deadline, log
            time.sleep(0.2)
        ran = strandline("topics", "--create", "--topic", "two", "--partitions", "1", "--replication-factor", "2",
                         "--bootstrap", f"localhost:{port}")  # fmt: skip
        assert ran.returncode == 1
        assert f"no-such-host.invalid:{port}" in ran.stderr, ran.stderr
        assert "advertised.listeners" in ran.stderr
    finally:
        single.engine.docker("rm", "-f", "-v", container)
