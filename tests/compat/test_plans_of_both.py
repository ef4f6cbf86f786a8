"""Plans for partitions: those of `strandline reassign` work in Kafka's tool, of 3.9 and 4, and Kafka's work in ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from compat.kafka_tools import KafkaTools
from compat.tool_scenario import VERSIONS
from strandline.cli.cluster import EmbeddedCluster

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(tmp_path_factory.mktemp("plans"), 3) as cluster:
        yield cluster


class Both:
    """Commands of ours and of Kafka's, in one folder."""

    def __init__(self, cluster: EmbeddedCluster, tools: KafkaTools, folder: Path) -> None:
        self.cluster = cluster
        self.tools = tools
        self.folder = folder

    def ours(self, *args: str, code: int = 0) -> str:
        environment = {**os.environ, "STRANDLINE_BOOTSTRAP": self.cluster.bootstrap_servers}
        command = [sys.executable, "-m", "strandline.cli", *args]
        ran = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert ran.returncode == code, (args, ran.stdout, ran.stderr)
        return ran.stdout

    def kafkas(self, *args: str) -> str:
        printed, _ = self.tools.run(
            " ".join(["kafka-reassign-partitions --bootstrap-server", self.cluster.bootstrap_servers, *args])
        )
        return printed

    def until_kafka_says_done(self, file: str, partitions: int) -> str:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            said = self.kafkas("--verify", "--reassignment-json-file", file)
            if said.count("is completed") == partitions or time.monotonic() > deadline:
                return said
            time.sleep(0.5)

    def replicas(self, topic: str) -> list[list[int]]:
        shown: Any = json.loads(self.ours("topics", "describe", topic, "--output", "json"))
        return [each["replicas"] for each in shown["topics"][0]["partitions"]]


@pytest.fixture(params=VERSIONS)
def both(served: EmbeddedCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Both]:
    with KafkaTools(request.param, tmp_path) as tools:
        yield Both(served, tools, tmp_path)


def test_a_plan_goes_from_one_tool_to_the_other_and_back(both: Both) -> None:
    topic = f"moved-{both.folder.name.replace('[', '-').replace(']', '')}"
    both.ours("topics", "create", topic, "--replica-assignment", "1:2,1:2,1:2,1:2")
    plan, topics = both.folder / "plan.json", both.folder / "topics.json"

    both.ours("reassign", "generate", "-t", topic, "--brokers", "2,3", "--plan-file", str(plan))
    said = both.kafkas("--execute", "--throttle", "1000000", "--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignment" in said
    wanted = [each["replicas"] for each in json.loads(plan.read_text())["partitions"]]
    assert "is completed" in both.until_kafka_says_done(str(plan), len(wanted))
    assert both.replicas(topic) == wanted
    assert "4 of 4 partitions done" in both.ours("reassign", "verify", str(plan))

    topics.write_text(json.dumps({"topics": [{"topic": topic}], "version": 1}))
    said = both.kafkas("--generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,3")
    theirs = both.folder / "theirs.json"
    theirs.write_text(said.strip().splitlines()[-1])
    both.ours("reassign", "execute", str(theirs), "--throttle", "1000000", "--wait")
    assert {tuple(sorted(each)) for each in both.replicas(topic)} == {(1, 3)}
    back = both.folder / "theirs.rollback.json"
    assert "Successfully started" in both.kafkas("--execute", "--reassignment-json-file", str(back))
    both.until_kafka_says_done(str(back), 4)
    assert both.replicas(topic) == wanted
    ours = both.ours("reassign", "generate", "--topics-to-move-json-file", str(topics), "--broker-list", "1,2")
    proposed = both.folder / "proposed.json"
    proposed.write_text(ours.strip().splitlines()[-1])
    assert "Successfully started" in both.kafkas("--execute", "--reassignment-json-file", str(proposed))
