"""The compose file with one broker, for development; and what a client says of an address that it cannot reach."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from docker.engine import Compose, Failed, strandline

PATIENCE_S = 120


@pytest.fixture(scope="module")
def single(new_compose: Callable[[str], Compose]) -> Iterator[Compose]:
    compose = new_compose("docker-compose.single.yml")
    try:
        compose("up", "-d", "--build", timeout_s=1800)
        assert compose.health("broker") == "healthy"
        yield compose
    finally:
        compose("down", "-v", "--remove-orphans")


def test_a_single_broker_serves_both_sides_without_replication_settings(single: Compose, ports: list[int]) -> None:
    host = f"localhost:{ports[0]}"
    made = strandline("topics", "--create", "--topic", "one", "--bootstrap", host)
    assert made.returncode == 0, made.stderr
    single("exec", "-T", "broker", "strandline", "produce", "--topic", "one", stdin="a\nb\n")
    assert strandline("consume", "--bootstrap", host, "-t", "one", "-o", ":end").stdout == "a\nb\n"


def wait_ready(single: Compose, container: str) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        try:
            single.engine.docker("exec", container, "strandline", "ready")
            return
        except Failed:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def test_a_listener_without_a_host_is_reached_from_other_containers(single: Compose) -> None:
    network = single.engine.docker("network", "ls", "-q", "-f", f"name={single.project}").strip()
    variables = {
        "KAFKA_BROKER_ID": "6",
        "KAFKA_ZOOKEEPER_CONNECT": "single-zookeeper:2181",
        "KAFKA_LISTENERS": "INSIDE://:9092",
        "KAFKA_ADVERTISED_LISTENERS": "INSIDE://kafka:9092",
        "KAFKA_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT",
        "KAFKA_INTER_BROKER_LISTENER_NAME": "INSIDE",
        "STRANDLINE_ADMIN_LISTENER": "",
    }
    settings = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    container = single.engine.docker(
        *("run", "-d", "--network", network, "--network-alias", "kafka", *settings, "strandline")
    ).strip()
    try:
        wait_ready(single, container)
        single("exec", "-T", "broker", "strandline", "topics", "--list", "--bootstrap", "kafka:9092")
    finally:
        single.engine.docker("stop", container)
        single.engine.docker("rm", "-f", "-v", container)


def test_an_advertised_address_that_cannot_be_reached_is_named_by_the_client(single: Compose, ports: list[int]) -> None:
    network = single.engine.docker("network", "ls", "-q", "-f", f"name={single.project}").strip()
    host = f"localhost:{ports[0]}"
    variables = {
        "STRANDLINE_BROKER_ID": "5",
        "STRANDLINE_ZOOKEEPER_CONNECT": "single-zookeeper:2181",
        "STRANDLINE_LISTENER_SECURITY_PROTOCOL_MAP": "INSIDE:PLAINTEXT,HOST:PLAINTEXT",
        "STRANDLINE_INTER_BROKER_LISTENER_NAME": "INSIDE",
        "STRANDLINE_ADVERTISED_LISTENERS": f"INSIDE://broker-5:19092,HOST://no-such-host.invalid:{ports[1]}",
    }
    settings = [word for name, value in variables.items() for word in ("-e", f"{name}={value}")]
    container = single.engine.docker(
        *("run", "-d", "--network", network, "--network-alias", "broker-5", *settings, "strandline")
    ).strip()
    try:
        wanted = f"advertised=HOST://no-such-host.invalid:{ports[1]}"
        deadline = time.monotonic() + PATIENCE_S
        while wanted not in (log := single.engine.logs(container)):
            assert time.monotonic() < deadline, log
            time.sleep(0.2)
        wait_ready(single, container)
        made = strandline(
            *("topics", "--create", "--topic", "two", "--partitions", "2", "--replication-factor", "2"),
            *("--bootstrap", host),
        )
        assert made.returncode == 0, made.stderr
        ran = strandline("consume", "--bootstrap", host, "-t", "two", "-o", ":end")
        assert ran.returncode == 1
        assert f"no-such-host.invalid:{ports[1]}" in ran.stderr, ran.stderr
        assert "advertised.listeners" in ran.stderr
    finally:
        single.engine.docker("rm", "-f", "-v", container)
