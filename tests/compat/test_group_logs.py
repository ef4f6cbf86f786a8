"""`__consumer_offsets`: Kafka's own decoder reads what we write, and we read what a real Kafka wrote."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.structs import OffsetAndMetadata

from compat.kafka_clients import commit_group, committed_of_group
from compat.real_kafka import Kafka, Site, Turn
from strandline.broker.groups.offsets import GroupOffsets
from strandline.protocol.group_changes import Changes, Reading, read_changes, unpack_changes
from strandline.protocol.group_records import (
    CommittedOffset,
    GroupMember,
    GroupMetadata,
    group_key,
    group_value,
)
from strandline.protocol.records import assign_offset, build_batch

MAIN = "kafka.tools.DumpLogSegments"
CONSUMER_SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
CONSUMER_ASSIGNMENT = b"\0\0\0\0\0\1\0\1t\0\0\0\1\0\0\0\0\xff\xff\xff\xff"


def test_kafkas_decoder_reads_what_we_write(run_kafka, tmp_path: Path) -> None:
    member = GroupMember(
        "m-1", "static-1", "client", "/10.0.0.1", 300_000, 45_000, CONSUMER_SUBSCRIPTION, CONSUMER_ASSIGNMENT
    )
    group = GroupMetadata("grüße", "consumer", 7, "range", "m-1", 1_600_000_000_000, [member])
    offsets = GroupOffsets("grüße")
    _, commits = offsets.begin(
        {
            "t": {
                0: CommittedOffset(41, 3, "a note", 1_600_000_000_001),
                1: CommittedOffset(2**62, -1, "", 1_600_000_000_002, 1_700_000_000_000),
            }
        }
    )
    removed = offsets.remove("t", [1])
    records = [(group_key("grüße"), group_value(group)), *commits, *removed, (group_key("gone"), None)]
    batch = bytearray(build_batch([(1000, key, value) for key, value in records], "lz4"))
    assign_offset(batch, 0, 0)
    path = tmp_path / "__consumer_offsets-0" / f"{0:020d}.log"
    path.parent.mkdir()
    path.write_bytes(batch)
    output = run_kafka(MAIN, "--offsets-decoder", "--files", str(path))
    assert "isvalid: true" in output
    assert re.findall(r" key: (.*) payload: (.*)", output) == [
        (
            '{"type":"2","data":{"group":"grüße"}}',
            '{"version":"3","data":{"protocolType":"consumer","generation":7,"protocol":"range","leader":"m-1",'
            '"currentStateTimestamp":1600000000000,"members":[{"memberId":"m-1","groupInstanceId":"static-1",'
            '"clientId":"client","clientHost":"/10.0.0.1","rebalanceTimeout":300000,"sessionTimeout":45000,'
            '"subscription":{"topics":["t"],"userData":null},'
            '"assignment":{"assignedPartitions":[{"topic":"t","partitions":[0]}],"userData":null}}]}}',
        ),
        (
            '{"type":"1","data":{"group":"grüße","topic":"t","partition":0}}',
            '{"version":"3","data":{"offset":41,"leaderEpoch":3,"metadata":"a note","commitTimestamp":1600000000001}}',
        ),
        (
            '{"type":"1","data":{"group":"grüße","topic":"t","partition":1}}',
            '{"version":"1","data":{"offset":4611686018427387904,"metadata":"","commitTimestamp":1600000000002,'
            '"expireTimestamp":1700000000000}}',
        ),
        ('{"type":"1","data":{"group":"grüße","topic":"t","partition":1}}', "<DELETE>"),
        ('{"type":"2","data":{"group":"gone"}}', "<DELETE>"),
    ]


async def _consume(kafka: Kafka, group: str, topic: str) -> None:
    """A static member, whose group stays as it is when it is gone, reads all and commits with a note."""
    consumer = AIOKafkaConsumer(
        topic,
        bootstrap_servers=kafka.address,
        group_id=group,
        group_instance_id="static-1",
        client_id="a-client",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    await consumer.start()
    try:
        await consumer.getone()
        await consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(1, "a note")})
    finally:
        await consumer.stop()


def group_logs(site: Site) -> dict[str, Changes]:
    """What the files say, by folder."""
    found: dict[str, Changes] = {}
    for name, data in site.files(".log", topic="__consumer_offsets").items():
        if not data:
            continue
        reading = msgspec.convert(read_changes(None, data, 0, 2**28), Reading)
        assert (reading.is_damaged, reading.skipped) == (False, 0), reading.why
        (piece,) = reading.pieces
        found[name] = unpack_changes(piece)
    return found


def test_we_read_what_a_kafka_wrote(new_site) -> None:
    site: Site = new_site({"offsets.topic.num.partitions": "1", "offsets.topic.compression.codec": "1"})
    kafka = site.kafka
    kafka.start()
    kafka.create_topic("t")
    kafka.produce("t", [(None, b"x")] * 3)
    for offset in (1, 2):
        commit_group(kafka, "simple", "t", offset)
    asyncio.run(_consume(kafka, "members", "t"))
    kafka.stop()
    (changes,) = group_logs(site).values()
    assert changes.offsets["simple"]["t"][0].offset == 2
    noted = changes.offsets["members"]["t"][0]
    assert (noted.offset, noted.metadata) == (1, "a note") and noted.commit_timestamp_ms > 0
    group = changes.groups["members"]
    assert (group.protocol_type, group.generation, group.protocol) == ("consumer", 1, "roundrobin")
    (member,) = group.members
    assert (group.leader, member.group_instance_id, member.client_id) == (member.member_id, "static-1", "a-client")
    assert b"\0\1t" in member.subscription and b"\0\1t" in member.assignment


async def _write_and_read_on(broker: Turn, values: list[bytes]) -> list[bytes]:
    """These are written; what a subscriber gets that nobody of its group had read before, and commits."""
    producer = AIOKafkaProducer(bootstrap_servers=broker.address, acks="all")
    consumer = AIOKafkaConsumer(
        "t",
        bootstrap_servers=broker.address,
        group_id="readers",
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    )
    async with asyncio.timeout(60), producer, consumer:
        for value in values:
            await producer.send_and_wait("t", value, partition=0)
        found: list[bytes] = []
        while values[-1] not in found:
            found += [each.value for batch in (await consumer.getmany(timeout_ms=500)).values() for each in batch]
        await consumer.commit()
        return found


def test_groups_go_on_from_kafka_to_us_and_back(new_site) -> None:
    """Where a group stood, with its clients: each broker in turn takes the log of the one before over."""
    site: Site = new_site({"offsets.topic.num.partitions": "3", "offsets.topic.compression.codec": "1"})
    site.kafka.start()
    site.kafka.create_topic("t")
    site.kafka.produce("t", [(None, b"x")] * 5)
    asyncio.run(_consume(site.kafka, "members", "t"))
    offset = 1
    unread = [b"x"] * 5
    for number, turn in enumerate((site.kafka, site.ours, site.kafka, site.ours)):
        if offset > 1:
            turn.start()
            turn.bounds("t")  # it knows of itself, and leads
            assert committed_of_group(turn, "simple", "t") == offset
            assert committed_of_group(turn, "members", "t") == 1
        offset += 1
        commit_group(turn, "simple", "t", offset)
        written = [b"%d: %d" % (number, place) for place in range(3)]
        assert asyncio.run(_write_and_read_on(turn, written)) == unread + written
        unread = []
        turn.stop()
    (found,) = [changes.offsets for changes in group_logs(site).values() if "simple" in changes.offsets]
    assert found["simple"]["t"][0].offset == offset
