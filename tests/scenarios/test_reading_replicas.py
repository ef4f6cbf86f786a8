"""Whoever compares replicas reads each of them, whoever leads, and changes nothing by it."""

from __future__ import annotations

import pytest

from strandline.client.errors import AnsweredError, CannotReachBroker, ClientError
from strandline.client.replicas.looking import NO_SUCH_OFFSET
from strandline.client.replicas.reading import Replica, ReplicaPart
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import EARLIEST_TIMESTAMP
from strandline.protocol.records import decode_records
from strandline.protocol.types import TopicPartition
from support.scenario import T0, cluster_with_topic, die

REPLICAS = [Replica(T0, broker_id) for broker_id in (1, 2, 3)]


def values(part: ReplicaPart) -> list[bytes | None]:
    return [record.value for record in decode_records(part.records)]


async def test_each_replica_hands_out_the_same_committed_bytes_and_says_where_it_begins_and_ends(
    autojump_clock,
) -> None:
    async with cluster_with_topic() as (cluster, producer, _), cluster.admin() as admin:
        for number in range(5):
            await (await producer.send("t", b"%d" % number))
        await admin.delete_records({T0: 2})
        parts = [await admin.read_replica(replica, 2, leader_epoch=0, max_wait_ms=1000) for replica in REPLICAS]
        assert [(values(part), part.high_watermark, part.log_start_offset) for part in parts] == [
            ([b"2", b"3", b"4"], 5, 2)
        ] * 3
        assert len({part.records for part in parts}) == 1
        assert await admin.replica_offsets(dict.fromkeys(REPLICAS, 0)) == dict.fromkeys(REPLICAS, 5)
        starts = await admin.replica_offsets(dict.fromkeys(REPLICAS, 0), EARLIEST_TIMESTAMP)
        assert starts == dict.fromkeys(REPLICAS, 2)
        first, *_, last = decode_records(parts[0].records)
        leader = {REPLICAS[0]: 0}
        assert await admin.replica_offsets(leader, first.timestamp_ms) == {REPLICAS[0]: 2}
        assert await admin.replica_offsets(leader, last.timestamp_ms + 1) == {REPLICAS[0]: NO_SUCH_OFFSET}
        for offset in (0, 5, 900):
            for replica in REPLICAS:
                assert await admin.read_replica(replica, offset) == ReplicaPart(b"", 5, 2)


async def test_a_replica_that_is_out_of_sync_is_read_and_stays_so(autojump_clock) -> None:
    async with cluster_with_topic() as (cluster, producer, _), cluster.admin() as admin:
        await (await producer.send("t", b"first"))
        cluster.cut(1, 3)
        for number in range(3):
            await (await producer.send("t", b"%d" % number))
        await cluster.until(lambda: cluster.isr(T0) == [1, 2], "broker 3 lags")
        for offset in (0, 1, 4):
            part = await admin.read_replica(REPLICAS[2], offset)
            assert values(part) in ([b"first"], []) and part.high_watermark <= 1
        assert (await admin.replica_offsets({REPLICAS[2]: 0}))[REPLICAS[2]] == 1
        assert cluster.isr(T0) == [1, 2]
        progress = cluster.partition(1, T0).leadership.followers[3]
        assert progress.log_end_offset == 1


async def test_what_cannot_be_answered_says_why(autojump_clock) -> None:
    async with cluster_with_topic() as (cluster, producer, _), cluster.admin() as admin:
        await (await producer.send("t", b"first"))
        with pytest.raises(AnsweredError) as refused:
            await admin.read_replica(REPLICAS[1], 0, leader_epoch=7)
        assert refused.value.code == ErrorCode.UNKNOWN_LEADER_EPOCH
        with pytest.raises(AnsweredError) as unknown:
            await admin.read_replica(Replica(TopicPartition("t", 9), 1), 0)
        assert unknown.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        die(cluster, 3)
        with pytest.raises(CannotReachBroker):
            await admin.read_replica(REPLICAS[2], 0)
        found = await admin.replica_offsets(
            {REPLICAS[0]: 0, REPLICAS[2]: 0, Replica(TopicPartition("t", 9), 1): 0}, timeout_ms=2000
        )
        assert found[REPLICAS[0]] == 1
        assert all(isinstance(error, ClientError) for replica, error in found.items() if replica != REPLICAS[0])
        assert isinstance(found[REPLICAS[2]], ClientError) and len(found) == 3
