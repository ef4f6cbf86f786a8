"""The reference page is the table's, the file in docs/ is the page, and the table has Kafka 3.9's keys and defaults, or
says where it has not."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from strandline.runtime.config.broker import BROKER_KEYS
from strandline.runtime.config.reference import reference
from strandline.runtime.config.topic import TOPIC_KEYS
from strandline.runtime.config.values import INT_MAX, LONG_MAX

PAGE = Path(__file__).resolve().parents[4] / "docs" / "configuration.md"

KAFKA_3_9 = f"""
broker.id=-1 broker.id.generation.enable=true reserved.broker.max.id=1000
listeners=PLAINTEXT://:9092 advertised.listeners= inter.broker.listener.name=
zookeeper.connect= zookeeper.session.timeout.ms=18000 zookeeper.connection.timeout.ms=
num.network.threads=3 num.io.threads=8 background.threads=10 num.replica.fetchers=1
num.recovery.threads.per.data.dir=1 queued.max.requests=500 queued.max.request.bytes=-1
socket.send.buffer.bytes=102400 socket.receive.buffer.bytes=102400 socket.request.max.bytes=104857600
socket.listen.backlog.size=50 max.connections={INT_MAX} max.connections.per.ip={INT_MAX}
connections.max.idle.ms=600000 request.timeout.ms=30000 connection.failed.authentication.delay.ms=100
auto.create.topics.enable=true delete.topic.enable=true num.partitions=1 default.replication.factor=1
min.insync.replicas=1 unclean.leader.election.enable=false auto.leader.rebalance.enable=true
leader.imbalance.per.broker.percentage=10 leader.imbalance.check.interval.seconds=300
controlled.shutdown.enable=true controlled.shutdown.max.retries=3 controlled.shutdown.retry.backoff.ms=5000
controller.socket.timeout.ms=30000 message.max.bytes=1048588 log.dir=/tmp/kafka-logs log.dirs=
log.segment.bytes=1073741824 log.roll.ms= log.roll.hours=168 log.roll.jitter.ms= log.roll.jitter.hours=0
log.retention.ms= log.retention.minutes= log.retention.hours=168 log.retention.bytes=-1
log.retention.check.interval.ms=300000 log.cleanup.policy=delete log.cleaner.enable=true log.cleaner.threads=1
log.cleaner.dedupe.buffer.size=134217728 log.cleaner.io.buffer.load.factor=0.9 log.cleaner.io.buffer.size=524288
log.cleaner.io.max.bytes.per.second=1.7976931348623157e+308 log.cleaner.backoff.ms=15000
log.cleaner.min.cleanable.ratio=0.5 log.cleaner.delete.retention.ms=86400000 log.cleaner.min.compaction.lag.ms=0
log.cleaner.max.compaction.lag.ms={LONG_MAX} log.index.size.max.bytes=10485760 log.index.interval.bytes=4096
log.flush.interval.messages={LONG_MAX} log.flush.interval.ms= log.flush.scheduler.interval.ms={LONG_MAX}
log.flush.offset.checkpoint.interval.ms=60000 log.flush.start.offset.checkpoint.interval.ms=60000
log.segment.delete.delay.ms=60000 log.preallocate=false log.message.timestamp.type=CreateTime
log.message.timestamp.difference.max.ms={LONG_MAX} log.message.timestamp.before.max.ms={LONG_MAX}
log.message.timestamp.after.max.ms={LONG_MAX} log.message.downconversion.enable=true compression.type=producer
replica.lag.time.max.ms=30000 replica.socket.timeout.ms=30000 replica.socket.receive.buffer.bytes=65536
replica.fetch.max.bytes=1048576 replica.fetch.wait.max.ms=500 replica.fetch.min.bytes=1
replica.fetch.response.max.bytes=10485760 replica.fetch.backoff.ms=1000
replica.high.watermark.checkpoint.interval.ms=5000 fetch.purgatory.purge.interval.requests=1000
producer.purgatory.purge.interval.requests=1000 delete.records.purgatory.purge.interval.requests=1
max.incremental.fetch.session.cache.slots=1000 fetch.max.bytes=57671680
group.min.session.timeout.ms=6000 group.max.session.timeout.ms=1800000 group.initial.rebalance.delay.ms=3000
group.max.size={INT_MAX} group.consumer.session.timeout.ms=45000 group.consumer.heartbeat.interval.ms=5000
offsets.topic.num.partitions=50 offsets.topic.replication.factor=3 offsets.topic.segment.bytes=104857600
offsets.topic.compression.codec=0 offsets.retention.minutes=10080 offsets.retention.check.interval.ms=600000
offsets.load.buffer.size=5242880 offsets.commit.timeout.ms=5000 offsets.commit.required.acks=-1
offset.metadata.max.bytes=4096 transaction.state.log.num.partitions=50 transaction.state.log.replication.factor=3
transaction.state.log.min.isr=2 transaction.state.log.segment.bytes=104857600
transaction.state.log.load.buffer.size=5242880 transaction.max.timeout.ms=900000
transactional.id.expiration.ms=604800000 transaction.abort.timed.out.transaction.cleanup.interval.ms=10000
transaction.remove.expired.transaction.cleanup.interval.ms=3600000 producer.id.expiration.ms=86400000
transaction.partition.verification.enable=true quota.window.num=11 quota.window.size.seconds=1
controller.quota.window.num=11 controller.quota.window.size.seconds=1
replication.quota.window.num=11 replication.quota.window.size.seconds=1
leader.replication.throttled.rate={LONG_MAX} follower.replication.throttled.rate={LONG_MAX}
metrics.num.samples=2 metrics.sample.window.ms=30000
"""
"""Broker keys of Kafka 3.9 with their defaults; empty: null, or worked out of other keys."""

TOPIC_OF_BROKER = """
cleanup.policy=log.cleanup.policy compression.type=compression.type
delete.retention.ms=log.cleaner.delete.retention.ms file.delete.delay.ms=log.segment.delete.delay.ms
flush.messages=log.flush.interval.messages flush.ms=log.flush.interval.ms index.interval.bytes=log.index.interval.bytes
max.compaction.lag.ms=log.cleaner.max.compaction.lag.ms max.message.bytes=message.max.bytes
message.downconversion.enable=log.message.downconversion.enable
message.timestamp.after.max.ms=log.message.timestamp.after.max.ms
message.timestamp.before.max.ms=log.message.timestamp.before.max.ms
message.timestamp.difference.max.ms=log.message.timestamp.difference.max.ms
message.timestamp.type=log.message.timestamp.type min.cleanable.dirty.ratio=log.cleaner.min.cleanable.ratio
min.compaction.lag.ms=log.cleaner.min.compaction.lag.ms min.insync.replicas=min.insync.replicas
preallocate=log.preallocate retention.bytes=log.retention.bytes retention.ms=log.retention.ms
segment.bytes=log.segment.bytes segment.index.bytes=log.index.size.max.bytes segment.jitter.ms=log.roll.jitter.ms
segment.ms=log.roll.ms unclean.leader.election.enable=unclean.leader.election.enable
follower.replication.throttled.replicas= leader.replication.throttled.replicas=
"""
"""Topic keys of Kafka 3.9 with the broker's keys behind them."""


def pairs(text: str) -> list[tuple[str, str]]:
    return [(name, value) for name, _, value in (pair.partition("=") for pair in text.split())]


def test_the_page_in_docs_is_the_tables() -> None:
    assert PAGE.read_text() == reference(), f"{PAGE.name} is stale: run `make docs` and commit docs/configuration.md"


@pytest.mark.parametrize("row", reference().splitlines())
def test_a_row_of_the_page_has_as_many_cells_as_its_table(row: str) -> None:
    if row.startswith("| `"):
        assert row.replace("\\|", "").count("|") in (3, 4, 9, 10)


def test_the_page_has_every_key_once_in_its_table() -> None:
    brokers, topics = reference().split("## Topic keys")
    for page, keys in ((brokers, BROKER_KEYS), (topics, TOPIC_KEYS)):
        for key in keys.values():
            (row,) = [line for line in page.splitlines() if line.startswith(f"| `{key.name}` | {key.kind.name} |")]
            cells = row.split(" | ")
            assert cells[2:5] == [key.default_text, key.unit, key.allowed.text]
            assert ("yes" if key.honoured else "no" if key.why_not else "not yet") == cells[-2]
            assert cells[-1].startswith(key.meaning.replace("|", "\\|"))
    assert brokers.count("### ") == 12


@pytest.mark.parametrize(("name", "default"), pairs(KAFKA_3_9))
def test_a_key_of_kafka_has_its_default_or_says_what_kafka_has(name: str, default: str) -> None:
    key = BROKER_KEYS[name]
    if key.default_text != default:
        assert "(Kafka" in key.doc, f"{name}={key.default_text}, in Kafka 3.9 {default}: the row has to say so"


@pytest.mark.parametrize(("name", "broker_key"), pairs(TOPIC_OF_BROKER))
def test_a_topics_key_of_kafka_is_there_with_its_brokers_key(name: str, broker_key: str) -> None:
    assert TOPIC_KEYS[name].broker_attribute == (BROKER_KEYS[broker_key].attribute if broker_key else None)


def test_who_imports_a_value_loads_none_of_the_keys() -> None:
    program = (
        "import sys, strandline.runtime.config.values as values;"
        "sys.exit(any(m.startswith(values.__package__ + '.') and m != values.__name__ for m in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
