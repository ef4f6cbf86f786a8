"""What the README tells users of other Kafka clients to type, tried as it stands there."""

from __future__ import annotations

import shlex

from compat.jars import KAFKA_3
from compat.other_clients import INSTALLED, java, run
from support.readme import block

HEADING = "From any Kafka client"


def type_what_the_readme_says(bootstrap: str) -> None:
    """kafka-topics, kcat and confluent-kafka, at this cluster instead of `localhost:9092`."""

    def shell(lines: list[str]) -> str:
        topics = shlex.join(java(KAFKA_3, "org.apache.kafka.tools.TopicCommand"))
        script = "\n".join(["set -euo pipefail", f'kafka-topics() {{ {topics} "$@"; }}', *lines])
        return run(["bash", "-c", script.replace("localhost:9092", bootstrap)]).decode()

    *writing, reading = block(HEADING, "").splitlines()
    assert "Created topic orders." in shell(writing)
    program = block(HEADING, "python").replace("localhost:9092", bootstrap)
    assert run([str(INSTALLED / "venv" / "bin" / "python"), "-c", program]) == b"0 records are not acknowledged\n"
    assert sorted(shell([reading]).splitlines()) == ["ann: 4 apples", "bob: 2 pears", "eve: 1 melon"]
