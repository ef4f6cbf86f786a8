"""The two systems of `against_kafka.py` and `failure_table.py`: three brokers and a ZooKeeper each, on loopback.

Both are asked over Kafka's protocol only, and both get what their makers give a broker in production: Kafka the JVM
flags of its own start script and 1 GB of heap, ours its defaults. What an answer waits for is the same for both:
min.insync.replicas=2, one fetcher per leader, 6 s sessions, 8 partitions of `__consumer_offsets`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from compat.real_cluster import RealCluster
from strandline.cli.cluster import EmbeddedCluster
from strandline.protocol.api import ApiKey
from strandline.protocol.errors import ErrorCode
from support.kafka_socket import KafkaSocket

BROKERS = 3
SESSION_TIMEOUT_MS = 6_000
START_TIMEOUT_S = 120.0
CPUCLOCK_SCHED = 2
"""Linux: the clock of another process has its inverted id, and this kind of time in the last three bits."""
PROPERTIES = {
    "offsets.topic.num.partitions": "8",
    "offsets.topic.replication.factor": "3",
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "log.segment.bytes": str(2**30),
    "log.segment.delete.delay.ms": "1000",
}
_CREATE_TOPICS_VERSION = 4
_METADATA_VERSION = 8
_DELETE_TOPICS_VERSION = 3


class KafkaInProduction(RealCluster):
    """The real one, with the options of its own start script."""

    JVM = (
        *("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
        "-Djava.awt.headless=true",
    )


CLUSTERS: dict[str, Callable[..., EmbeddedCluster]] = {"kafka": KafkaInProduction, "strandline": EmbeddedCluster}


class System:
    """Three brokers that run within a `with` block, on empty folders. `name`: of `CLUSTERS`."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name = name
        self.cluster = CLUSTERS[name](
            folder, brokers=BROKERS, base_port=None, properties=PROPERTIES, session_timeout_ms=SESSION_TIMEOUT_MS
        )

    def __enter__(self) -> Self:
        self.cluster.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cluster.stop()

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(address.host, address.port) for address in map(self.cluster.address, self.cluster.broker_ids)]

    @property
    def bootstrap(self) -> str:
        return self.cluster.bootstrap_servers

    def cpu_seconds(self) -> float:
        """Of all brokers since their start, with all their threads, also those that ended."""
        return sum(time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED) for pid in self._pids())

    def rss_mb(self) -> float:
        """The mean resident set of a broker, in 10^6 bytes."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self._pids()]
        return sum(pages) / len(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def create_topic(self, topic: str, partitions: int) -> None:
        """Returns when all brokers tell that all replicas of each partition are in sync."""
        wanted = {"name": topic, "num_partitions": partitions, "replication_factor": BROKERS}
        deadline, code = time.monotonic() + START_TIMEOUT_S, None
        while code is None or (code == ErrorCode.NOT_CONTROLLER and time.monotonic() < deadline):
            with self._controller() as connection:  # after a fault it may be another one by now
                answer = connection.ask(ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, topics=[wanted])
            code = answer.topics[0].error_code
        if code:
            raise RuntimeError(f"{self.name}: {topic} was not created: {code!r}")
        while not all(_is_whole(self._metadata(each, topic), partitions) for each in self.addresses):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: {topic} does not get whole")
            time.sleep(0.02)

    def wait_complete(self) -> None:
        """Until every broker takes connections and knows of all the others, and of a controller."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while not all(map(self._knows_all, self.addresses)):
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: not all brokers are back")
            time.sleep(0.1)

    def _knows_all(self, address: tuple[str, int]) -> bool:
        try:
            answer = self._metadata(address, None)
        except OSError:
            return False
        return len(answer.brokers) == BROKERS and answer.controller_id >= 0

    def layout(self, topic: str) -> tuple[int, dict[int, int]]:
        """(the controller, who leads each partition of the topic), as a broker tells it."""
        answer = self._metadata(self.addresses[0], topic)
        return answer.controller_id, {part.partition_index: part.leader_id for part in answer.topics[0].partitions}

    def delete_topic(self, topic: str) -> None:
        with self._controller() as connection:
            connection.ask(ApiKey.DELETE_TOPICS, _DELETE_TOPICS_VERSION, topic_names=[topic])

    def _pids(self) -> list[int]:
        return [daemon.id.pid for daemon in self.cluster.brokers.values() if daemon.id is not None]

    def _controller(self) -> KafkaSocket:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            answer = self._metadata(self.addresses[0], None)
            for broker in answer.brokers:
                if broker.node_id == answer.controller_id and len(answer.brokers) == BROKERS:
                    return KafkaSocket((broker.host, broker.port))
            time.sleep(0.02)
        raise RuntimeError(f"{self.name}: no controller, or not all brokers")

    def _metadata(self, address: tuple[str, int], topic: str | None) -> Any:
        with KafkaSocket(address) as connection:
            topics = [{"name": topic}] if topic is not None else []
            return connection.ask(ApiKey.METADATA, _METADATA_VERSION, topics=topics)


def _is_whole(answer: Any, partitions: int) -> bool:
    found = answer.topics[0].partitions if answer.topics else ()
    return len(found) == partitions and all(part.leader_id >= 0 and len(part.isr_nodes) == BROKERS for part in found)
