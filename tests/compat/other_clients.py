"""Everybody else's clients as processes: how each is told what to send, and how what it reads is told.

`scripts/kafka-clients` installs them. Those in Python, KafkaJS and franz-go have drivers of one command line
(`clients/driver.py`); kcat and Kafka's console tools are programs already, so here their lines are made from records
and taken apart again. Whatever a client reads comes out as `Read`: equal for every client that read the same.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import tempfile
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from compat.jars import KAFKA_3, KAFKA_4, Jars
from strandline.cli.java import find_java

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".cache" / "kafka-clients"
DRIVERS = Path(__file__).with_name("clients")
RECORDS = int(os.environ.get("STRANDLINE_COMPAT_RECORDS", "5000"))
"""How many each client writes, and all the others read."""
PROCESS_TIMEOUT_S = 150.0 + RECORDS / 200
REPEATING_KEYS = 97
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Small and quick to start: one Java at a time runs beside brokers on a small machine. No file of counters: it is named
# by the process id, and where a container shares /tmp another Java may have the same; that is told on stdout.
JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-XX:-UsePerfData")
NULL = "\\N"
SESSION_TIMEOUT_MS = 6000
HEARTBEAT_INTERVAL_MS = 1000
COMMIT_INTERVAL_MS = 500
"""Of members in a group. Those of the drivers stand there; and they commit what each poll brought."""
JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
}


class Sent(NamedTuple):
    """One record as it was given. `timestamp`: None where the client does not let one be given."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int | None


class Read(NamedTuple):
    """One record as it was read. `topic`: empty where the client does not tell it."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    def matches(self, sent: Sent) -> bool:
        same_time = sent.timestamp in (None, self.timestamp)
        return same_time and (self.key, self.value, self.headers) == (sent.key, sent.value, sent.headers)


class ClientFailed(AssertionError):
    """A client ended with an error or did not end; holds what it printed."""


@dataclass(frozen=True, slots=True)
class Client(ABC):
    """`codecs`: those it can write. The rest: what its records may have."""

    name: str
    codecs: tuple[str, ...] = CODECS
    takes_timestamps: bool = True
    takes_null_headers: bool = True
    takes_any_bytes: bool = True
    tells_topics: bool = True
    tells_acks: bool = False
    tells_all: bool = True
    """Of a record that it reads, of as many topics as one likes. One that does not reads one topic in a group."""
    numbers_records: bool = False
    """It sends numbers of its own making, `PREFIX.0` and on, the place of the codec as prefix. As keys it has numbers
    below REPEATING_KEYS, one after the other."""
    is_idempotent: bool = True

    @abstractmethod
    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool
    ) -> list[tuple[int, int]] | None:
        """(partition, offset) of each record, in order; None where the client does not tell. ClientFailed."""

    @abstractmethod
    def consume(self, bootstrap: str, topics: Sequence[str], count: int) -> list[Read]:
        """The first `count` records of these topics, from the beginning. ClientFailed."""

    @abstractmethod
    def member(self, bootstrap: str, topic: str, group: str, assignor: str | None = None) -> list[str]:
        """The command of a process that reads in a group until SIGTERM, with a session of SESSION_TIMEOUT_MS. Twice a
        second, or more often, it commits what it told. assignor: `range` or `roundrobin`; None: the client's own."""

    @abstractmethod
    def heard(self, line: bytes) -> Read | None:
        """The record that a line of a member tells; None where it tells something else."""


@dataclass(frozen=True, slots=True)
class Driven(Client):
    """With a driver: `command` is what runs it, `in_group` what it is told as a member."""

    command: tuple[str, ...] = ()
    in_group: tuple[str, ...] = ()
    tells_acks: bool = True

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool
    ) -> list[tuple[int, int]] | None:
        arguments = ["produce", "--bootstrap", bootstrap, "--topic", topic, "--codec", codec]
        lines = "".join(_given(record) for record in records)
        shown = run([*self.command, *arguments, *(["--idempotent"] if idempotent else [])], lines.encode())
        acks = [json.loads(line) for line in shown.splitlines()]
        return [(each["partition"], each["offset"]) for each in acks] if self.tells_acks else None

    def consume(self, bootstrap: str, topics: Sequence[str], count: int) -> list[Read]:
        arguments = ["consume", "--bootstrap", bootstrap, "--topics", ",".join(topics), "--count", str(count)]
        arguments += ["--timeout", str(PROCESS_TIMEOUT_S - 10)]
        return [read_of_line(line) for line in run([*self.command, *arguments]).splitlines()]

    def member(self, bootstrap: str, topic: str, group: str, assignor: str | None = None) -> list[str]:
        arguments = ["consume", "--bootstrap", bootstrap, "--topics", topic, "--group", group]
        arguments += ["--count", str(10**9), "--timeout", str(10**6), *self.in_group]
        return [*self.command, *arguments, *(["--assignor", assignor] if assignor else [])]

    def heard(self, line: bytes) -> Read | None:
        return read_of_line(line) if line.startswith(b'{"topic"') else None


@dataclass(frozen=True, slots=True)
class Kcat(Client):
    """librdkafka as Debian has it. Headers are those of a whole run, and so is whether there are keys."""

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool
    ) -> list[tuple[int, int]] | None:
        for (is_keyed, headers), alike in itertools.groupby(records, lambda each: (each.key is not None, each.headers)):
            command = ["kcat", "-P", "-b", bootstrap, "-t", topic, "-z", codec, "-X", "acks=all"]
            command += [
                "-X",
                f"enable.idempotence={str(idempotent).lower()}",
                *(["-K", "\t", "-Z"] if is_keyed else []),
            ]
            for name, value in headers:
                command += ["-H", name if value is None else f"{name}={value.decode()}"]
            lines = [((each.key + b"\t") if is_keyed else b"") + (each.value or b"") for each in alike]
            run(command, b"\n".join(lines) + b"\n")
        return None

    def consume(self, bootstrap: str, topics: Sequence[str], count: int) -> list[Read]:
        found: list[Read] = []
        for topic in topics:
            layout = "%p %o %T %K %S %h\n%k%s"
            # It goes on to the next partition when a fetch at the end of one is answered.
            options = ["-o", "beginning", "-e", "-q", "-f", layout, "-X", "fetch.wait.max.ms=20"]
            output = run(["kcat", "-C", "-b", bootstrap, "-t", topic, *options])
            found += self._taken_apart(topic, output)
        return found

    def member(self, bootstrap: str, topic: str, group: str, assignor: str | None = None) -> list[str]:
        settings = {
            "session.timeout.ms": SESSION_TIMEOUT_MS,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
            "auto.offset.reset": "earliest",
            **({"partition.assignment.strategy": assignor} if assignor else {}),
        }
        options = [option for name, value in settings.items() for option in ("-X", f"{name}={value}")]
        return ["kcat", "-b", bootstrap, "-G", group, *options, "-u", "-q", "-f", "%p %o %T %s\n", topic]

    def heard(self, line: bytes) -> Read | None:
        partition, offset, timestamp, value = line.split(b" ", 3)
        return Read("", int(partition), int(offset), int(timestamp), None, value, ())

    @staticmethod
    def _taken_apart(topic: str, output: bytes) -> Iterator[Read]:
        """Lengths stand before bytes; −1: null."""
        at = 0
        while at < len(output):
            end = output.index(b"\n", at)
            partition, offset, timestamp, key_size, value_size, headers = output[at:end].split(b" ", 5)
            key_end = end + 1 + max(0, int(key_size))
            at = key_end + max(0, int(value_size))
            pairs = [pair.partition(b"=") for pair in headers.split(b",") if pair]
            yield Read(
                topic,
                int(partition),
                int(offset),
                int(timestamp),
                None if int(key_size) < 0 else output[end + 1 : key_end],
                None if int(value_size) < 0 else output[key_end:at],
                tuple((name.decode(), None if value == b"NULL" else value) for name, _, value in pairs),
            )


@dataclass(frozen=True, slots=True)
class Console(Client):
    """kafka-console-producer and -consumer."""

    jars: Jars = KAFKA_3
    producer_class: str = ""
    of_reader: str = "--property"
    of_formatter: str = "--property"
    of_client: str = "--producer-property"
    of_consumer: str = "--consumer-property"

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool
    ) -> list[tuple[int, int]] | None:
        options = ["--bootstrap-server", bootstrap, "--topic", topic, "--compression-codec", codec]
        for setting in ("parse.key=true", "parse.headers=true", f"null.marker={NULL}"):
            options += [self.of_reader, setting]
        options += [self.of_client, f"enable.idempotence={str(idempotent).lower()}", self.of_client, "acks=all"]
        lines = "".join(
            "\t".join([_console_headers(each), _or_null(each.key), _or_null(each.value)]) + "\n" for each in records
        )
        run(java(self.jars, self.producer_class, *options), lines.encode())
        return None

    def consume(self, bootstrap: str, topics: Sequence[str], count: int) -> list[Read]:
        options = ["--include", "|".join(topics), "--max-messages", str(count), "--timeout-ms", "60000"]
        output = run(self._consumer(bootstrap, *options))
        return [self._taken_apart(line) for line in output.split(b"\n") if line]

    def member(self, bootstrap: str, topic: str, group: str, assignor: str | None = None) -> list[str]:
        options = ["--topic", topic, "--group", group]
        for name, value in _of_java(assignor).items():
            options += [self.of_consumer, f"{name}={value}"]
        return self._consumer(bootstrap, *options)

    def heard(self, line: bytes) -> Read | None:
        return self._taken_apart(line) if line.startswith(b"CreateTime:") else None

    def _consumer(self, bootstrap: str, *options: str) -> list[str]:
        shown: list[str] = []
        for part in ("timestamp", "partition", "offset", "headers", "key"):
            shown += [self.of_formatter, f"print.{part}=true"]
        shown += [self.of_formatter, f"null.literal={NULL}"]
        main_class = "org.apache.kafka.tools.consumer.ConsoleConsumer"
        return java(self.jars, main_class, "--bootstrap-server", bootstrap, "--from-beginning", *shown, *options)

    @staticmethod
    def _taken_apart(line: bytes) -> Read:
        timestamp, partition, offset, headers, key, value = line.split(b"\t", 5)
        null = NULL.encode()
        pairs = [] if headers == b"NO_HEADERS" else [pair.partition(b":") for pair in headers.split(b",")]
        return Read(
            "",
            int(partition.removeprefix(b"Partition:")),
            int(offset.removeprefix(b"Offset:")),
            int(timestamp.removeprefix(b"CreateTime:")),
            None if key == null else key,
            None if value == null else value,
            tuple((name.decode(), None if data == null else data) for name, _, data in pairs),
        )


@dataclass(frozen=True, slots=True)
class Verifiable(Client):
    """VerifiableProducer and VerifiableConsumer, with which Kafka's own system tests prove it."""

    jars: Jars = KAFKA_3
    of_producer: str = "--producer.config"
    of_consumer: str = "--consumer.config"

    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool
    ) -> list[tuple[int, int]] | None:
        assert records[0].value is not None
        prefix = records[0].value.decode().partition(".")[0]
        with self.sending(bootstrap, topic, codec, idempotent, "--value-prefix", prefix) as command:
            keys = [] if records[0].key is None else ["--repeating-keys", str(REPEATING_KEYS)]
            shown = run([*command, "--max-messages", str(len(records)), *keys])
        where = acks_of_verifiable(shown.splitlines())
        return [where[record.value] for record in records if record.value is not None]

    @contextmanager
    def sending(self, bootstrap: str, topic: str, codec: str, idempotent: bool, *options: str) -> Iterator[list[str]]:
        """The command of a VerifiableProducer, which reads its settings from a file. By itself it never repeats."""
        settings = {
            "enable.idempotence": str(idempotent).lower(),
            "compression.type": codec,
            "retries": 2**31 - 1 if idempotent else 0,
        }
        with _settings_file(settings) as path:
            options = ("--bootstrap-server", bootstrap, "--topic", topic, self.of_producer, path, *options)
            yield java(self.jars, "org.apache.kafka.tools.VerifiableProducer", *options)

    def consume(self, bootstrap: str, topics: Sequence[str], count: int) -> list[Read]:
        (topic,) = topics
        command = self.member(bootstrap, topic, f"alone-{uuid.uuid4().hex}")
        heard = [self.heard(line) for line in run([*command, "--max-messages", str(count)]).splitlines()]
        return [read for read in heard if read is not None]

    def member(self, bootstrap: str, topic: str, group: str, assignor: str | None = None) -> list[str]:
        """It commits after each poll, once it has told what came."""
        options = ["--bootstrap-server", bootstrap, "--topic", topic, "--group-id", group, "--verbose"]
        options += ["--session-timeout", str(SESSION_TIMEOUT_MS)]
        if assignor:
            options += ["--assignment-strategy", JAVA_ASSIGNORS[assignor]]
        return java(self.jars, "org.apache.kafka.tools.VerifiableConsumer", *options)

    def heard(self, line: bytes) -> Read | None:
        told = json.loads(line)
        if told["name"] != "record_data":
            return None
        key = None if told["key"] is None else told["key"].encode()
        return Read(told["topic"], told["partition"], told["offset"], -1, key, told["value"].encode(), ())


def acks_of_verifiable(lines: Iterable[bytes]) -> dict[bytes, tuple[int, int]]:
    """value → (partition, offset) of what a VerifiableProducer tells. ClientFailed: it tells that one was not sent."""
    where: dict[bytes, tuple[int, int]] = {}
    for line in lines:
        told = json.loads(line)
        if told["name"] == "producer_send_error":
            raise ClientFailed(f"VerifiableProducer: {told}")
        if told["name"] == "producer_send_success":
            where[told["value"].encode()] = told["partition"], told["offset"]
    return where


@contextmanager
def _settings_file(settings: Mapping[str, object]) -> Iterator[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".properties") as file:
        file.writelines(f"{name}={value}\n" for name, value in settings.items())
        file.flush()
        yield file.name


def _of_java(assignor: str | None) -> dict[str, object]:
    return {
        "session.timeout.ms": SESSION_TIMEOUT_MS,
        "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
        "auto.commit.interval.ms": COMMIT_INTERVAL_MS,
        **({"partition.assignment.strategy": JAVA_ASSIGNORS[assignor]} if assignor else {}),
    }


def java(jars: Jars, main_class: str, *arguments: str) -> list[str]:
    options = (*JAVA_OPTIONS, *jars.from_archive())
    return [str(find_java().command), *options, "-cp", jars.class_path(), main_class, *arguments]


def run(command: Sequence[str], given: bytes = b"") -> bytes:
    """What it printed."""
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, timeout=PROCESS_TIMEOUT_S, env=ENVIRONMENT, check=False
        )
    except subprocess.TimeoutExpired as late:
        raise ClientFailed(f"{' '.join(command)} did not end: {(late.stderr or b'').decode()[-2000:]}") from None
    if done.returncode:
        raise ClientFailed(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.decode()[-3000:]}")
    return done.stdout


ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": os.pathsep.join([str(ROOT / "tests"), str(ROOT / "src")]),
    "NODE_PATH": str(INSTALLED / "node" / "node_modules"),
    "KAFKAJS_NO_PARTITIONER_WARNING": "1",
}
_PYTHON = str(INSTALLED / "venv" / "bin" / "python")
_OF_4 = {
    "of_reader": "--reader-property",
    "of_formatter": "--formatter-property",
    "of_client": "--command-property",
    "of_consumer": "--command-property",
}

_NUMBERS_ALONE: Mapping[str, Any] = {
    "takes_timestamps": False,
    "tells_acks": True,
    "tells_all": False,
    "numbers_records": True,
}

OURS = Driven("strandline", command=(sys.executable, "-m", "compat.clients.with_strandline"))
OURS_BY_ITSELF = replace(OURS, name="strandline, which commits by itself", in_group=("--auto-commit",))
CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        OURS,
        Kcat("kcat", takes_timestamps=False, takes_any_bytes=False),
        Driven("confluent-kafka", command=(_PYTHON, "-m", "compat.clients.with_confluent_kafka")),
        Driven("aiokafka", command=(_PYTHON, "-m", "compat.clients.with_aiokafka")),
        Driven("kafka-python", command=(_PYTHON, "-m", "compat.clients.with_kafka_python"), takes_null_headers=False),
        Driven("franz-go", command=(str(INSTALLED / "franz-go"),)),
        Driven(
            "kafkajs",
            command=(str(INSTALLED / "node" / "node"), str(DRIVERS / "with_kafkajs.js")),
            takes_null_headers=False,
            tells_acks=False,
        ),
        Console(
            "console-3",
            takes_timestamps=False,
            takes_any_bytes=False,
            tells_topics=False,
            jars=KAFKA_3,
            producer_class="kafka.tools.ConsoleProducer",
        ),
        Console(
            "console-4",
            takes_timestamps=False,
            takes_any_bytes=False,
            tells_topics=False,
            jars=KAFKA_4,
            producer_class="org.apache.kafka.tools.ConsoleProducer",
            **_OF_4,
        ),
        Verifiable("verifiable-3", **_NUMBERS_ALONE, jars=KAFKA_3),
        Verifiable(
            "verifiable-4",
            **_NUMBERS_ALONE,
            jars=KAFKA_4,
            of_producer="--command-config",
            of_consumer="--command-config",
        ),
    )
}


def read_of_line(line: bytes) -> Read:
    """A record as drivers print it."""
    shown = json.loads(line)
    headers = tuple((name, _bytes(value)) for name, value in shown["headers"])
    key, value = _bytes(shown["key"]), _bytes(shown["value"])
    return Read(shown["topic"], shown["partition"], shown["offset"], shown["timestamp"], key, value, headers)


def without_topic(records: Sequence[Read]) -> list[Read]:
    return [each._replace(topic="") for each in records]


def _given(record: Sent) -> str:
    """A record as drivers are given it."""
    headers = [(name, _hex(value)) for name, value in record.headers]
    given = {"key": _hex(record.key), "value": _hex(record.value), "headers": headers, "timestamp": record.timestamp}
    return json.dumps(given) + "\n"


def _console_headers(record: Sent) -> str:
    return ",".join(f"{name}:{_or_null(value)}" for name, value in record.headers) or NULL


def _or_null(data: bytes | None) -> str:
    return NULL if data is None else data.decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else bytes.fromhex(text)


def _hex(data: bytes | None) -> str | None:
    return None if data is None else data.hex()
