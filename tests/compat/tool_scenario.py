"""What is done with Kafka's tools, in this order, on three brokers without a topic: the same with a real Kafka, whose
answers are the golden ones (`make compat-golden`), and with us.

A line is a command, to which `--bootstrap-server` is added, or, with `@`, something that no tool does. A chapter's
transcript is `golden/<chapter>-<version of the tools>.txt`. What differs from run to run is masked in both alike.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.protocol.metadata import MetadataRequest_v1

from compat.kafka_tools import KafkaTools
from compat.real_kafka import ask, wait_until
from strandline.cli.cluster import EmbeddedCluster

GOLDEN = Path(__file__).with_name("golden")
VERSIONS = ("3.9", "4.3")
PROPERTIES = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "2",
}
"""Of all brokers, ours and Kafka's."""
FIRST_TIMESTAMP_MS = 1_700_000_000_000
"""2023-11-14T22:13:20Z: of the first of ten records of each partition, a second apart."""

TOPICS = """\
kafka-topics --create --topic clicks --replica-assignment 1:2:3,2:3:1,3:1:2 --config retention.ms=-1
kafka-topics --create --topic orders --partitions 2 --replication-factor 2
kafka-topics --create --topic lonely --replica-assignment 3
kafka-topics --create --topic strict --replica-assignment 1:2:3 --config min.insync.replicas=3
kafka-topics --create --topic with_score.and.dot --partitions 1 --replication-factor 1
kafka-topics --create --topic clicks --partitions 1
kafka-topics --create --topic clicks --if-not-exists
kafka-topics --create --topic no/good --partitions 1
kafka-topics --create --topic big --partitions 1 --replication-factor 7
kafka-topics --create --topic odd --partitions 0 --replication-factor 1
kafka-topics --create --topic odd --partitions 1 --config no.such.key=1
kafka-topics --create --topic odd --partitions 1 --config retention.ms=soon
kafka-topics --create --topic odd --partitions 1 --config min.insync.replicas=0
kafka-topics --create --topic odd --replica-assignment 1:1
kafka-topics --create --topic odd --replica-assignment 1:2,1
kafka-topics --list
kafka-topics --list --exclude-internal
kafka-topics --list --topic 'cl.*|or.*'
kafka-topics --describe --topic clicks
kafka-topics --describe --topic 'cl.*|str.*'
kafka-topics --describe --topics-with-overrides --exclude-internal
kafka-topics --describe --under-replicated-partitions
kafka-topics --describe --unavailable-partitions
kafka-topics --describe --under-min-isr-partitions --topic 'lonely|strict'
kafka-topics --describe --at-min-isr-partitions --topic 'lonely|strict|clicks'
kafka-topics --describe --topic nowhere
kafka-topics --describe --topic nowhere --if-exists
kafka-topics --alter --topic orders --partitions 4
kafka-topics --alter --topic orders --partitions 4
kafka-topics --alter --topic orders --partitions 1
kafka-topics --alter --topic strict --partitions 2 --replica-assignment 1:2:3,3:2:1
kafka-topics --alter --topic strict --partitions 3 --replica-assignment 1:2:3,3:2:1,1:2
kafka-topics --alter --topic nowhere --partitions 4
kafka-topics --describe --topic strict
kafka-topics --delete --topic with_score.and.dot
kafka-topics --delete --topic nowhere
kafka-topics --delete --topic nowhere --if-exists
kafka-topics --list
"""
CONFIGS = """\
kafka-configs --describe --topic clicks
kafka-configs --describe --topic clicks --all
kafka-configs --alter --topic clicks --add-config flush.ms=1000000,segment.bytes=1048576
kafka-configs --describe --topic clicks
kafka-configs --alter --topic clicks --add-config cleanup.policy=[compact,delete]
kafka-configs --describe --topic clicks
kafka-configs --alter --topic clicks --delete-config segment.bytes,cleanup.policy
kafka-configs --alter --topic clicks --delete-config segment.ms
kafka-configs --alter --topic clicks --add-config no.such.key=1
kafka-configs --alter --topic clicks --add-config retention.ms=soon
kafka-configs --alter --topic clicks --add-config segment.bytes=1
kafka-configs --alter --topic nowhere --add-config retention.ms=5
kafka-configs --describe --topic nowhere
kafka-configs --describe --entity-type topics
kafka-configs --describe --broker 1
kafka-configs --alter --broker 1 --add-config log.cleaner.threads=2
kafka-configs --describe --broker 1
kafka-configs --alter --broker-defaults --add-config log.retention.ms=-1
kafka-configs --describe --broker-defaults
kafka-configs --describe --broker 1
kafka-configs --describe --entity-type brokers
kafka-configs --describe --topic orders --all
kafka-configs --alter --broker 1 --delete-config log.cleaner.threads
kafka-configs --alter --broker-defaults --delete-config log.retention.ms
kafka-configs --describe --broker-defaults
kafka-configs --alter --broker 1 --add-config broker.id=7
kafka-configs --alter --broker 1 --add-config log.cleaner.threads=none
kafka-configs --describe --broker 1 --all
"""
THROTTLES = """\
kafka-configs --alter --broker 1 --add-config leader.replication.throttled.rate=5000000
kafka-configs --alter --broker 1 --add-config follower.replication.throttled.rate=6000000
kafka-configs --describe --broker 1
kafka-configs --alter --broker-defaults --add-config leader.replication.throttled.rate=7000000
kafka-configs --describe --broker-defaults
kafka-configs --describe --broker 1
kafka-configs --alter --broker 1 --add-config follower.replication.throttled.rate=fast
kafka-configs --alter --broker 1 --add-config follower.replication.throttled.rate=-1
kafka-configs --alter --broker 1 --add-config replication.quota.window.num=5
kafka-configs --alter --topic clicks --add-config leader.replication.throttled.replicas=[0:1,1:2]
kafka-configs --alter --topic clicks --add-config follower.replication.throttled.replicas=*
kafka-configs --describe --topic clicks
kafka-configs --alter --topic clicks --add-config leader.replication.throttled.replicas=all
kafka-configs --alter --topic clicks --add-config leader.replication.throttled.replicas=[*,0:1]
kafka-configs --alter --topic clicks --delete-config leader.replication.throttled.replicas
kafka-configs --describe --topic clicks
kafka-configs --alter --topic clicks --delete-config follower.replication.throttled.replicas
kafka-configs --describe --topic clicks
kafka-configs --alter --broker 1 --delete-config leader.replication.throttled.rate,follower.replication.throttled.rate
kafka-configs --describe --broker 1
kafka-configs --alter --broker-defaults --delete-config leader.replication.throttled.rate
kafka-configs --describe --broker-defaults
"""
QUOTAS = """\
kafka-configs --alter --user alice --add-config producer_byte_rate=1024,consumer_byte_rate=2048
kafka-configs --describe --entity-type users --entity-name alice
kafka-configs --alter --user alice --client app --add-config request_percentage=12.5
kafka-configs --describe --user alice --client app
kafka-configs --alter --user-defaults --add-config controller_mutation_rate=5
kafka-configs --describe --user-defaults
kafka-configs --alter --entity-type clients --entity-name 'my app' --add-config consumer_byte_rate=7
kafka-configs --alter --client-defaults --add-config consumer_byte_rate=9
kafka-configs --describe --entity-type clients
kafka-configs --alter --ip 10.0.0.7 --add-config connection_creation_rate=3
kafka-configs --alter --ip-defaults --add-config connection_creation_rate=400
kafka-configs --describe --ip 10.0.0.7
kafka-configs --describe --entity-type ips
kafka-configs --alter --user alice --add-config no_such_rate=5
kafka-configs --alter --user alice --add-config producer_byte_rate=10.5
kafka-configs --alter --user alice --delete-config producer_byte_rate
kafka-configs --describe --user alice
kafka-configs --describe --entity-type users
kafka-configs --alter --user alice --delete-config consumer_byte_rate
kafka-configs --alter --user alice --client app --delete-config request_percentage
kafka-configs --alter --user-defaults --delete-config controller_mutation_rate
kafka-configs --alter --entity-type clients --entity-name 'my app' --delete-config consumer_byte_rate
kafka-configs --alter --client-defaults --delete-config consumer_byte_rate
kafka-configs --alter --ip 10.0.0.7 --delete-config connection_creation_rate
kafka-configs --alter --ip-defaults --delete-config connection_creation_rate
kafka-configs --describe --entity-type users
kafka-configs --describe --entity-type ips
"""
RECORDS = """\
@produce
kafka-get-offsets
kafka-get-offsets --topic clicks
kafka-get-offsets --topic clicks --partitions 0,2
kafka-get-offsets --topic-partitions clicks:1,orders:0-2
kafka-get-offsets --topic 'cl.*' --time -1
kafka-get-offsets --topic clicks --time -2
kafka-get-offsets --topic clicks --time -3
kafka-get-offsets --topic clicks --time max-timestamp
kafka-get-offsets --topic clicks --time earliest-local
kafka-get-offsets --topic clicks --time 1700000004500
kafka-get-offsets --topic clicks --time 1800000000000
kafka-get-offsets --topic orders --time -3
kafka-get-offsets --exclude-internal-topics --topic clicks
kafka-get-offsets --topic nowhere
kafka-get-offsets --topic-partitions nowhere:0
kafka-get-offsets --topic clicks --partitions 7
kafka-delete-records --offset-json-file {folder}/good.json
kafka-get-offsets --topic clicks --time -2
kafka-delete-records --offset-json-file {folder}/bad.json
kafka-get-offsets --topic clicks --time -2
kafka-log-dirs --describe --topic-list clicks,nowhere
kafka-log-dirs --describe --topic-list lonely --broker-list 1,3
kafka-log-dirs --describe --topic-list lonely --broker-list 9
kafka-replica-verification --topics-include clicks --report-interval-ms 500 --time -2
"""
GROUPS = """\
kafka-consumer-groups --list
kafka-consumer-groups --describe --group readers
kafka-consumer-groups --delete --group readers
@commit
kafka-consumer-groups --list
kafka-consumer-groups --list --state
kafka-consumer-groups --list --state Stable
kafka-consumer-groups --describe --group readers
kafka-consumer-groups --describe --group readers --members
kafka-consumer-groups --describe --group readers --state
kafka-consumer-groups --describe --group readers --group nobody --state
kafka-consumer-groups --describe --all-groups --offsets
kafka-consumer-groups --reset-offsets --group readers --topic clicks --to-earliest --dry-run
kafka-consumer-groups --reset-offsets --group readers --topic clicks --to-latest --dry-run
kafka-consumer-groups --reset-offsets --group readers --topic clicks --to-current --dry-run
kafka-consumer-groups --reset-offsets --group readers --topic clicks:1,2 --to-offset 5 --dry-run
kafka-consumer-groups --reset-offsets --group readers --topic clicks --to-offset 99 --dry-run
kafka-consumer-groups --reset-offsets --group readers --topic clicks --shift-by -2 --dry-run
kafka-consumer-groups --reset-offsets --group readers --topic clicks --to-datetime 2023-11-14T22:13:25.500 --dry-run
kafka-consumer-groups --reset-offsets --group readers --topic clicks --by-duration P1D --dry-run
kafka-consumer-groups --reset-offsets --group readers --all-topics --to-earliest --export --dry-run
kafka-consumer-groups --reset-offsets --group readers --from-file {folder}/offsets.csv --dry-run
kafka-consumer-groups --reset-offsets --group readers --topic nowhere --to-earliest --dry-run
kafka-consumer-groups --reset-offsets --group newcomers --topic clicks --to-earliest --dry-run
kafka-consumer-groups --reset-offsets --group readers --topic clicks:2 --to-offset 7 --execute
kafka-consumer-groups --reset-offsets --group readers --all-topics --shift-by 1 --execute
kafka-consumer-groups --reset-offsets --group newcomers --topic clicks:0 --to-latest --execute
kafka-consumer-groups --describe --group readers --offsets
kafka-consumer-groups --describe --group newcomers --offsets
kafka-consumer-groups --delete-offsets --group readers --topic clicks:0
kafka-consumer-groups --delete-offsets --group readers --topic clicks:0 --topic nowhere
kafka-consumer-groups --delete-offsets --group nobody --topic clicks
kafka-consumer-groups --describe --group readers --offsets
@join
kafka-consumer-groups --list --state
kafka-consumer-groups --describe --group readers
kafka-consumer-groups --describe --group readers --members
kafka-consumer-groups --describe --group readers --members --verbose
kafka-consumer-groups --describe --group readers --state
kafka-consumer-groups --reset-offsets --group readers --topic clicks --to-earliest --execute
kafka-consumer-groups --delete --group readers
kafka-consumer-groups --delete-offsets --group readers --topic clicks
@leave
kafka-consumer-groups --delete --group readers
kafka-consumer-groups --delete --group newcomers --group nobody
kafka-consumer-groups --list
"""
CLUSTER = """\
kafka-cluster cluster-id
kafka-broker-api-versions
kafka-reassign-partitions --list
kafka-transactions describe-producers --topic lonely --partition 0
kafka-acls --list
kafka-topics --delete --topic orders
kafka-producer-perf-test --topic clicks --num-records 1000 --record-size 100 --throughput -1 --producer-props acks=all
kafka-consumer-perf-test --topic clicks --messages 1000 --group perf
kafka-consumer-perf-test --topic clicks --messages 1000 --group perf-2 --show-detailed-stats --reporting-interval 100000
@stop 3
kafka-topics --describe --topic 'clicks|lonely|strict'
kafka-topics --describe --exclude-internal --under-replicated-partitions
kafka-topics --describe --exclude-internal --unavailable-partitions
kafka-topics --describe --exclude-internal --under-min-isr-partitions
kafka-topics --describe --exclude-internal --at-min-isr-partitions
kafka-topics --create --topic big --partitions 1 --replication-factor 3
kafka-get-offsets --topic clicks --time -2
"""
ELECTIONS = """\
kafka-leader-election --election-type preferred --topic clicks --partition 0
kafka-leader-election --election-type preferred --topic clicks --partition 2
kafka-leader-election --election-type preferred --topic nowhere --partition 0
kafka-leader-election --election-type preferred --topic clicks --partition 7
kafka-leader-election --election-type unclean --topic lonely --partition 0
kafka-leader-election --election-type unclean --topic clicks --partition 0
@start 3
kafka-topics --describe --topic 'clicks|lonely|strict'
kafka-leader-election --election-type preferred --path-to-json-file {folder}/elections.json
kafka-topics --describe --topic 'clicks|lonely|strict'
kafka-leader-election --election-type preferred --path-to-json-file {folder}/elections.json
kafka-leader-election --election-type preferred --all-topic-partitions
kafka-topics --describe --topic 'clicks|lonely|strict'
kafka-leader-election --election-type preferred --topic strict --partition 1
kafka-leader-election --election-type unclean --all-topic-partitions
kafka-leader-election --election-type unclean --topic strict --partition 1
"""
"""Broker 3 is away at the beginning."""
CHAPTERS = {
    "topics": TOPICS,
    "configs": CONFIGS,
    "throttles": THROTTLES,
    "quotas": QUOTAS,
    "records": RECORDS,
    "groups": GROUPS,
    "cluster": CLUSTER,
    "elections": ELECTIONS,
}

ANY_ORDER = r"kafka-delete-records|--describe --entity-type"
"""Commands of which the order of the lines is that of a hash table."""
NOT_COMPARED = r"kafka-broker-api-versions|--describe --broker 1 --all"
"""Commands of which the answer depends on the version of the broker."""

_MASKS = (
    (r"(?m)^(SLF4J|WARNING: sun\.|log4j:|\S+ Thread-\d+ ERROR Reconfiguration).*\n", ""),
    (r"127\.0\.0\.1:\d+", "HOST:PORT"),
    (r"TopicId: [\w-]{22}", "TopicId: ID"),
    (r"Cluster ID: [\w-]{22}", "Cluster ID: ID"),
    (r"reader-[0-9a-f-]{36}", "reader-ID"),
    (r"(HOST:PORT) +\(\d\)", r"\1 (N)"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[,:]\d{3}", "TIME"),
    (r"for partition [\w-]+ at offset \d+ among", "for partition P at offset N among"),
    (r'"size" ?: ?\d+', '"size": N'),
    (r'"logDir" ?: ?"[^"]*"', '"logDir": "DIR"'),
    (r"/\S*/(?=(good|bad|elections)\.json|offsets\.csv)", ""),
    (r"(?m)(?<= )__consumer_offsets-\d(, |$)|, __consumer_offsets-\d(?=$)", ""),
    (r"\d+\.\d+ (?=records/sec|MB/sec|ms)|\(\d+\.\d+ MB|\d+ ms ", "N "),
    (r"(?m)^TIME, .*$", "TIME, FIGURES"),
    (r"[ \t]+", " "),
    (r"(?m)^ | $", ""),
    (r"(?m)^(at |Caused by: |\.\.\. \d+ more).*\n?", ""),
)


def masked(text: str, folder: Path) -> str:
    """Without what differs from run to run: ids, addresses, times, sizes, figures, the widths of columns."""
    text = text.replace(str(folder), "")
    for pattern, instead in _MASKS:
        text = re.sub(pattern, instead, text)
    return "\n".join(_json(line) for line in text.splitlines() if line)


def _json(line: str) -> str:
    """An answer in JSON, one thing a line: which of two comes first is the hash table's."""
    if not line.startswith("{"):
        return line
    found = json.loads(line.replace('"size": N', '"size": -1'))
    for broker in found["brokers"]:
        for directory in broker["logDirs"]:
            directory["partitions"].sort(key=lambda each: each["partition"])
    return json.dumps({**found, "brokers": sorted(found["brokers"], key=lambda each: each["broker"])}, indent=1)


class Stage:
    """A cluster, the tools of one version, and what else takes part. `settle_s`: how long brokers need to take a
    configuration over that they announce before."""

    def __init__(self, cluster: EmbeddedCluster, tools: KafkaTools, folder: Path, settle_s: float = 0.0) -> None:
        self._cluster, self._tools, self._folder, self._settle_s = cluster, tools, folder, settle_s
        self._bootstrap = str(cluster.address(1))
        self._living = list(cluster.broker_ids)
        self._member = contextlib.ExitStack()
        records = [{"topic": "clicks", "partition": 0, "offset": 4}, {"topic": "clicks", "partition": 1, "offset": -1}]
        self._write("good.json", json.dumps({"partitions": records, "version": 1}))
        records = [{"topic": "clicks", "partition": 2, "offset": 99}, {"topic": "clicks", "partition": 1, "offset": 2}]
        self._write("bad.json", json.dumps({"partitions": records, "version": 1}))
        elections = [{"topic": "clicks", "partition": 2}, {"topic": "clicks", "partition": 1}]
        self._write("elections.json", json.dumps({"partitions": elections}))
        self._write("offsets.csv", "clicks,0,6\nclicks,2,99\n")

    def _write(self, name: str, text: str) -> None:
        (self._folder / name).write_text(text)

    def play(self) -> Iterator[tuple[str, str]]:
        """(chapter, its transcript) of each."""
        with self._member:
            for chapter, script in CHAPTERS.items():
                yield chapter, "".join(map(self._played, script.splitlines()))

    def _played(self, line: str) -> str:
        if line.startswith("@"):
            name, *arguments = line.split()
            getattr(self, f"_{name[1:]}")(*arguments)
            return f"({line})\n\n"
        text, code = self._tools.run(self._complete(line))
        if re.search(r" --(create|alter|delete) ", line):
            self._settle(line)
        shown = masked(text, self._folder).splitlines()
        if re.search(ANY_ORDER, line):
            shown.sort()
        if re.search(NOT_COMPARED, line) and shown:
            shown = ["(not compared)"]
        return "\n".join([f"$ {line}", *shown, *([f"[exit {code}]"] if code else []), "", ""])

    def _complete(self, line: str) -> str:
        line = line.replace("{folder}", str(self._folder))
        if line.startswith("kafka-replica-verification"):
            return f"{line} --broker-list {self._bootstrap}"
        if line.startswith("kafka-transactions"):
            return line.replace(" ", f" --bootstrap-server {self._bootstrap} ", 1)
        if "--producer-props" in line:
            return f"{line} bootstrap.servers={self._bootstrap}"
        return f"{line} --bootstrap-server {self._bootstrap}"

    def _settle(self, line: str) -> None:
        """Every broker sees the same topics, and each of these a leader."""
        if "--broker" in line:
            time.sleep(self._settle_s)

        def views() -> list[Any]:
            request = MetadataRequest_v1(None)
            topics = [ask(self._cluster.address(broker).port, request).topics for broker in self._living]
            return [sorted((topic[1], sorted(part[1:] for part in topic[3])) for topic in view) for view in topics]

        def agree() -> bool:
            first, *others = views()
            return all(other == first for other in others)

        wait_until(agree, "all brokers see the same topics")

    # --- what no tool does -------------------------------------------------------------------------------------------

    def _produce(self) -> None:
        async def run() -> None:
            producer = AIOKafkaProducer(bootstrap_servers=self._bootstrap, acks="all", linger_ms=5)
            await producer.start()
            try:
                for place in range(30):
                    when = FIRST_TIMESTAMP_MS + place // 3 * 1000
                    await producer.send_and_wait("clicks", b"%d" % place, b"key", place % 3, when)
            finally:
                await producer.stop()

        asyncio.run(run())

    def _commit(self) -> None:
        async def run(consumer: AIOKafkaConsumer) -> None:
            partitions = [TopicPartition("clicks", number) for number in range(3)]
            consumer.assign(partitions)
            await consumer.commit(dict.fromkeys(partitions, 5))

        asyncio.run(self._as_reader(run))

    def _join(self) -> None:
        """A member that stays until it is told to leave."""
        loop = asyncio.new_event_loop()
        joined, leave = threading.Event(), asyncio.Event()

        async def run(consumer: AIOKafkaConsumer) -> None:
            consumer.subscribe(["clicks"])
            await consumer.getmany(timeout_ms=0)
            joined.set()
            await leave.wait()

        thread = threading.Thread(target=loop.run_until_complete, args=(self._as_reader(run),), daemon=True)
        thread.start()
        self._member.callback(thread.join, 30)
        self._member.callback(loop.call_soon_threadsafe, leave.set)
        assert joined.wait(60), "the member did not join"

    def _leave(self) -> None:
        self._member.close()

    async def _as_reader(self, do: Callable[[AIOKafkaConsumer], Awaitable[None]]) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._bootstrap,
            group_id="readers",
            client_id="reader",
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await consumer.start()
        try:
            await do(consumer)
        finally:
            await consumer.stop()

    def _stop(self, broker: str) -> None:
        self._cluster.stop_broker(int(broker))
        self._living.remove(int(broker))
        self._settle("")

    def _start(self, broker: str) -> None:
        """Everything is in sync with it."""
        self._cluster.start_broker(int(broker))
        self._living.append(int(broker))

        def in_sync() -> bool:
            topics = ask(self._cluster.address(1).port, MetadataRequest_v1(None)).topics
            return all(sorted(isr) == sorted(replicas) for topic in topics for *_, replicas, isr in topic[3])

        wait_until(in_sync, f"everything is in sync with broker {broker}")
        self._settle("")
