"""The two systems of `against_kafka.py`: three brokers and a ZooKeeper each, as plain processes on loopback.

Both are asked over Kafka's protocol only, and both get what their makers give a broker in production: Kafka the JVM
flags of its own start script and 1 GB of heap, ours its defaults. What an answer waits for is the same for both:
min.insync.replicas=2, one fetcher per leader, 6 s sessions, 8 partitions of `__consumer_offsets`.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from compat.jars import KAFKA_3
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.java import find_java
from strandline.cli.process import Daemon
from strandline.cli.zookeeper import EmbeddedZooKeeper
from strandline.protocol.api import ApiKey
from strandline.protocol.kafka.schemas import read_entity, request_class, response_class, write_entity
from strandline.runtime.loopback import LOOPBACK, free_port
from support.kafka_client import made
from support.kafka_frames import kafka_frame

BROKERS = 3
SESSION_TIMEOUT_MS = 6_000
START_TIMEOUT_S = 120.0
CPUCLOCK_SCHED = 2
"""Linux: the clock of another process has its inverted id, and this kind of time in the last three bits."""
PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
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


class Connection:
    """Kafka's protocol, one request at a time, on a blocking socket."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address, timeout=60)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = self.socket.makefile("rb")

    def ask(self, api_key: ApiKey, version: int, **fields: Any) -> Any:
        """The answer of a request with these fields; ConnectionError when the connection ends first."""
        self.send(api_key, version, **fields)
        return self.receive(api_key, version)

    def send(self, api_key: ApiKey, version: int, **fields: Any) -> None:
        entity = request_class(api_key, version)
        body = write_entity(made(entity, fields))
        self.socket.sendall(kafka_frame(api_key, version, body, correlation_id=1, flexible=entity.__flexible__))

    def receive(self, api_key: ApiKey, version: int) -> Any:
        """The next answer, which is to a request of this kind. ConnectionError: see `ask`."""
        answer = response_class(api_key, version)
        (size,) = struct.unpack(">i", self._read(4))
        tags = answer.__flexible__ and api_key is not ApiKey.API_VERSIONS
        return read_entity(answer, memoryview(self._read(size)[4 + tags :]))

    def _read(self, size: int) -> bytes:
        data = self._answers.read(size)
        if len(data) < size:
            raise ConnectionError("the broker closed the connection")
        return data

    def close(self) -> None:
        self._answers.close()
        self.socket.close()


class System(ABC):
    """Three brokers that run between `start` and `stop`."""

    name: str

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def start(self) -> None:
        """ZooKeeper and the brokers on empty folders; returns when each answers."""

    @abstractmethod
    def stop(self) -> None: ...

    @property
    @abstractmethod
    def daemons(self) -> list[Daemon]:
        """The brokers."""

    @property
    @abstractmethod
    def addresses(self) -> list[tuple[str, int]]: ...

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.addresses)

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def pids(self) -> list[int]:
        return [daemon.id.pid for daemon in self.daemons if daemon.id is not None]

    def cpu_seconds(self) -> float:
        """Of all brokers since their start, with all their threads, also those that ended."""
        return sum(time.clock_gettime(~pid << 3 | CPUCLOCK_SCHED) for pid in self.pids())

    def rss_mb(self) -> float:
        """The mean resident set of a broker, in 10^6 bytes."""
        pages = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in self.pids()]
        return sum(pages) / len(pages) * os.sysconf("SC_PAGE_SIZE") / 1e6

    def create_topic(self, topic: str, partitions: int) -> None:
        """Returns when all replicas of each partition are in sync."""
        connection = self._of_controller()
        try:
            wanted = {"name": topic, "num_partitions": partitions, "replication_factor": BROKERS}
            answer = connection.ask(ApiKey.CREATE_TOPICS, _CREATE_TOPICS_VERSION, topics=[wanted])
            code = answer.topics[0].error_code
            if code:
                raise RuntimeError(f"{self.name}: {topic} was not created: {code!r}")
        finally:
            connection.close()
        self.wait_for_topic(topic, partitions)

    def wait_for_topic(self, topic: str, partitions: int) -> dict[int, tuple[str, int]]:
        """The leader's address of each partition, once all brokers tell of all replicas in sync."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while True:
            answers = [self._metadata(address, topic) for address in self.addresses]
            if all(_is_whole(answer, partitions) for answer in answers):
                nodes = {int(broker.node_id): (broker.host, broker.port) for broker in answers[0].brokers}
                found = answers[0].topics[0].partitions
                return {part.partition_index: nodes[int(part.leader_id)] for part in found}
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.name}: {topic} does not get whole: {answers}")
            time.sleep(0.02)

    def delete_topic(self, topic: str) -> None:
        connection = self._of_controller()
        try:
            connection.ask(ApiKey.DELETE_TOPICS, _DELETE_TOPICS_VERSION, topic_names=[topic])
        finally:
            connection.close()

    def _of_controller(self) -> Connection:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            answer = self._metadata(self.addresses[0], None)
            for broker in answer.brokers:
                if broker.node_id == answer.controller_id and len(answer.brokers) == BROKERS:
                    return Connection((broker.host, broker.port))
            time.sleep(0.02)
        raise RuntimeError(f"{self.name}: no controller, or not all brokers")

    def _metadata(self, address: tuple[str, int], topic: str | None) -> Any:
        connection = Connection(address)
        try:
            topics = [{"name": topic}] if topic is not None else []
            return connection.ask(ApiKey.METADATA, _METADATA_VERSION, topics=topics)
        finally:
            connection.close()

    def _wait_until_answered(self) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        for address in self.addresses:
            while True:
                for daemon in self.daemons:
                    daemon.require_alive()
                try:
                    self._metadata(address, None)
                    break
                except OSError:
                    if time.monotonic() > deadline:
                        raise
                    time.sleep(0.01)


def _is_whole(answer: Any, partitions: int) -> bool:
    found = answer.topics[0].partitions if answer.topics else ()
    return len(found) == partitions and all(part.leader_id >= 0 and len(part.isr_nodes) == BROKERS for part in found)


class Strandline(System):
    name = "strandline"

    def start(self) -> None:
        self._cluster = EmbeddedCluster(
            self.folder,
            brokers=BROKERS,
            base_port=None,
            properties=PROPERTIES,
            session_timeout_ms=SESSION_TIMEOUT_MS,
        )
        self._cluster.start()

    def stop(self) -> None:
        self._cluster.stop()

    @property
    def daemons(self) -> list[Daemon]:
        return list(self._cluster.brokers.values())

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(address.host, address.port) for address in map(self._cluster.address, self._cluster.broker_ids)]


class Kafka(System):
    """The real one, 3.9 with ZooKeeper, from its Maven jars."""

    name = "kafka"

    JVM = (
        *("-server", "-Xms1g", "-Xmx1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-XX:MaxInlineLevel=15"),
        "-Djava.awt.headless=true",
    )
    LOG4J = (
        "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
    )
    OWN_PROPERTIES = {
        "num.network.threads": "3",
        "num.io.threads": "8",
        "num.replica.fetchers": "1",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "zookeeper.session.timeout.ms": str(SESSION_TIMEOUT_MS),
    }

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._class_path = KAFKA_3.class_path()
        self._java = str(find_java().command)
        self._zookeeper = EmbeddedZooKeeper(folder / "zookeeper", heap_mb=512)
        self._brokers = {n: Daemon(f"kafka-{n}", folder / f"kafka-{n}.log") for n in range(1, BROKERS + 1)}
        self._ports: dict[int, int] = {}

    def start(self) -> None:
        self._zookeeper.folder.mkdir(exist_ok=True)
        self._zookeeper.start()
        log4j = self.folder / "log4j.properties"
        log4j.write_text(self.LOG4J)
        for number, daemon in self._brokers.items():
            self._ports[number] = free_port()
            config = {
                "broker.id": str(number),
                "listeners": f"PLAINTEXT://{LOOPBACK}:{self._ports[number]}",
                "zookeeper.connect": self._zookeeper.address,
                "log.dirs": str(self.folder / f"data-{number}"),
                **PROPERTIES,
                **self.OWN_PROPERTIES,
            }
            path = self.folder / f"kafka-{number}.properties"
            path.write_text("".join(f"{key}={value}\n" for key, value in config.items()))
            options = (*self.JVM, f"-Dlog4j.configuration=file:{log4j}")
            daemon.start([self._java, *options, "-cp", self._class_path, "kafka.Kafka", str(path)], folder=self.folder)
        self._wait_until_answered()

    def stop(self) -> None:
        for daemon in self._brokers.values():
            daemon.kill()
        self._zookeeper.stop()

    @property
    def daemons(self) -> list[Daemon]:
        return list(self._brokers.values())

    @property
    def addresses(self) -> list[tuple[str, int]]:
        return [(LOOPBACK, port) for _, port in sorted(self._ports.items())]
