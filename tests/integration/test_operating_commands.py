"""What operators do while records are there: move partitions, go back, stop looking, empty brokers, elect leaders."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from strandline.cli.cluster import EmbeddedCluster

TIMEOUT_S = 120
BROKERS = (1, 2, 3, 4)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    # Leaders go where a test wants them, and nowhere else.
    properties = {"auto.leader.rebalance.enable": "false"}
    with EmbeddedCluster(tmp_path_factory.mktemp("operating"), len(BROKERS), properties=properties) as cluster:
        yield cluster


class Operator:
    """Runs `strandline …` in a folder of its own; answers are JSON where that is asked for. code None: 0 or 1."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path) -> None:
        self.cluster = cluster
        self.folder = folder
        self.environment = {**os.environ, "STRANDLINE_BOOTSTRAP": cluster.bootstrap_servers}

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "strandline.cli", *args]

    def __call__(self, *args: str, code: int | None = 0, stdin: bytes = b"") -> str:
        ran = subprocess.run(
            self.command(*args),
            input=stdin, capture_output=True, timeout=TIMEOUT_S, env=self.environment, cwd=self.folder,
        )  # fmt: skip
        assert ran.returncode == code or (code is None and ran.returncode in (0, 1)), (
            args,
            ran.returncode,
            ran.stdout,
            ran.stderr,
        )
        assert b"Traceback" not in ran.stderr
        return (ran.stdout if ran.returncode in (0, 1) else ran.stderr).decode()

    def json(self, *args: str, code: int | None = 0) -> Any:
        return json.loads(self(*args, "--output", "json", code=code))

    def topic(self, name: str, *, factor: int = 3, brokers: tuple[int, ...] = (1, 2, 3)) -> str:
        """Six partitions on the first brokers, with a thousand records."""
        lists = [brokers[each % len(brokers) :] + brokers[: each % len(brokers)] for each in range(6)]
        text = ",".join(":".join(map(str, each[:factor])) for each in lists)
        self("topics", "--create", "--topic", name, "--replica-assignment", text)
        self("produce", "-t", name, stdin=b"".join(b"record %d\n" % number for number in range(1000)))
        return name

    def records(self, name: str) -> int:
        return len(set(self("consume", "-t", name, "-o", ":end").splitlines()))

    def partitions(self, name: str) -> list[dict[str, Any]]:
        [topic] = self.json("topics", "describe", name)["topics"]
        partitions: list[dict[str, Any]] = topic["partitions"]
        return partitions

    def replicas(self, name: str) -> list[set[int]]:
        return [set(each["replicas"]) for each in self.partitions(name)]


@pytest.fixture
def operator(served: EmbeddedCluster, tmp_path: Path) -> Iterator[Operator]:
    """Whatever a test has done to a broker is undone."""
    yield Operator(served, tmp_path)
    for broker_id in BROKERS:
        served.resume_broker(broker_id)
        if not served.brokers[broker_id].is_alive:
            served.start_broker(broker_id)


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.2)


def test_partitions_are_moved_and_moved_back(operator: Operator) -> None:
    name = operator.topic("moved")
    shown = operator.json("reassign", "generate", "-t", name, "--brokers", "2,3,4", "--plan-file", "plan.json")
    assert shown["replicas_to_move"] == 6 and shown["bytes_to_move"] > 0
    operator("reassign", "execute", "plan.json", "--dry-run")
    assert operator.replicas(name) == [{1, 2, 3}] * 6
    assert "6 partitions lie as planned" in operator("reassign", "execute", "plan.json", "--wait")
    assert operator.replicas(name) == [{2, 3, 4}] * 6
    assert operator.json("reassign", "verify", "plan.json")["throttles_removed"] == []
    assert operator.records(name) == 1000
    operator("reassign", "execute", "plan.rollback.json", "--wait")
    assert operator.replicas(name) == [{1, 2, 3}] * 6
    assert operator.json("reassign", "verify", "plan.json", code=1)["partitions"][0]["status"] == "elsewhere"
    assert operator.records(name) == 1000


def test_a_plan_by_hand_changes_the_number_of_replicas(operator: Operator) -> None:
    name = operator.topic("narrow", factor=1)
    entries = [{"topic": name, "partition": number, "replicas": [4, 1]} for number in range(6)]
    (operator.folder / "wider.json").write_text(json.dumps({"version": 1, "partitions": entries}))
    operator("reassign", "execute", "--reassignment-json-file", "wider.json", "--wait")
    assert operator.replicas(name) == [{1, 4}] * 6
    assert operator.records(name) == 1000


def test_who_stops_looking_stops_nothing_and_may_cancel(operator: Operator) -> None:
    """One of those who are to hold the partitions is dead: until it is back they are under way."""
    name = operator.topic("watched", brokers=(1, 2, 4))
    operator.cluster.kill_broker(4)
    until(lambda: all(set(each["isr"]) == {1, 2} for each in operator.partitions(name)))
    entries = [{"topic": name, "partition": number, "replicas": [1, 3, 4]} for number in range(6)]
    (operator.folder / "plan.json").write_text(json.dumps({"version": 1, "partitions": entries}))
    looking = subprocess.Popen(
        operator.command("reassign", "execute", "plan.json", "--wait"),
        env=operator.environment, cwd=operator.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert looking.stderr is not None
    assert b"broker 4 does not run" in looking.stderr.readline()
    looking.send_signal(signal.SIGINT)
    _, errors = looking.communicate(timeout=TIMEOUT_S)
    assert looking.returncode == 130, errors
    assert b"The cluster goes on with it." in errors and b"Traceback" not in errors
    under_way = operator.json("reassign", "verify", "plan.json", code=1)["partitions"]
    assert {each["status"] for each in under_way} == {"under way"}
    assert operator.replicas(name) == [{1, 2, 3, 4}] * 6
    assert "they stay where they were" in operator("reassign", "cancel", "plan.json")
    until(lambda: operator.replicas(name) == [{1, 2, 4}] * 6)
    assert operator("reassign", "verify") == "Nothing is under way.\n"
    assert operator.records(name) == 1000


def test_a_broker_is_emptied_and_stopped(operator: Operator) -> None:
    name = operator.topic("kept", brokers=(1, 2, 4))
    assert "0 B" in operator("broker-decommission", "4", "--dry-run")
    assert "it may be stopped" in operator("broker-decommission", "4")
    held = operator.json("topics", "describe")["topics"]
    assert not any(4 in each["replicas"] or each["leader"] == 4 for topic in held for each in topic["partitions"])
    assert operator.cluster.stop_broker(4) == 0
    assert operator("topics", "describe", "--under-replicated-partitions") == ""
    assert operator.records(name) == 1000
    assert "holds nothing, and does not run" in operator("broker-decommission", "4")


def test_a_dead_broker_is_emptied_too(operator: Operator) -> None:
    name = operator.topic("bereft", brokers=(4, 1, 2))
    operator.cluster.kill_broker(4)
    until(lambda: all(each["leader"] not in (4, None) for each in operator.partitions(name)))
    assert "holds nothing, and does not run" in operator("broker-decommission", "4")
    assert operator.replicas(name) == [{1, 2, 3}] * 6
    assert operator.records(name) == 1000
    refused = operator("broker-decommission", "3", code=1)
    assert refused == ""


def test_leaders_are_where_they_should_be_after_a_restart(operator: Operator) -> None:
    name = operator.topic("led")
    assert operator.cluster.stop_broker(1) == 0
    until(lambda: all(each["leader"] != 1 for each in operator.partitions(name)))
    operator.cluster.start_broker(1)
    until(lambda: all(len(each["isr"]) == 3 for each in operator.partitions(name)))
    shown = operator.json("elect-leaders", name)
    assert sum(each["elected"] for each in shown["partitions"]) <= 6
    until(lambda: all(each["leader"] == each["replicas"][0] for each in operator.partitions(name)))
    assert "Nothing to do" in operator("elect-leaders", name)
    assert operator.records(name) == 1000


def test_an_uneven_load_is_told_and_the_commands_that_are_printed_even_it_out(operator: Operator) -> None:
    operator("topics", "--create", "--topic", "uneven", "--replica-assignment", ",".join(["1:2:3"] * 12))
    told = operator.json("load", "--interval", "200ms", "--threshold", "1000%")
    assert told["untold"] == [] and {each["broker"] for each in told["brokers"]} == set(BROKERS)
    assert {"partitions", "leaders", "memUsed", "fd"} <= told["weights"].keys()
    assert told["left_out"].get("cpuUsed", "idle everywhere") == "idle everywhere"
    by_leaders = (
        *("load", "--interval", "100ms", "--threshold", "30%"),
        *("--weights", ",".join(f"{name}=0" for name in told["weights"] | told["left_out"] if name != "leaders")),
    )
    told = operator.json(*by_leaders, "--reassignment-file", "even.json", code=1)
    assert told["moves"] and (operator.folder / "even.json").exists()
    for command in told["next"]:
        operator(*shlex.split(command)[1:])
    until(lambda: operator.json(*by_leaders, code=None)["even"])


def test_the_doctor_finds_what_is_wrong_in_a_cluster(operator: Operator) -> None:
    def told() -> dict[str, dict[str, Any]]:
        return {each["check"]: each for each in operator.json("doctor", "--cluster", code=None)["checks"]}

    def levels(found: dict[str, dict[str, Any]]) -> set[str]:
        return {each["level"] for each in found.values()}

    # Six more that broker 3 should lead, and broker 4 does.
    name = operator.topic("examined", brokers=(4, 1, 2))
    operator("topics", "--create", "--topic", "led-by-4", "--replica-assignment", ",".join(["4:3"] * 6))
    entries = [{"topic": "led-by-4", "partition": number, "replicas": [3, 4]} for number in range(6)]
    (operator.folder / "swapped.json").write_text(json.dumps({"version": 1, "partitions": entries}))
    operator("reassign", "execute", "swapped.json", "--wait")
    until(lambda: not {"FAIL", "?"}.intersection(levels(healthy := told())) and is_named(healthy, unled(operator, 3)))
    operator.cluster.kill_broker(4)
    until(lambda: all(sorted(each["isr"]) == [1, 2] for each in operator.partitions(name)))
    found = told()
    assert {check for check, each in found.items() if each["level"] == "FAIL"} >= {
        "brokers answer",
        "under-replicated partitions",
    }
    # Brokers look twice a minute for what is over: what another test did to the same one may be told as going on.
    assert 0 < found["under-replicated partitions"]["since_ms"] <= time.time() * 1000
    assert found["offline partitions"]["level"] == "ok"


def is_named(told: dict[str, dict[str, Any]], text: str) -> bool:
    return told["leaders"]["level"] == "warn" and text in told["leaders"]["text"]


def unled(operator: Operator, broker_id: int) -> str:
    topics = operator.json("topics", "describe")["topics"]
    preferred = [each["leader"] for topic in topics for each in topic["partitions"] if each["replicas"][0] == broker_id]
    elsewhere = sum(leader != broker_id for leader in preferred)
    assert elsewhere >= 6
    return f"{elsewhere} of {len(preferred)} that prefer broker {broker_id} are led by others"


def test_a_topic_is_watched_while_its_leader_dies_and_replayed_afterwards(operator: Operator) -> None:
    topic = operator.topic("followed")
    watching = operator.command("watch", topic, "--partition", "0", "--interval", "0.2", "--output", "json")
    with subprocess.Popen(watching, stdout=subprocess.PIPE, text=True, env=operator.environment) as process:
        limit = threading.Timer(TIMEOUT_S, process.kill)
        limit.start()
        assert process.stdout is not None
        changes = (json.loads(line) for line in process.stdout)
        first = next(changes)
        assert (first["leader"], sorted(first["isr"]), list(first["log_end_offsets"])) == (
            1,
            [1, 2, 3],
            ["1", "2", "3"],
        )
        operator.cluster.kill_broker(1)
        after = next(each for each in changes if "isr" in each["changed"])
        operator.cluster.start_broker(1, wait=False)
        back = next(each for each in changes if "isr" in each["changed"])
        process.send_signal(signal.SIGINT)
        *_, failure = changes
        limit.cancel()
    assert (process.returncode, failure["error"]["name"]) == (130, "Interrupted")
    assert (after["leader"], after["leader_epoch"] > first["leader_epoch"], after["isr"]) == (*(2, True, [2, 3]),)
    assert sorted(back["isr"]) == [1, 2, 3]
    told = operator("watch", topic, "--logs", str(operator.cluster.data_dir), "--partition", "0", "--once",
                    "--output", "json").splitlines()  # fmt: skip
    replayed = [json.loads(line) for line in told]
    in_sync = [sorted(each["isr"]) for each in replayed if not each["changed"] or "isr" in each["changed"]]
    assert in_sync == [[1, 2, 3], [2, 3], [1, 2, 3]]
    assert {each["topic_id"] for each in replayed} == {first["topic_id"]}


def test_a_scenario_is_run_on_a_cluster_that_is_there(operator: Operator) -> None:
    told = operator.json("bench", "scenarios", "--scenario", "2", "--scenario", "5", "--scale", "0.0001")
    second, fifth = told["scenarios"]
    assert [(each["records"], each["failed"]) for each in second["rows"]] == [(100, 0)] * 7
    assert all("--embedded" in each["skipped"] for each in fifth["rows"]), "brokers of others are not killed"
    assert not [name for name in operator("topics", "list").splitlines() if name.startswith("bench-")]


def test_a_flipped_bit_and_a_broker_that_is_gone_are_named_and_the_logs_tell_when_it_went(operator: Operator) -> None:
    name = operator.topic("verified")
    verified = operator.json("verify-replicas", "--topics", "verif.*", "--once")
    assert verified["is_well"] and verified["records"] == 3000
    filled = next(each["partition"] for each in verified["partitions"] if each["replicas"][0]["records"])
    partition = f"{name}-{filled}"
    [segment] = (operator.cluster.log_dir(2) / partition).glob("*.log")
    with segment.open("r+b") as file:
        file.seek(100)
        flipped = bytes([file.read(1)[0] ^ 1])
        file.seek(100)
        file.write(flipped)
    operator.cluster.kill_broker(3)
    until(lambda: all(3 not in each["isr"] for each in operator.partitions(name)))
    shown = operator("verify-replicas", name, "--once", "--page", "replicas.html", code=1)
    assert f"{partition} on broker 2: damaged [0, 1): its bytes do not have the CRC-32C" in shown
    assert "6 replicas: broker 3 is not running" in shown and "max lag is 0 for partition" in shown
    assert f"<th>{partition}</th>" in (operator.folder / "replicas.html").read_text()
    operator("verify-replicas", "--topics", "nothing.*", "--once", code=2)

    # It comes back, and may fetch no more than what came first.
    operator(
        "produce", "-t", name, "-p", "5", stdin=b"".join(b"%03d" % number * 1_000 + b"\n" for number in range(1000))
    )
    operator("configs", "alter", "--topic", name, "--add", "follower.replication.throttled.replicas=*")
    operator("configs", "alter", "--all-brokers", "--add", "follower.replication.throttled.rate=1")
    operator.cluster.start_broker(3)
    shown = operator("verify-replicas", f"{name}:5", "--once", code=1)
    lag = re.search(rf"max lag is (\d+) for partition {name}-5 at offset \d+ on broker 3 among 1 partition", shown)
    assert lag is not None and int(lag[1]) > 0 and f"{name}-5 on broker 3: behind: {lag[1]} offsets" in shown
    operator("configs", "alter", "--all-brokers", "--delete", "follower.replication.throttled.rate")
    until(lambda: all(3 in each["isr"] for each in operator.partitions(name)))

    logs = str(operator.cluster.data_dir)
    merged = operator("state-changes", logs, "--topic", name, "--page", "changes.html").splitlines()
    assert [line for line in merged if f"{partition}: it leads" in line]
    assert [line for line in merged if f"{partition}: " in line and "3" not in line.split("ISR ")[-1].split(" of")[0]]
    assert merged == sorted(merged, key=lambda line: line[:23])
    *_, last = operator("state-changes", logs, "--output", "json").splitlines()
    assert json.loads(last)["gaps"] == [] and json.loads(last)["damaged_lines"] == 0
    without = logs_without(
        operator, lambda each: (each.get("topic"), each.get("partition"), each.get("zk_version")) == (name, 0, 1)
    )
    *_, last = operator("state-changes", str(without), "--topic", name, "--output", "json").splitlines()
    [gap] = json.loads(last)["gaps"]
    assert (gap["topic"], gap["partition"], gap["first"], gap["last"]) == (name, 0, 1, 1)
    assert f"{name}-0: no log has znode version 1, between " in gap["message"]
    assert f"{partition}: broker" in (operator.folder / "changes.html").read_text()


def logs_without(operator: Operator, is_left_out: Callable[[dict[str, Any]], bool]) -> Path:
    """The change logs of all brokers, without some of their lines."""
    folder = operator.folder / "logs"
    for file in operator.cluster.data_dir.glob("broker-*/[cs]*.log"):  # controller.log, state-change.log
        copy = folder / file.relative_to(operator.cluster.data_dir)
        copy.parent.mkdir(parents=True, exist_ok=True)
        lines = file.read_text().splitlines(keepends=True)
        copy.write_text("".join(line for line in lines if not is_left_out(json.loads(line))))
    return folder
