"""`strandline up`, `status` and `down` on real processes, each command a process of its own as for a user."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.cli import cluster as clusters
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.cluster_state import Member, read_state
from strandline.cli.process import ProcessFailed
from strandline.runtime.loopback import LOOPBACK, free_port

TOPIC = "greetings"
BROKER_LOGS = ("state-change.log", "controller.log")


class Command:
    """`strandline <words> --data DIR`."""

    def __init__(self, data_dir: Path) -> None:
        self.data_dir = data_dir
        # Not the default: whoever else runs `strandline up` on the machine would get these ports while ours is down.
        self._port = str(free_port())

    def __call__(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "strandline.cli", *words, *(("--port", self._port) if words[0] == "up" else ())],
            env={**os.environ, "STRANDLINE_DATA": str(self.data_dir)},
            input=stdin,
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
        )

    def report(self) -> dict[str, Any]:
        return dict(json.loads(self("status", "--output", "json").stdout))

    def members(self) -> dict[str, Member]:
        return read_state(self.data_dir) or {}


@pytest.fixture
def strandline(tmp_path: Path) -> Iterator[Command]:
    command = Command(tmp_path / "cluster")
    yield command
    command("down", "--timeout", "5")


def test_a_broker_whose_port_is_taken_before_it_listens_gets_another_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server((LOOPBACK, 0)) as somebody:
        chosen = iter([somebody.getsockname()[1]])
        monkeypatch.setattr(clusters, "free_port", lambda *words, **options: next(chosen, free_port(*words, **options)))
        with EmbeddedCluster(tmp_path, 1) as cluster:
            assert cluster.address(1).port != somebody.getsockname()[1]
            assert cluster.metadata() is not None
            assert read_state(tmp_path)["broker-1"].port == cluster.address(1).port


def test_up_status_down_and_up_again_with_the_data(strandline: Command) -> None:
    first = strandline("up")
    assert first.returncode == 0, first.stderr
    report = strandline.report()
    assert report["healthy"] and [broker["state"] for broker in report["brokers"]] == ["up"] * 3
    where = ("-b", report["bootstrap_servers"], "-t", TOPIC)
    assert strandline("produce", *where, stdin="hello\n").returncode == 0
    by_address = json.loads(strandline("status", "-b", report["bootstrap_servers"], "--output", "json").stdout)
    assert by_address["healthy"] and by_address["topics"] == 1
    admin_ports = [broker["admin_address"] for broker in report["brokers"]]
    assert [broker["admin_address"] for broker in by_address["brokers"]] == admin_ports
    assert all(port in first.stdout for port in admin_ports) and len(set(admin_ports)) == 3
    assert by_address["problems_untold"] == [], "each admin port is found and answers"
    assert {each["kind"] for each in by_address["problems"]} <= {"nearly full"}, "as this machine's disk may be"
    logs = [Path(broker["log"]).parent / name for broker in report["brokers"] for name in BROKER_LOGS]
    lines = {log: [json.loads(line) for line in log.read_text().splitlines()] for log in logs}
    # Every broker changed state when the topic came; which of them was the controller is its own matter.
    assert all(lines[log] for log in logs if log.name == "state-change.log")
    assert any(lines[log] for log in logs if log.name == "controller.log")
    members = strandline.members()
    assert {member.process.pid for member in members.values()} == {
        report["zookeeper"]["pid"],
        *(broker["pid"] for broker in report["brokers"]),
    }

    stopped = strandline("down")
    assert stopped.returncode == 0, stopped.stderr
    assert [name for name, member in members.items() if member.process.is_alive] == []
    gone = strandline("status")
    assert gone.returncode == 1
    assert gone.stderr.startswith("strandline: no cluster is up in") and gone.stderr.count("\n") == 1

    again = strandline("up")
    assert again.returncode == 0, again.stderr
    there = strandline.report()
    assert there["bootstrap_servers"] == report["bootstrap_servers"]
    assert [broker["admin_address"] for broker in there["brokers"]] == admin_ports, "as a scraper's file has them"
    assert strandline("consume", *where, "-o", ":end").stdout == "hello\n"


def test_up_refuses_a_second_time_and_mends_what_died(strandline: Command) -> None:
    assert strandline("up").returncode == 0
    second = strandline("up")
    assert second.returncode == 1
    assert "is up; strandline status shows it, strandline down stops it" in second.stderr
    assert second.stderr.count("\n") == 1

    before = strandline.report()
    victim = strandline.members()["broker-2"].process
    assert victim.pid == before["brokers"][1]["pid"]
    assert victim.send(signal.SIGKILL) and victim.wait_gone(60)
    wounded = strandline("status")
    assert wounded.returncode == 1
    assert "broker 2 is dead" in wounded.stdout

    mended = strandline("up")
    assert mended.returncode == 0, mended.stderr
    after = strandline.report()
    assert [broker["state"] for broker in after["brokers"]] == ["up"] * 3
    assert after["brokers"][0]["pid"] == before["brokers"][0]["pid"]
    assert after["brokers"][1]["pid"] != before["brokers"][1]["pid"]


def test_up_starts_brokers_again_that_ended_at_the_start_once_the_cause_is_mended(strandline: Command) -> None:
    assert strandline("up", "--brokers", "2").returncode == 0
    addresses = strandline.report()["bootstrap_servers"]
    for name in ("broker-1", "broker-2"):
        victim = strandline.members()[name].process
        assert victim.send(signal.SIGKILL) and victim.wait_gone(60)
    cause = strandline.data_dir / "broker-2" / "data" / "meta.properties"
    whole = cause.read_text()
    cause.write_text(whole.replace("broker.id=2", "broker.id=7"))
    failed = strandline("up")
    assert failed.returncode == 1 and "broker 2 ended with exit code" in failed.stderr
    assert list(strandline.members()) == ["zookeeper"]

    cause.write_text(whole)
    mended = strandline("up", "--brokers", "2")
    assert mended.returncode == 0, mended.stderr
    after = strandline.report()
    assert [broker["state"] for broker in after["brokers"]] == ["up"] * 2
    assert after["bootstrap_servers"] == addresses


def test_status_tells_a_paused_zookeeper_and_says_nothing_of_partitions_when_no_broker_answers(
    strandline: Command,
) -> None:
    assert strandline("up", "--brokers", "2").returncode == 0
    where = ("-b", strandline.report()["bootstrap_servers"])
    assert strandline("topics", "create", TOPIC, *where, "--partitions", "2").returncode == 0
    members = strandline.members()
    assert members["zookeeper"].process.send(signal.SIGSTOP)
    paused = strandline("status")
    assert paused.returncode == 1
    assert "ZooKeeper is silent; a silent one runs without answering" in paused.stdout
    assert f"kill -CONT {members['zookeeper'].process.pid};" in paused.stdout
    assert members["zookeeper"].process.send(signal.SIGCONT)
    for name in ("broker-1", "broker-2"):
        assert members[name].process.send(signal.SIGKILL) and members[name].process.wait_gone(60)
    dead = strandline.report()
    assert not dead["healthy"]
    assert [dead[key] for key in ("topics", "partitions", "without_leader", "under_replicated")] == [None] * 4


def test_a_single_broker_cluster_serves(strandline: Command) -> None:
    started = strandline("up", "--brokers", "1", "--override", "num.partitions=3")
    assert started.returncode == 0, started.stderr
    assert "overrides: num.partitions=3" in started.stdout
    assert strandline.report()["healthy"]
    created = strandline("topics", "create", TOPIC)
    assert created.returncode == 0, created.stderr
    assert strandline.report()["partitions"] == 3
    fewer = strandline("up", "--brokers", "2")
    assert fewer.returncode == 1 and "a cluster of 1 broker is recorded" in fewer.stderr


def test_the_folder_may_have_letters_blanks_and_signs_of_any_kind(tmp_path: Path) -> None:
    folder = tmp_path / "dätä \\ x [red] $HOME #1"
    strandline = Command(folder / "cluster")
    try:
        for expected in ("hällo\n", "hällo\nhällo\n"):
            started = strandline("up", "--brokers", "1", "-o", "broker.rack=" + folder.name)
            assert started.returncode == 0, started.stderr
            assert f"cluster in {folder}/cluster " in started.stdout
            where = ("-b", strandline.report()["bootstrap_servers"], "-t", TOPIC)
            assert strandline("produce", *where, stdin="hällo\n").returncode == 0
            assert strandline("consume", *where, "-o", ":end").stdout == expected
            assert strandline("down").returncode == 0
    finally:
        strandline("down", "--timeout", "5")
    assert [entry.name for entry in tmp_path.iterdir()] == [folder.name]
    assert {entry.name for entry in folder.iterdir()} == {"cluster"}
    assert (folder / "cluster" / "broker-1" / "data" / f"{TOPIC}-0").is_dir()


def test_members_can_be_killed_paused_and_restarted(cluster: EmbeddedCluster) -> None:
    cluster.kill_broker(1)
    assert cluster.dead_members() == ["broker-1"]
    cluster.start_broker(1)
    assert cluster.dead_members() == []
    cluster.pause_broker(2)
    paused = cluster.brokers[2].id
    assert paused is not None
    states = [
        stat.read_text().rpartition(")")[2].split()[0] for stat in Path(f"/proc/{paused.pid}/task").glob("*/stat")
    ]
    assert states and set(states) == {"T"}
    cluster.resume_broker(2)
    cluster.wait_ready()
    assert cluster.stop_broker(3) == 0


def test_a_broker_that_cannot_start_is_explained_and_nothing_stays(new_cluster, tmp_path: Path) -> None:
    cluster = new_cluster(1, properties={"log.segment.bytes": "many"})
    with pytest.raises(ProcessFailed, match=r"broker 1 ended with exit code 2: .*log\.segment\.bytes.*broker\.log"):
        cluster.start()
    assert cluster.dead_members() == ["zookeeper", "broker-1"]
    assert not (cluster.data_dir / "cluster.json").exists()
