"""Write the golden transcripts of Kafka's tools anew, from a real Kafka: `make compat-golden`."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from compat.kafka_tools import KafkaTools
from compat.real_cluster import RealCluster
from compat.tool_scenario import GOLDEN, PROPERTIES, VERSIONS, Stage

SETTLE_S = 1.5


def record(version: str) -> None:
    """With the tools of this version, on three brokers that have nothing yet."""
    folder = Path(tempfile.mkdtemp(prefix="golden-"))
    with RealCluster(folder, properties=PROPERTIES) as cluster, KafkaTools(version, folder) as tools:
        for chapter, transcript in Stage(cluster, tools, folder, SETTLE_S).play():
            (GOLDEN / f"{chapter}-{version}.txt").write_text(transcript)


if __name__ == "__main__":
    logging.disable()  # py4j's complaints about tools that did not end when their machine did
    for version in VERSIONS:
        record(version)
