"""All clients go on while brokers are killed, paused for longer than a session, stopped and started.

An idempotent producer and a group of three consumers of confluent-kafka, the same of ours, of which one leaves it to
its polls to commit, and Kafka's own VerifiableProducer with VerifiableConsumers of both versions. In the end: the log
holds what was acknowledged, each record once, at the offset that was told and in the order of sending; each record was
read; the groups are stable and have no lag.

`STRANDLINE_SOAK_MINUTES` is for how long blows follow one another (`make soak-clients`; without it there is one of each
kind), `STRANDLINE_SEED` which they are.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO

from compat.group_trials import PARTITIONS, Acked, Group, reading
from compat.other_clients import (
    CLIENTS,
    ENVIRONMENT,
    OURS,
    OURS_BY_ITSELF,
    REPEATING_KEYS,
    Client,
    ClientFailed,
    Driven,
    Verifiable,
    acks_of_verifiable,
)
from compat.real_kafka import wait_until
from strandline.cli.cluster import EmbeddedCluster
from strandline.client.sync import Admin, Consumer
from strandline.protocol.types import TopicPartition

MINUTES = float(os.environ.get("STRANDLINE_SOAK_MINUTES", "0"))
SEED = int(os.environ.get("STRANDLINE_SEED", "1"))
SESSION_TIMEOUT_MS = 3000
RECORDS_PER_S = 200
KEYED = 100
"""Records at the beginning, so that each partition has some at once. The others go where chance has it, for a while at
a time: in a minute and a half one of six partitions gets none of them once in five hundred times."""
KINDS = ("killed", "paused", "stopped")
READERS: Mapping[str, Sequence[Client]] = {
    "confluent-kafka": [CLIENTS["confluent-kafka"]] * 3,
    "strandline": [OURS, OURS_BY_ITSELF, OURS],
    "verifiable-4": [CLIENTS["verifiable-3"], CLIENTS["verifiable-4"]],
}
"""Who reads each topic, as a group; it is named after the client that writes it."""
PATIENCE_S = 120.0
"""A producer gives up at the end of its flush, not before."""


class Sender(ABC):
    """A producer as a process that sends `0`, `1`, … until it is told to stop."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self._name = name
        self._output, self._errors = folder / f"{name}.sent", folder / f"{name}.errors"
        with self._output.open("wb") as out, self._errors.open("wb") as errors:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=out, stderr=errors, env=ENVIRONMENT, text=True
            )

    def stop(self) -> Acked:
        """Once everything that it sent is acknowledged. ClientFailed: something was not."""
        self._stop(self._process)
        self._process.wait(PATIENCE_S)
        try:
            return self._acked(self._output.read_bytes().splitlines())
        except ClientFailed as failure:
            raise ClientFailed(f"{failure}: {self._errors.read_text(errors='replace')[-3000:]}") from None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    @abstractmethod
    def _stop(self, process: subprocess.Popen[str]) -> None: ...

    @abstractmethod
    def _acked(self, lines: Sequence[bytes]) -> Acked: ...


class VerifiableSender(Sender):
    """It makes its records itself, at a bounded rate, and sends what it has on SIGTERM."""

    def _stop(self, process: subprocess.Popen[str]) -> None:
        process.terminate()

    def _acked(self, lines: Sequence[bytes]) -> Acked:
        if not any(b'"shutdown_complete"' in line for line in lines):
            raise ClientFailed(f"{self._name} did not shut down in order")
        return {at: value for value, at in acks_of_verifiable(lines).items()}


class DrivenSender(Sender):
    """It is given its records one by one, so that a blow finds some of them under way, and flushes when there are no
    more. The first ones have keys."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        super().__init__(name, command, folder)
        self._given = 0
        self._is_told_to_stop = threading.Event()
        assert self._process.stdin is not None
        self._thread = threading.Thread(target=self._give, args=(self._process.stdin,), name=name, daemon=True)
        self._thread.start()

    def _give(self, pipe: IO[str]) -> None:
        with contextlib.suppress(BrokenPipeError), pipe:  # whoever stops it finds out why it ended
            while not self._is_told_to_stop.wait(1 / RECORDS_PER_S):
                value = b"%d" % self._given
                key = value.hex() if self._given < KEYED else None
                record = {"key": key, "value": value.hex(), "headers": [], "timestamp": time.time_ns() // 10**6}
                pipe.write(json.dumps(record) + "\n")
                self._given += 1
                pipe.flush()

    def _stop(self, process: subprocess.Popen[str]) -> None:
        self._is_told_to_stop.set()
        self._thread.join()

    def _acked(self, lines: Sequence[bytes]) -> Acked:
        acks = [json.loads(line) for line in lines]
        if self._process.returncode or len(acks) != self._given:
            raise ClientFailed(f"{self._name}: {len(acks)} of {self._given} records are acknowledged")
        return {(each["partition"], each["offset"]): b"%d" % place for place, each in enumerate(acks)}


class Blows:
    """Which broker meets what, by a seed."""

    def __init__(self, cluster: EmbeddedCluster, topics: Sequence[str]) -> None:
        self._cluster = cluster
        self._topics = topics
        self._random = random.Random(SEED)

    def one_of_each(self) -> Iterator[str]:
        """Each kind once, each time another broker."""
        kinds, victims = list(KINDS), list(self._cluster.broker_ids)
        self._random.shuffle(kinds)
        self._random.shuffle(victims)
        for kind, victim in zip(kinds, victims, strict=True):
            yield self._deal(kind, victim)

    def for_minutes(self, minutes: float) -> Iterator[str]:
        end = time.monotonic() + minutes * 60
        while time.monotonic() < end:
            yield self._deal(self._random.choice(KINDS), self._random.choice(self._cluster.broker_ids))

    def _deal(self, kind: str, victim: int) -> str:
        """Returns when the broker is back and in sync everywhere."""
        cluster = self._cluster
        if kind == "paused":
            away_s = SESSION_TIMEOUT_MS / 1000 * self._random.uniform(1.2, 2)
            cluster.pause_broker(victim)
            time.sleep(away_s)
            cluster.resume_broker(victim)
        else:
            away_s = self._random.uniform(0, 4)
            cluster.kill_broker(victim) if kind == "killed" else cluster.stop_broker(victim)
            time.sleep(away_s)
            cluster.start_broker(victim)
        wait_until(self._is_whole, f"all are in sync after broker {victim} was {kind}")
        return f"broker {victim} was {kind}, for {away_s:.1f} s"

    def _is_whole(self) -> bool:
        found = self._cluster.metadata(self._topics)
        return found is not None and all(
            len(topic.partitions) == PARTITIONS
            and all(each.leader_id >= 0 and len(each.isr_nodes) == len(each.replica_nodes) for each in topic.partitions)
            for topic in found.topics
        )


def check_log(bootstrap: str, topic: str, acked: Acked) -> None:
    """It holds what was acknowledged, at the same offsets, in the order of sending, and nothing else."""
    partitions = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    with Consumer(bootstrap) as consumer:
        count = sum(consumer.end_offsets(partitions).values())
    found = {(read.partition, read.offset): read.value for read in OURS.consume(bootstrap, [topic], count)}
    assert len(found) == count
    assert sorted(acked.keys() - found.keys()) == [], "acknowledged and lost"
    assert sorted(found.keys() - acked.keys()) == [], "in the log twice, or never acknowledged"
    assert [at for at, value in acked.items() if found[at] != value] == [], "altered"
    numbers: defaultdict[int, list[int]] = defaultdict(list)
    for (partition, _), value in sorted(acked.items()):
        numbers[partition].append(int(value))
    for partition, sent in numbers.items():
        assert sent == sorted(sent), f"partition {partition} is not in the order of sending"


def started(bootstrap: str, topic: str, folder: Path, ends: contextlib.ExitStack) -> Sender:
    """The idempotent producer of the client that this topic is named after."""
    client = CLIENTS[topic]
    if isinstance(client, Verifiable):
        options = ("--throughput", str(RECORDS_PER_S), "--repeating-keys", str(REPEATING_KEYS))  # of every partition
        command = ends.enter_context(client.sending(bootstrap, topic, "lz4", True, *options))
        return VerifiableSender(topic, command, folder)
    assert isinstance(client, Driven)
    return DrivenSender(
        topic, [*client.command, "produce", "--bootstrap", bootstrap, "--topic", topic, "--idempotent"], folder
    )


def test_nothing_is_lost_or_doubled_and_groups_go_on_whatever_brokers_meet(tmp_path: Path) -> None:
    properties = {"group.initial.rebalance.delay.ms": "500"}
    cluster = EmbeddedCluster(tmp_path / "cluster", 3, properties=properties, session_timeout_ms=SESSION_TIMEOUT_MS)
    with contextlib.ExitStack() as ends:
        ends.callback(cluster.stop, 10)
        cluster.start()
        bootstrap = cluster.bootstrap_servers
        with Admin(bootstrap) as admin:
            for topic in READERS:
                admin.create_topic(topic, PARTITIONS, 3, {"retention.ms": "-1"})
        senders: dict[str, Sender] = {}
        groups: dict[str, Group] = {}
        for topic, readers in READERS.items():
            senders[topic] = started(bootstrap, topic, tmp_path, ends)
            ends.callback(senders[topic].kill)
            groups[topic] = ends.enter_context(reading(bootstrap, topic, tmp_path))
            for reader in readers:
                groups[topic].add(reader)
        for group in groups.values():
            group.wait_stable()
            # Of a producer that a partition knows nothing of, any sequence is taken, by a Kafka as by us: where a blow
            # divided its first batches between two leaders, the second one could get in before the first.
            group.wait_everywhere()

        blows = Blows(cluster, list(READERS))
        for blow in blows.for_minutes(MINUTES) if MINUTES else blows.one_of_each():
            sys.stdout.write(f"{blow}\n")  # shown when something fails, or as it happens
            for group in groups.values():
                group.wait_stable()
                group.wait_read_on()

        acked = {topic: sender.stop() for topic, sender in senders.items()}
        for topic, group in groups.items():
            group.wait_done()
            group.wait_stable()
            group.check_read(acked[topic])
            check_log(bootstrap, topic, acked[topic])
            group.leave()
