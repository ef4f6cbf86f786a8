"""`kafka-reassign-partitions` of Kafka 3.9 and 4 moves partitions between brokers of ours: generate, execute, verify,
list and cancel."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from compat.kafka_tools import KafkaTools
from compat.real_kafka import wait_until
from compat.tool_scenario import PROPERTIES, VERSIONS
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.json_files import read_assignment
from strandline.client import Producer
from strandline.protocol.types import TopicPartition

BROKERS = 5


class Tool:
    """The tool, on a topic `clicks` with two partitions on brokers 1 to 3."""

    def __init__(self, cluster: EmbeddedCluster, tools: KafkaTools, folder: Path) -> None:
        self.cluster, self._tools, self.folder = cluster, tools, folder
        self._bootstrap = str(cluster.address(1))

    def run(self, command: str, code: int = 0) -> str:
        text, found = self._tools.run(f"{command} --bootstrap-server {self._bootstrap}")
        assert found == code, text
        return text

    def reassign(self, what: str) -> str:
        return self.run(f"kafka-reassign-partitions {what}")

    def plan(self, targets: Mapping[int, Sequence[int]], name: str = "plan.json", topic: str = "clicks") -> str:
        """A file for the tool."""
        partitions = [{"topic": topic, "partition": p, "replicas": list(to)} for p, to in targets.items()]
        path = self.folder / name
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return f"--reassignment-json-file {path}"

    def verify_until(self, plan: str, text: str) -> str:
        seen = ""

        def is_done() -> bool:
            nonlocal seen
            seen = self.reassign(f"--verify {plan}")
            return text in seen

        wait_until(is_done, text)
        return seen

    def describe(self) -> str:
        return self.run("kafka-topics --describe --topic clicks")


@pytest.fixture(scope="module", params=VERSIONS)
def tool(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tool]:
    folder = tmp_path_factory.mktemp("reassignments")
    with (
        EmbeddedCluster(folder, BROKERS, properties=PROPERTIES) as cluster,
        KafkaTools(str(request.param), folder) as tools,
    ):
        tool = Tool(cluster, tools, folder)
        tool.run("kafka-topics --create --topic clicks --replica-assignment 1:2:3,2:3:1")
        yield tool


def test_the_tool_moves_partitions_and_says_so(tool: Tool) -> None:
    plan = tool.plan({0: [4, 5, 3], 1: [3]})
    started = tool.reassign(f"--execute {plan}")
    assert "Successfully started partition reassignments for clicks-0,clicks-1" in started
    seen = tool.verify_until(plan, "Reassignment of partition clicks-1 is completed.")
    seen = tool.verify_until(plan, "Reassignment of partition clicks-0 is completed.")
    assert "still in progress" not in seen
    described = tool.describe()
    assert "Replicas: 4,5,3" in described
    assert "Replicas: 3\t" in described
    assert "No partition reassignments found." in tool.reassign("--list")


def test_the_tool_generates_a_plan_and_its_way_back(tool: Tool, tmp_path: Path) -> None:
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": "clicks"}]}))
    text = tool.reassign(f"--generate --broker-list 1,2 --topics-to-move-json-file {topics}")
    current, proposed = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    assert {p for each in proposed["partitions"] for p in each["replicas"]} <= {1, 2}
    assert len(current["partitions"]) == 2


def test_the_way_back_that_the_tool_prints_is_gone(tool: Tool) -> None:
    """Later tools print in which directory each replica lies, and want it to lie there again."""
    tool.run("kafka-topics --create --topic sent --replica-assignment 1:2")
    started = tool.reassign(f"--execute {tool.plan({0: [3, 4]}, 'there.json', topic='sent')}")
    [printed] = [line for line in started.splitlines() if line.startswith("{")]
    done = "Reassignment of partition sent-0 is completed."
    tool.verify_until(f"--reassignment-json-file {tool.folder / 'there.json'}", done)
    back = tool.folder / "back.json"
    back.write_text(printed)
    tool.reassign(f"--execute --reassignment-json-file {back}")
    tool.verify_until(f"--reassignment-json-file {back}", done)
    assert read_assignment(back) == {TopicPartition("sent", 0): (1, 2)}
    assert "Replicas: 1,2\t" in tool.run("kafka-topics --describe --topic sent")


def test_what_is_under_way_is_listed_and_cancelled(tool: Tool) -> None:
    """It takes minutes: a throttle lets one batch through in some seconds."""
    tool.run("kafka-topics --create --topic held --replica-assignment 1:2")
    with Producer(tool.cluster.bootstrap_servers) as producer:
        for _ in range(40):
            producer.send("held", b"one batch")
            producer.flush()
    rate, replicas = "follower.replication.throttled.rate", "follower.replication.throttled.replicas"
    tool.run(f"kafka-configs --alter --entity-type brokers --entity-name 4 --add-config {rate}=1")
    tool.run(f"kafka-configs --alter --entity-type topics --entity-name held --add-config {replicas}=*")
    plan = tool.plan({0: [1, 4]}, "held.json", topic="held")
    tool.reassign(f"--execute {plan}")
    assert "held-0: replicas: 1,4,2. adding: 4. removing: 2." in tool.reassign("--list")
    assert "Reassignment of partition held-0 is still in progress." in tool.reassign(f"--verify {plan}")
    assert "Successfully cancelled partition reassignment for: held-0" in tool.reassign(f"--cancel {plan}")
    wait_until(lambda: "No partition reassignments found." in tool.reassign("--list"), "nothing is under way")
    assert "Replicas: 1,2\t" in tool.run("kafka-topics --describe --topic held")


def test_what_cannot_be_is_refused_in_words(tool: Tool) -> None:
    plan = tool.plan({0: [1, 9]}, "wrong.json")
    assert "Unknown broker id 9" in tool.run(f"kafka-reassign-partitions --execute {plan}", code=1)
