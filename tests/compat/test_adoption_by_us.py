"""Our broker starts on the data folder and the ZooKeeper of a real Kafka, serves what is there, and gives it back.

Kafka stops in order or is killed; our broker, with the same broker id, serves every topic byte for byte and appends to
it; then Kafka starts again on the same folder and serves its own records and ours.
"""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete

import strandline
from compat.real_kafka import Kafka, Ours, Site, assert_refused, numbered, wait_until
from strandline.client.sync_producer import Producer
from strandline.protocol.records import decode_records
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.disk.checkpoints import COMPACTED_OFFSETS, LOG_START_OFFSETS, read_offsets
from strandline.storage.manager.orderly_stops import CLEAN_MARKER

CODECS = (None, "gzip", "snappy", "lz4", "zstd")
SMALL = {"segment_bytes": "15000", "index_interval_bytes": "500"}
TOPICS = ("codecs", "idempotent", "shortened", "compacted", "begun", "empty")
APPENDED = tuple(topic for topic in TOPICS if topic != "shortened")
"""To which our broker appends; not where retention would then delete more."""
APPENDED_RECORDS = 100
LOG_START = 187
"""Of `begun`: inside a batch."""
DISK = PosixDisk()


async def transact(kafka: Kafka, topic: str) -> None:
    """One transaction that is committed, one that is aborted."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka.address, transactional_id="transactions")
    await producer.start()
    try:
        for outcome in (producer.commit_transaction, producer.abort_transaction):
            await producer.begin_transaction()
            await producer.send_and_wait(topic, b"in a transaction", partition=0)
            await outcome()
    finally:
        await producer.stop()


async def delete_records(kafka: Kafka, topic: str, before: int) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.address)
    await admin.start()
    try:
        await admin.delete_records({TopicPartition(topic, 0): RecordsToDelete(before)})
    finally:
        await admin.close()


async def commit_an_offset(kafka: Kafka) -> None:
    """Makes `__consumer_offsets`, which is compacted."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.address, group_id="readers", enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([TopicPartition("codecs", 0)])
        await consumer.commit({TopicPartition("codecs", 0): 7})
    finally:
        await consumer.stop()


def fill_with_kafka(site: Site) -> dict[str, bytes]:
    """Topics of every kind, by a running Kafka. Topic → what it serves."""
    kafka = site.kafka
    kafka.create_topic("codecs", **SMALL)
    kafka.create_topic("idempotent", **SMALL)
    kafka.create_topic("shortened", **SMALL, retention_bytes="20000", file_delete_delay_ms="100")
    kafka.create_topic(
        "compacted", **SMALL, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01", file_delete_delay_ms="100"
    )
    kafka.create_topic("begun", **SMALL)
    kafka.create_topic("empty", **SMALL)
    for codec in CODECS:
        kafka.produce("codecs", numbered(150), compression_type=codec)
    kafka.produce("idempotent", numbered(400), enable_idempotence=True)
    kafka.produce("shortened", numbered(600))
    kafka.produce("compacted", numbered(600, size=200))
    kafka.produce("begun", numbered(400))
    asyncio.run(commit_an_offset(kafka))
    wait_until(lambda: kafka.bounds("shortened")[0] > 0, "retention moved the log start of shortened")
    asyncio.run(delete_records(kafka, "begun", LOG_START))
    starts = f"{site.data}/{LOG_START_OFFSETS}"
    begun = (strandline.TopicPartition("begun", 0), LOG_START)
    wait_until(lambda: begun in read_offsets(DISK, starts).items(), "Kafka wrote the log start of begun")
    # Otherwise whoever comes next removes it, and the files are not comparable.
    below = site.data / "begun-0" / f"{0:020d}.log"
    wait_until(lambda: not below.exists(), "Kafka removed what lies below the log start of begun")
    wait_until(lambda: "compacted-0" in cleaned(site), "compacted was compacted")
    served = {topic: kafka.raw(topic) for topic in TOPICS}
    assert len(list(site.data.glob("codecs-0/*.log"))) >= 3
    return served


def cleaned(site: Site) -> list[str]:
    """The partitions that Kafka's cleaner is done with."""
    return [str(partition) for partition in read_offsets(DISK, f"{site.data}/{COMPACTED_OFFSETS}")]


def append_with_ours(ours: Ours, topic: str) -> None:
    with Producer(ours.address, acks="all") as producer:
        for place in range(APPENDED_RECORDS):
            producer.send(topic, b"ours %d" % place, key=b"k%d" % (place % 7), partition=0)
        producer.flush()


@pytest.mark.parametrize("stop", ["in order", "killed"])
def test_our_broker_serves_the_folder_of_a_kafka_and_gives_it_back(new_site, stop: str) -> None:
    site: Site = new_site()
    site.kafka.start()
    served = fill_with_kafka(site)
    bounds = {topic: site.kafka.bounds(topic) for topic in TOPICS}
    assert bounds["begun"] == (LOG_START, 400) and bounds["shortened"][0] > 0
    site.kafka.stop() if stop == "in order" else site.kafka.kill()
    logs = site.files(".log")

    site.ours.start(log_cleaner_enable="false")  # the bytes shall stay comparable
    for topic in TOPICS:
        assert site.ours.bounds(topic) == bounds[topic], topic
        assert site.ours.raw(topic) == served[topic], topic
    assert {name: data for name, data in site.files(".log").items() if name in logs} == logs
    for topic in APPENDED:
        append_with_ours(site.ours, topic)
    longer = {topic: site.ours.raw(topic) for topic in TOPICS}
    assert longer["shortened"] == served["shortened"]
    for topic in APPENDED:
        assert longer[topic].startswith(served[topic]) and len(longer[topic]) > len(served[topic]), topic
    site.ours.stop() if stop == "in order" else site.ours.kill()

    site.kafka.start(log_cleaner_enable="false")
    site.kafka.wait_for_log("Skipping recovery of 8 logs" if stop == "in order" else "Recovering 8 logs")
    for topic in TOPICS:
        start, end = bounds[topic]
        assert site.kafka.bounds(topic) == (start, end + (APPENDED_RECORDS if topic in APPENDED else 0)), topic
        assert site.kafka.raw(topic) == longer[topic], topic
    site.kafka.produce("idempotent", numbered(20), enable_idempotence=True)
    site.kafka.produce("shortened", numbered(300))
    wait_until(lambda: site.kafka.bounds("shortened")[0] > bounds["shortened"][1], "Kafka removed all that we saw")
    again = {topic: site.kafka.raw(topic) for topic in TOPICS}
    assert again["idempotent"].startswith(longer["idempotent"])
    assert len(decode_records(memoryview(again["idempotent"]))) == 400 + APPENDED_RECORDS + 20
    bounds = {topic: site.kafka.bounds(topic) for topic in TOPICS}
    site.kafka.stop()
    assert not site.kafka.complaints()

    site.ours.start(log_cleaner_enable="false")  # what it had noted at its own stop is not true any more
    for topic in TOPICS:
        assert site.ours.bounds(topic) == bounds[topic], topic
        assert site.ours.raw(topic) == again[topic], topic
    site.ours.stop()


@pytest.mark.parametrize("stop", ["in order", "killed"])
def test_a_partition_with_transactions_is_refused_and_left_as_it_is(new_site, stop: str) -> None:
    """Without read_committed its readers would see what was aborted."""
    site: Site = new_site()
    site.kafka.start()
    for topic in ("plain", "transactional"):
        site.kafka.create_topic(topic, **SMALL)
        site.kafka.produce(topic, numbered(20))
    asyncio.run(transact(site.kafka, "transactional"))
    served = {topic: site.kafka.raw(topic) for topic in ("plain", "transactional")}
    site.kafka.stop() if stop == "in order" else site.kafka.kill()
    logs = site.files(".log")

    site.ours.start()
    assert site.ours.raw("plain") == served["plain"]
    assert_refused(site.ours, {"transactional": "has a batch of a transaction at offset 20"})
    site.ours.stop()
    assert site.files(".log") == logs

    site.kafka.start()
    for topic, batches in served.items():
        assert site.kafka.raw(topic) == batches
    site.kafka.stop()
    assert not site.kafka.complaints()


async def begin(kafka: Kafka, topic: str) -> None:
    """A transaction that nobody ends before the broker is killed."""
    producer = AIOKafkaProducer(bootstrap_servers=kafka.address, transactional_id="open")
    await producer.start()
    await producer.begin_transaction()
    await producer.send_and_wait(topic, b"in an open transaction", partition=0)
    kafka.kill()
    with contextlib.suppress(Exception):
        await asyncio.wait_for(producer.stop(), 0.1)


async def committed(kafka: Kafka, topic: str, count: int) -> list[bytes]:
    """What read_committed shows, until there are `count` records and no more for a while."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka.address, isolation_level="read_committed")
    await consumer.start()
    try:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        shown: list[bytes] = []
        while batch := await consumer.getmany(timeout_ms=10_000 if len(shown) < count else 1000):
            shown += [record.value for records in batch.values() for record in records]
        return shown
    finally:
        await consumer.stop()


def test_a_transaction_that_was_open_when_kafka_was_killed_is_not_shown_after_a_stop_of_ours(new_site) -> None:
    """Kafka has to recover the partition that our broker refused: our orderly stop does not speak for it."""
    site: Site = new_site()
    site.kafka.start()
    for topic in ("plain", "transactional"):
        site.kafka.create_topic(topic, **SMALL)
        site.kafka.produce(topic, numbered(20))
    asyncio.run(begin(site.kafka, "transactional"))
    site.ours.start()
    append_with_ours(site.ours, "plain")
    site.ours.stop()
    assert not (site.data / CLEAN_MARKER).exists()

    site.kafka.start()
    shown = asyncio.run(committed(site.kafka, "transactional", 20))
    assert shown == [value for _, value in numbered(20)]
    assert site.kafka.bounds("plain") == (0, 20 + APPENDED_RECORDS)
    site.kafka.kill()

    site.ours.start()
    assert site.ours.bounds("plain") == (0, 20 + APPENDED_RECORDS)
    assert_refused(site.ours, {"transactional": "has a batch of a transaction"})
    site.ours.stop()


@pytest.mark.parametrize("stop", ["in order", "killed"])
def test_messages_of_an_old_format_are_refused_and_left_as_they_are(new_site, stop: str) -> None:
    site: Site = new_site({"inter.broker.protocol.version": "2.8", "log.message.format.version": "0.10.2"})
    site.kafka.start()
    site.kafka.create_topic("old", **SMALL)
    site.kafka.create_topic("new", **SMALL, message_format_version="2.8")
    for topic in ("old", "new"):
        site.kafka.produce(topic, numbered(400))
    new = site.kafka.raw("new")
    site.kafka.stop() if stop == "in order" else site.kafka.kill()
    logs = site.files(".log", topic="old")
    for _ in range(2):
        site.ours.start()
        assert site.ours.raw("new") == new
        assert_refused(site.ours, {"old": "has a message of format 1 at offset 0"})
        site.ours.stop()
        assert site.files(".log", topic="old") == logs

    site.kafka.start()
    assert asyncio.run(committed(site.kafka, "old", 400)) == [value for _, value in numbered(400)]
    assert site.kafka.raw("new") == new
    site.kafka.stop()
