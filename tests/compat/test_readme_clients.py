"""What the README tells users of other Kafka clients to type works as it stands there."""

from __future__ import annotations

import shlex
from collections.abc import Iterator

import pytest

from compat.jars import KAFKA_3
from compat.other_clients import INSTALLED, java, run
from integration.test_readme import block
from strandline.cli.cluster import EmbeddedCluster

HEADING = "From any Kafka client"


@pytest.fixture
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    cluster = EmbeddedCluster(tmp_path_factory.mktemp("cluster"), 3)
    try:
        cluster.start()
        yield cluster.bootstrap_servers
    finally:
        cluster.stop(timeout_s=10)


def test_kcat_confluent_kafka_and_kafka_topics_work_as_it_is_written(bootstrap: str) -> None:
    def shell(lines: list[str]) -> str:
        topics = shlex.join(java(KAFKA_3, "org.apache.kafka.tools.TopicCommand"))
        script = "\n".join(["set -euo pipefail", f'kafka-topics() {{ {topics} "$@"; }}', *lines])
        return run(["bash", "-c", script.replace("localhost:9092", bootstrap)]).decode()

    *writing, reading = block(HEADING, "").splitlines()
    assert "Created topic orders." in shell(writing)
    program = block(HEADING, "python").replace("localhost:9092", bootstrap)
    assert run([str(INSTALLED / "venv" / "bin" / "python"), "-c", program]) == b"0 records are not acknowledged\n"
    assert sorted(shell([reading]).splitlines()) == ["ann: 4 apples", "bob: 2 pears", "eve: 1 melon"]
