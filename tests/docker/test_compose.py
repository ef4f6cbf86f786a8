"""The compose files on a real engine, as the README's chapter on them says: up, use, kill, stop, restart, down.

The tests of a file share one cluster and run in their order: each leaves it whole.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable, Iterator
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import trio
import yaml

from compat.readme_clients import type_what_the_readme_says
from docker.engine import ROOT, Compose, Failed, strandline
from strandline.client import TrioAdmin
from strandline.client.metadata import TopicView
from strandline.testkit.verification import VerifyingLoad, proven

BROKERS = ("broker-1", "broker-2", "broker-3")
PATIENCE_S = 120


@pytest.fixture(scope="module")
def cluster(new_compose: Callable[[str], Compose]) -> Iterator[Compose]:
    """Three brokers, up and healthy; everything is removed afterwards."""
    compose = new_compose("docker-compose.yml")
    started = time.monotonic()
    try:
        compose("up", "-d")
        assert [compose.health(broker) for broker in BROKERS] == ["healthy"] * 3
        print(
            f"healthy {time.monotonic() - started:.1f} s after up; the image has "
            f"{compose.engine.image_bytes('strandline') / 1e6:.0f} MB"
        )
        print(compose.engine.docker("stats", "--no-stream", "--format", "{{.Name}}: {{.MemUsage}}"))
        yield compose
    finally:
        compose("down", "-v", "--remove-orphans")


@pytest.fixture
def bootstrap(ports: list[int]) -> str:
    return ",".join(f"localhost:{port}" for port in ports)


def numbers(count: int, what: str) -> list[str]:
    return [f"{what} {number}" for number in range(count)]


def test_records_go_in_inside_and_come_out_on_the_host_and_the_reverse(cluster: Compose, bootstrap: str) -> None:
    cluster(
        "exec",
        "-T",
        "broker-1",
        "strandline",
        "topics",
        "--create",
        "--topic",
        "t",
        *("--partitions", "6", "--replication-factor", "3"),
    )
    sent = numbers(10_000, "from inside")
    cluster("exec", "-T", "broker-1", "strandline", "produce", "--topic", "t", stdin="\n".join(sent) + "\n")
    ran = strandline("consume", "--bootstrap", bootstrap, "--topic", "t", "-o", ":end")
    assert sorted(ran.stdout.splitlines()) == sorted(sent), ran.stderr
    back = numbers(1_000, "from the host")
    assert strandline("produce", "--bootstrap", bootstrap, "--topic", "t", stdin="\n".join(back) + "\n").returncode == 0
    inside = cluster("exec", "-T", "broker-2", "strandline", "consume", "--topic", "t", "-o", ":end")
    assert sorted(inside.splitlines()) == sorted(sent + back)


def test_spark_counts_the_records_of_a_topic_inside_the_network(cluster: Compose) -> None:
    printed = cluster("run", "--rm", "-T", "-e", "TOPIC=t", "spark", timeout_s=600)
    assert "t: 11000 records in " in printed


def test_a_root_file_system_that_nobody_writes_to_and_a_user_without_rights(cluster: Compose) -> None:
    assert cluster("exec", "-T", "broker-1", "id", "-u").strip() != "0"
    with pytest.raises(Failed, match="Read-only file system"):
        cluster("exec", "-T", "-u", "0", "broker-1", "touch", "/opt/strandline/x")


def ask_prometheus(port: int, path: str) -> Any:
    """`data` of its answer."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/{path}", timeout=10) as answer:
        return json.load(answer)["data"]


def scraped(port: int) -> set[str]:
    """Instances that answer it; none while it does not answer itself."""
    try:
        found = ask_prometheus(port, "query?query=up==1")["result"]
    except OSError:
        return set()
    return {each["metric"]["instance"] for each in found}


def test_prometheus_of_the_profile_scrapes_every_broker_by_the_rules(cluster: Compose, prometheus_port: int) -> None:
    """Grafana beside it is in no package of Debian's, so that its image cannot be made here."""
    profile = ("--profile", "metrics")
    try:
        cluster(*profile, "up", "-d", "prometheus")
        deadline = time.monotonic() + PATIENCE_S
        while scraped(prometheus_port) != {f"{broker}:9644" for broker in BROKERS}:
            assert time.monotonic() < deadline, cluster(*profile, "logs", "--no-color", "prometheus")
            time.sleep(0.2)
        loaded = [rule for group in ask_prometheus(prometheus_port, "rules")["groups"] for rule in group["rules"]]
        shipped = yaml.safe_load((ROOT / "deploy/prometheus/rules.yml").read_text())["groups"]
        assert [each["name"] for each in loaded] == [rule["alert"] for group in shipped for rule in group["rules"]]
        assert all(each["health"] in ("ok", "unknown") for each in loaded), loaded
    finally:
        cluster(*profile, "rm", "--force", "--stop", "-v", "prometheus")
        cluster.engine.docker("volume", "rm", "--force", f"{cluster.project}_prometheus-data")


class Topic:
    """A topic under a verifying load from the host."""

    def __init__(self, name: str, bootstrap: str) -> None:
        self.name = name
        self.bootstrap = bootstrap
        self.load = VerifyingLoad(bootstrap, name, 3)

    async def describe(self) -> TopicView:
        async with TrioAdmin(self.bootstrap) as admin:
            return (await admin.describe_topics([self.name]))[self.name]

    async def leader(self) -> int:
        return (await self.describe()).partitions[0].leader

    async def wait_whole(self) -> None:
        with trio.fail_after(PATIENCE_S):
            while any(len(p.in_sync_replicas) < 3 or p.leader < 0 for p in (await self.describe()).partitions.values()):
                await trio.sleep(0.2)

    async def under_load(self, do: Callable[[], object]) -> None:
        """Produce, do something to the cluster meanwhile, and check every promise at the end."""
        async with TrioAdmin(self.bootstrap) as admin:
            await admin.create_topic(self.name, 3, 3, {"min.insync.replicas": "2"})
        async with proven(self.load, self.wait_whole):
            await trio.to_thread.run_sync(do)


async def test_a_killed_leader_costs_nothing_and_comes_back_into_the_isr(cluster: Compose, bootstrap: str) -> None:
    topic = Topic("killed", bootstrap)

    def kill_and_bring_back() -> None:
        victim = f"broker-{trio.from_thread.run(topic.leader)}"
        cluster("kill", victim)
        trio.from_thread.run(partial(topic.load.wait_acked, 100))
        cluster("up", "-d")
        cluster.wait_healthy(*BROKERS)

    await topic.under_load(kill_and_bring_back)
    assert not topic.load.errors


async def test_a_stopped_broker_hands_over_first_and_ends_with_0(cluster: Compose, bootstrap: str) -> None:
    topic = Topic("stopped", bootstrap)

    def stop_and_start() -> None:
        leader = trio.from_thread.run(topic.leader)
        victim = f"broker-{leader}"
        cluster("stop", victim)
        assert cluster.state(victim)["ExitCode"] == 0
        assert trio.from_thread.run(topic.leader) not in (leader, -1)
        cluster("up", "-d")
        cluster.wait_healthy(*BROKERS)

    await topic.under_load(stop_and_start)
    assert not topic.load.errors


async def test_a_rolling_restart_shows_no_error_to_a_producer(cluster: Compose, bootstrap: str) -> None:
    topic = Topic("rolled", bootstrap)

    def restart_each() -> None:
        for broker in BROKERS:
            cluster("restart", broker)
            cluster.wait_healthy(broker)

    await topic.under_load(restart_each)
    assert not topic.load.errors


# --- what goes wrong at the start ------------------------------------------------------------------------------------


def run_broker(cluster: Compose, *options: str, **variables: str) -> tuple[int, str]:
    """A further broker in the cluster's network; (exit code, what it printed)."""
    network = next(iter(cluster.engine.docker("network", "ls", "-q", "-f", f"name={cluster.project}").split()))
    settings = {
        "STRANDLINE_BROKER_ID": "9",
        "STRANDLINE_ZOOKEEPER_CONNECT": "zookeeper:2181",
        "STRANDLINE_LISTENERS": "PLAINTEXT://127.0.0.1:9092",
        **variables,
    }
    words = [word for name, value in settings.items() for word in ("-e", f"{name}={value}")]
    container = cluster.engine.docker("run", "-d", "--network", network, *options, *words, "strandline").strip()
    try:
        code = int(cluster.engine.docker("wait", container))
        return code, cluster.engine.logs(container)
    finally:
        cluster.engine.docker("rm", "-f", "-v", container)


@pytest.mark.parametrize(
    ("options", "variables", "code", "said"),
    [
        ((), {"STRANDLINE_NUM_PARTITIONS": "many"}, 2, "num.partitions"),
        ((), {"STRANDLINE_NUM_PARTITION": "3"}, 2, "did you mean STRANDLINE_NUM_PARTITIONS?"),
        ((), {"STRANDLINE_BROKER_ID": "1"}, 1, "another broker"),
        (("--tmpfs", "/var/lib/strandline:mode=0700,uid=0"), {}, 1, "/var/lib/strandline"),
        ((), {"KAFKA_LOG_DIRS": "/usr/elsewhere"}, 1, "/usr/elsewhere"),
        (
            (),
            {"STRANDLINE_ZOOKEEPER_CONNECT": "nowhere:2181", "STRANDLINE_ZOOKEEPER_CONNECTION_TIMEOUT_MS": "3000"},
            1,
            "nowhere:2181",
        ),
    ],
    ids=[
        "a value that is none",
        "a key that nobody knows",
        "a broker id that is taken",
        "a volume that cannot be read",
        "a data folder of a compose file for Kafka",
        "no ZooKeeper",
    ],
)
def test_what_keeps_a_broker_from_starting_is_one_line(
    cluster: Compose, options: tuple[str, ...], variables: dict[str, str], code: int, said: str
) -> None:
    found, printed = run_broker(cluster, *options, **variables)
    assert found == code, printed
    assert said in printed.splitlines()[-1], printed
    assert "Traceback" not in printed


def test_a_key_of_kafkas_that_nobody_knows_is_named_with_the_nearest_one(cluster: Compose) -> None:
    _, printed = run_broker(cluster, KAFKA_NUM_PARTITION="3", STRANDLINE_BROKER_ID="1")
    assert "unknown key num.partition is ignored; did you mean num.partitions?" in printed


def test_a_broker_that_cannot_start_is_started_again_ever_more_slowly(cluster: Compose) -> None:
    docker = cluster.engine.docker
    policy, container = cluster.restart_policy("broker-1"), ""
    assert policy == "unless-stopped"
    began_s = int(time.time()) - 1
    try:
        container = docker("run", "-d", "--restart", policy, "-e", "STRANDLINE_BROKER_ID=none", "strandline").strip()
        deadline = time.monotonic() + PATIENCE_S
        while len(starts := cluster.engine.starts_s(container, began_s)) < 6:
            assert time.monotonic() < deadline, f"it is not started again: {starts}"
            time.sleep(0.2)
        # Docker's rule, which a busy machine can only stretch: 100 ms, twice as long each time, and 100 ms again after
        # a run of more than 10 s.
        backoff_s = 0.1
        for earlier, later in pairwise(starts):
            took_s = later - earlier
            assert took_s >= backoff_s or took_s > 10, starts
            backoff_s = 0.1 if took_s > 10 else 2 * backoff_s
    finally:
        if container:
            docker("rm", "-f", "-v", container)


def readme_commands() -> list[str]:
    """The commands of the README's chapter on docker-compose."""
    chapter = (ROOT / "README.md").read_text().split("## With docker-compose", 1)[1]
    return [line for line in chapter.split("```")[1].splitlines() if line.strip()]


def test_the_commands_of_the_readme_work_as_they_stand_there(cluster: Compose, ports: list[int]) -> None:
    cluster("down", "-v")
    commands = readme_commands()
    assert commands[0].endswith("up -d --build") and commands[-1].endswith("down")
    printed = [cluster.shell(command.replace("localhost:9092", f"localhost:{ports[0]}")) for command in commands[:-1]]
    assert sorted(printed[3].split(), key=int) == [str(number) for number in range(1, 1001)]
    assert "t: 1000 records in " in printed[4]


def test_other_clients_of_kafka_work_from_the_host_as_the_readme_says(cluster: Compose, bootstrap: str) -> None:
    cluster.wait_healthy(*BROKERS)
    type_what_the_readme_says(bootstrap)


# --- last: it goes, and comes back ------------------------------------------------------------------------------------


def test_what_is_taken_down_comes_up_with_its_data_unless_the_volumes_go_too(cluster: Compose, bootstrap: str) -> None:
    cluster("down")
    cluster("up", "-d")
    cluster.wait_healthy(*BROKERS)
    ran = strandline("consume", "--bootstrap", bootstrap, "--topic", "t", "-o", ":end")
    assert len(ran.stdout.splitlines()) == 1_000, ran.stderr
    cluster("down", "-v")
    assert cluster.engine.docker("volume", "ls", "-q", "-f", f"name={cluster.project}").split() == []
