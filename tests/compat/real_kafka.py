"""One data folder and one ZooKeeper, on which a real Kafka broker (3.9, ZooKeeper mode) and ours take turns.

Both are processes of their own on loopback, with bounded memory, started and stopped by process id. Nothing waits for a
fixed time: every wait has a condition and a deadline. What a broker serves is read as bytes, batch by batch, over its
own protocol, so that "the same" means the same bytes.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import random
import re
import socket
import struct
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.protocol.admin import CreateTopicsRequest_v3
from aiokafka.protocol.api import RequestHeader_v1
from aiokafka.protocol.fetch import FetchRequest_v10
from aiokafka.protocol.metadata import MetadataRequest_v1
from aiokafka.protocol.offset import OffsetRequest_v1
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from strandline.cli.process import Daemon
from strandline.cli.zookeeper import EmbeddedZooKeeper
from strandline.client.errors import DeliveryTimeout, LeaderNotAvailable
from strandline.client.sync import Consumer
from strandline.client.sync_producer import Producer
from strandline.protocol.types import TopicPartition
from strandline.runtime.loopback import LOOPBACK, free_port

BROKER_ID = 1
START_TIMEOUT_S = 90.0
STOP_TIMEOUT_S = 60.0
SESSION_TIMEOUT_MS = 10_000
"""A killed broker's registration stands this long in ZooKeeper, and keeps the next one out."""
REFUSALS = (17, 36, 40, 42)
"""Invalid topic, topic exists, invalid config, invalid request: no use to ask again."""
_POLL_S = 0.02
_FETCH_BYTES = 2**20
_OFFSET_OUT_OF_RANGE = 1
_PRODUCE_TIMEOUT_S = 60.0
_REFUSED_MS = 2000
"""How long clients try what is refused."""
_numbers = itertools.count(1)

SERVER = f"""\
broker.id={BROKER_ID}
zookeeper.session.timeout.ms={SESSION_TIMEOUT_MS}
controlled.shutdown.enable=false
auto.create.topics.enable=false
offsets.topic.num.partitions=2
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
log.cleaner.backoff.ms=200
log.cleaner.dedupe.buffer.size=2000000
log.retention.check.interval.ms=300
log.flush.start.offset.checkpoint.interval.ms=300
log.initial.task.delay.ms=100
"""
LOG4J = """\
log4j.rootLogger=INFO, out
log4j.appender.out=org.apache.log4j.ConsoleAppender
log4j.appender.out.layout=org.apache.log4j.PatternLayout
log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n
"""


def wait_until(condition: Callable[[], object], what: str, timeout_s: float = START_TIMEOUT_S) -> None:
    """Return as soon as `condition` holds; fails after `timeout_s`, saying what did not happen."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"within {timeout_s:.0f} s not: {what}"
        time.sleep(_POLL_S)


class Turn(ABC):
    """What both kinds of broker have in common: a process on a port that serves one data folder."""

    def __init__(self, site: Site, kind: str) -> None:
        self.site = site
        self.port = 0
        self.process = Daemon(kind, site.folder / f"{kind}.log")
        self._config = site.folder / f"{kind}.properties"

    @property
    def address(self) -> str:
        return f"{LOOPBACK}:{self.port}"

    def start(self, **overrides: str) -> None:
        """Start on the site's folder and ZooKeeper and wait until it serves; overrides: `log_dirs` for `log.dirs`."""
        self.site.wait_for_registration_gone()
        self.port = free_port()
        own = {key.replace("_", "."): value for key, value in overrides.items()}
        config = {
            "listeners": f"PLAINTEXT://{self.address}",
            "zookeeper.connect": self.site.zookeeper.address,
            "log.dirs": ",".join(map(str, self.site.directories)),
            **self.site.properties,
            **own,
        }
        self._config.write_text(SERVER + "".join(f"{key}={value}\n" for key, value in config.items()))
        self._seen = len(self.log())
        self.process.start(self._command(), folder=self.site.folder)
        wait_until(self._is_up, f"{self.process.name} serves (log: {self.process.log_path})")

    def stop(self) -> None:
        """SIGTERM: it leaves its folder and ZooKeeper in order."""
        code = self.process.stop(STOP_TIMEOUT_S)
        assert code in (0, 128 + 15), f"{self.process.name} ended with {code}: {self.process.last_log_line()}"

    def kill(self) -> None:
        """SIGKILL; its session ends at once instead of after SESSION_TIMEOUT_MS."""
        self.process.kill()
        self.site.expire_sessions()

    def log(self) -> str:
        """What it printed, all lives together."""
        return self.process.log_path.read_text(errors="replace") if self.process.log_path.exists() else ""

    def log_of_this_life(self) -> str:
        return self.log()[self._seen :]

    @abstractmethod
    def raw(self, topic: str, partition: int = 0) -> bytes:
        """The batches of a partition, as they are answered to a consumer."""

    @abstractmethod
    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """(first offset, end)"""

    @abstractmethod
    def _command(self) -> list[str]: ...

    def _is_up(self) -> bool:
        self.process.require_alive()
        try:
            socket.create_connection((LOOPBACK, self.port), timeout=1).close()
        except OSError:
            return False
        return self._says_it_is_up()

    @abstractmethod
    def _says_it_is_up(self) -> bool: ...


class Kafka(Turn):
    """The real one."""

    def _command(self) -> list[str]:
        log4j = self.site.folder / "log4j.properties"
        log4j.write_text(LOG4J)
        return [
            self.site.java,
            *self.site.java_options,
            "-Xmx256m",
            # A short start and few threads, as for our ZooKeeper.
            "-XX:TieredStopAtLevel=1",
            "-XX:+UseSerialGC",
            "-Xshare:auto",
            "-XX:+ExitOnOutOfMemoryError",
            f"-Dlog4j.configuration=file:{log4j}",
            "-cp",
            self.site.class_path,
            "kafka.Kafka",
            str(self._config),
        ]

    def _says_it_is_up(self) -> bool:
        """For some milliseconds after it says so it knows of no broker yet, not even of itself; a client that asks then
        takes that for the cluster."""
        has_started = "started (kafka.server.KafkaServer)" in self.log_of_this_life()
        return has_started and bool(self.ask(MetadataRequest_v1([])).brokers)

    def complaints(self) -> list[str]:
        """Errors of this life, but those of partitions that wait for a leader; and warnings of a log or checkpoint."""
        warnings = re.compile(r"WARN .*(corrupt|index|checkpoint|recover|unclean|malformed|mismatch)", re.IGNORECASE)
        # Kafka's own race: its retention looks at a log that its cleaner gets to know just then.
        race = r".* ERROR Uncaught exception in .*'kafka-log-retention'.*\n.*resumed since it is not paused.*\n"
        log = re.sub(race, "", self.log_of_this_life())
        # Kafka's own, too: a log that is moved and begins inside a batch loses its first segment while it is copied.
        moves = re.compile(r"WARN Failed (atomic move of|to write to checkpoint file) \S*-future/")
        # And its controller's last words to its own broker when both stop. None of these is about a file.
        elsewhere = re.compile(r"\((state\.change\.logger|kafka\.controller\.RequestSendThread)\)")
        lines = [line for line in log.splitlines() if not (elsewhere.search(line) or moves.search(line))]
        return [line for line in lines if re.match(r"\[[^]]*\] (ERROR|FATAL) ", line) or warnings.search(line)]

    def wait_for_log(self, pattern: str) -> None:
        """Until this life has printed something that matches."""
        wait_until(lambda: re.search(pattern, self.log_of_this_life()), f"in {self.process.log_path}: {pattern}")

    def create_topic(self, name: str, *, partitions: int = 1, **config: str) -> None:
        """Configuration keys with underscores; nothing expires unless it says so."""
        self.create_topic_with(
            name, {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in config.items()}}, partitions
        )

    def create_topic_with(self, name: str, settings: Mapping[str, str], partitions: int = 1) -> None:
        """Returns when it can be written to."""
        request = CreateTopicsRequest_v3([(name, partitions, 1, [], list(settings.items()))], 30_000, False)
        answers: list[tuple[str, int, str]] = []

        def is_created() -> bool:
            answers.append(self.ask(request).topic_errors[0])
            assert answers[-1][1] not in REFUSALS, f"{answers[-1]}: {settings}"
            return answers[-1][1] == 0

        # Its controller gets to know its broker, and to be it.
        wait_until(is_created, f"{name} is created", 30)
        self.bounds(name, partitions - 1)

    def produce(
        self, topic: str, records: Sequence[tuple[bytes | None, bytes]], *, age_ms: int = 0, **settings: Any
    ) -> None:
        """(key, value) each, in order, to partition 0, in batches of some ten records; settings: of aiokafka."""
        asyncio.run(asyncio.wait_for(self._produce(topic, records, age_ms, settings), _PRODUCE_TIMEOUT_S))

    async def _produce(
        self, topic: str, records: Sequence[tuple[bytes | None, bytes]], age_ms: int, settings: Mapping[str, Any]
    ) -> None:
        sent_ms = int(time.time() * 1000) - age_ms
        producer = AIOKafkaProducer(bootstrap_servers=self.address, acks="all", **settings)
        await producer.start()
        try:
            for start in range(0, len(records), 10):
                tens = records[start : start + 10]
                await asyncio.gather(*[await producer.send(topic, value, key, 0, sent_ms) for key, value in tens])
        finally:
            await producer.stop()

    def raw(self, topic: str, partition: int = 0) -> bytes:
        """Every batch that it serves, from the log start to the high watermark."""
        start, end = self.bounds(topic, partition)
        offset, parts = start, []
        while offset < end:
            code, batches = self._fetch(topic, partition, offset)
            if code == _OFFSET_OUT_OF_RANGE and self.bounds(topic, partition)[0] > offset:
                return self.raw(topic, partition)  # retention was faster
            assert code == 0, f"fetching {topic}-{partition} from {offset}: error {code}"
            assert batches, f"{topic}-{partition}: nothing at {offset}, high watermark {end}"
            parts.append(whole_batches(batches))
            offset = end_offset(parts[-1])
        return b"".join(parts)

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Log start and high watermark, as soon as it leads."""
        wait_until(lambda: self._fetch(topic, partition, 0)[0] in (0, 1), f"{topic} has a leader")
        return self._list_offset(topic, partition, -2), self._list_offset(topic, partition, -1)

    def _list_offset(self, topic: str, partition: int, timestamp_ms: int) -> int:
        answer = self.ask(OffsetRequest_v1(-1, [(topic, [(partition, timestamp_ms)])]))
        (_, code, _, offset) = answer.topics[0][1][0]
        assert code == 0, f"{topic}-{partition}: error {code}"
        return int(offset)

    def _fetch(self, topic: str, partition: int, offset: int) -> tuple[int, bytes]:
        """(error code, batches)."""
        partitions = [(partition, -1, offset, -1, _FETCH_BYTES)]
        answer = self.ask(FetchRequest_v10(-1, 0, 0, _FETCH_BYTES, 0, 0, -1, [(topic, partitions)], []))
        (_, code, *_, batches) = answer.topics[0][1][0]
        return code, batches or b""

    def ask(self, request: Any) -> Any:
        return ask(self.port, request)


def ask(port: int, request: Any) -> Any:
    """One request of aiokafka's on a connection of its own."""
    number = next(_numbers)
    body = RequestHeader_v1(request, number, "compat").encode() + request.encode()
    with socket.create_connection((LOOPBACK, port), timeout=60) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = connection.makefile("rb")
        size, answered = struct.unpack(">ii", answer.read(8))
        assert answered == number
        return request.RESPONSE_TYPE.decode(answer.read(size - 4))


class Ours(Turn):
    """Our broker."""

    def _command(self) -> list[str]:
        return [sys.executable, "-P", "-m", "strandline.cli", "broker", "--config", str(self._config)]

    def _says_it_is_up(self) -> bool:
        return self.site.is_registered()

    def raw(self, topic: str, partition: int = 0) -> bytes:
        """Every batch that it serves, from the log start to the high watermark."""
        tp = TopicPartition(topic, partition)
        with Consumer(self.address) as consumer:
            consumer.assign([tp])
            consumer.seek_to_beginning(tp)
            start, end = self.bounds(topic, partition)
            parts: list[bytes] = []
            deadline = time.monotonic() + 60
            while (end_offset(parts[-1]) if parts else start) < end:
                assert time.monotonic() < deadline, f"{tp} is not served up to {end}"
                parts += [bytes(fetched.records) for fetched in consumer.fetch_batches(timeout_ms=500)]
        return b"".join(parts)

    def bounds(self, topic: str, partition: int = 0) -> tuple[int, int]:
        """Log start and high watermark."""
        tp = TopicPartition(topic, partition)
        with Consumer(self.address) as consumer:
            return consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]


def assert_refused(ours: Ours, reasons: Mapping[str, str]) -> None:
    """The log of the broker's present life says why (a pattern by topic), and so do producers and consumers of each
    partition 0. They all try for some time: side by side."""
    words = {topic: rf"{topic}-0 {why}" for topic, why in reasons.items()}
    for topic, pattern in words.items():
        assert re.search(pattern, ours.log_of_this_life()), f"{topic} is refused without a reason"

    def is_not_read(topic: str) -> None:
        with Consumer(ours.address) as consumer, pytest.raises(LeaderNotAvailable, match=words[topic]):
            consumer.end_offsets([TopicPartition(topic, 0)], timeout_ms=_REFUSED_MS)

    with (
        Producer(ours.address, acks="all", delivery_timeout_ms=_REFUSED_MS, request_timeout_ms=1000) as producer,
        ThreadPoolExecutor(len(words)) as readers,
    ):
        futures = {topic: producer.send(topic, b"not for us", partition=0) for topic in words}
        reads = [readers.submit(is_not_read, topic) for topic in words]
        for topic, future in futures.items():
            told = f"has no leader; broker {BROKER_ID} does not serve its replica: .*{words[topic]}"
            with pytest.raises(DeliveryTimeout, match=told):
                future.result()
        for read in reads:
            read.result()


class Site:
    """Data folders (`data`, `data-2`, …), a ZooKeeper, and the two brokers that can be started on them in turn."""

    def __init__(
        self,
        folder: Path,
        *,
        java: str,
        class_path: str,
        java_options: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        directories: int = 1,
    ) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.directories = [self.data, *(folder / f"data-{number}" for number in range(2, directories + 1))]
        self.java = java
        self.class_path = class_path
        self.java_options = java_options
        self.properties = dict(properties or {})
        self.zookeeper = EmbeddedZooKeeper(folder / "zookeeper")
        self.kafka = Kafka(self, "kafka")
        self.ours = Ours(self, "ours")

    @contextlib.contextmanager
    def znodes(self) -> Iterator[KazooClient]:
        """A connection to the ZooKeeper."""
        client = KazooClient(hosts=self.zookeeper.address, timeout=30)
        client.start(timeout=30)
        try:
            yield client
        finally:
            client.stop()
            client.close()

    def is_registered(self) -> bool:
        with self.znodes() as client:
            return client.exists(f"/brokers/ids/{BROKER_ID}") is not None

    def wait_for_registration_gone(self) -> None:
        """A killed broker is registered until its session expired."""
        with self.znodes() as client:
            path = f"/brokers/ids/{BROKER_ID}"
            wait_until(lambda: client.exists(path) is None, "the broker before left ZooKeeper", 30)

    def expire_sessions(self) -> None:
        """What ZooKeeper does when a killed broker's session ends: its ephemeral znodes go."""
        with self.znodes() as client:
            for path in (f"/brokers/ids/{BROKER_ID}", "/controller"):
                with contextlib.suppress(NoNodeError):
                    client.delete(path)

    def files(self, *suffixes: str, topic: str = "*") -> dict[str, bytes]:
        """`<folder>/<name>` → content, of partition folders."""
        found = [(path, where) for where in self.directories for path in where.glob(f"{topic}-*/*")]
        named = {str(path.relative_to(where)): path for path, where in found if path.name.endswith(suffixes)}
        return {name: named[name].read_bytes() for name in sorted(named)}

    def close(self) -> None:
        for turn in (self.kafka, self.ours):
            turn.process.stop(5.0)
        self.zookeeper.stop()


def whole_batches(data: bytes) -> bytes:
    """Without the piece of a batch at the end of a fetch."""
    end = 0
    while len(data) - end >= 12 and len(data) - end >= 12 + struct.unpack_from(">i", data, end + 8)[0]:
        end += 12 + struct.unpack_from(">i", data, end + 8)[0]
    return data[:end]


def end_offset(batches: bytes) -> int:
    """The offset behind the last of these whole batches; formats 0 and 1 name their last offset itself."""
    at = last = 0
    while at < len(batches):
        last, at = at, at + 12 + struct.unpack_from(">i", batches, at + 8)[0]
    delta = struct.unpack_from(">i", batches, last + 23)[0] if batches[last + 16] == 2 else 0
    return int(struct.unpack_from(">q", batches, last)[0] + delta + 1)


def numbered(count: int, size: int = 100) -> list[tuple[bytes | None, bytes]]:
    """Records with seven keys and values that no codec makes much smaller."""
    return [(b"k%d" % (place % 7), random.Random(place).randbytes(size)) for place in range(count)]
