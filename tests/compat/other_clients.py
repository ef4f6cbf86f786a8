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
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from compat.jars import KAFKA_3, KAFKA_4, Jars
from strandline.cli.java import find_java

ROOT = Path(__file__).resolve().parents[2]
INSTALLED = ROOT / ".cache" / "kafka-clients"
DRIVERS = Path(__file__).with_name("clients")
PROCESS_TIMEOUT_S = 150.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# Small and quick to start: one Java at a time runs beside brokers on a small machine.
JAVA_OPTIONS = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
NULL = "\\N"


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
    needs_group: bool = False
    """It reads in a group only."""
    is_idempotent: bool = True

    @abstractmethod
    def produce(
        self, bootstrap: str, topic: str, records: Sequence[Sent], codec: str, idempotent: bool
    ) -> list[tuple[int, int]] | None:
        """(partition, offset) of each record, in order; None where the client does not tell. ClientFailed."""

    @abstractmethod
    def consume(self, bootstrap: str, topics: Sequence[str], count: int) -> list[Read]:
        """The first `count` records of these topics, from the beginning. ClientFailed."""


@dataclass(frozen=True, slots=True)
class Driven(Client):
    """With a driver: `command` is what runs it."""

    command: tuple[str, ...] = ()
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
        return [read_of_line(line) for line in run([*self.command, *arguments]).splitlines()]


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
            output = run(["kcat", "-C", "-b", bootstrap, "-t", topic, "-o", "beginning", "-e", "-q", "-f", layout])
            found += self._taken_apart(topic, output)
        return found

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
        options = ["--bootstrap-server", bootstrap, "--include", "|".join(topics), "--from-beginning"]
        options += ["--max-messages", str(count), "--timeout-ms", "60000"]
        for part in ("timestamp", "partition", "offset", "headers", "key"):
            options += [self.of_formatter, f"print.{part}=true"]
        options += [self.of_formatter, f"null.literal={NULL}"]
        output = run(java(self.jars, "org.apache.kafka.tools.consumer.ConsoleConsumer", *options))
        return [self._taken_apart(line) for line in output.split(b"\n") if line]

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


def java(jars: Jars, main_class: str, *arguments: str) -> list[str]:
    return [str(find_java().command), *JAVA_OPTIONS, "-cp", jars.class_path(), main_class, *arguments]


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
_OF_4 = {"of_reader": "--reader-property", "of_formatter": "--formatter-property", "of_client": "--command-property"}

OURS = Driven("strandline", command=(sys.executable, "-m", "compat.clients.with_strandline"), is_idempotent=False)
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
            needs_group=True,
            tells_acks=False,
        ),
        Console(
            "console-3",
            takes_timestamps=False,
            takes_any_bytes=False,
            tells_topics=False,
            needs_group=True,
            jars=KAFKA_3,
            producer_class="kafka.tools.ConsoleProducer",
        ),
        Console(
            "console-4",
            takes_timestamps=False,
            takes_any_bytes=False,
            tells_topics=False,
            needs_group=True,
            jars=KAFKA_4,
            producer_class="org.apache.kafka.tools.ConsoleProducer",
            **_OF_4,
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
