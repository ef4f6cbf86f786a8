"""Records for a topic that the cluster does not know keep back no others."""

from __future__ import annotations

from typing import Any

import pytest

from strandline import Producer
from strandline.client.errors import ClientClosed, FlushTimedOut, InvalidTopic, UnknownTopic
from strandline.client.send_futures import send_future
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import MetadataResponse, MetadataTopic
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeCluster
from unit.client.test_sync import PATIENCE_S, cluster

__all__ = ["cluster"]

LONG_MS = 1000 * PATIENCE_S


def stored(cluster: FakeCluster, topic: str) -> list[bytes | None]:
    return [record.value for record in cluster.logs[TopicPartition(topic, 0)].records()]


def test_records_of_known_topics_go_on_at_once(cluster: FakeCluster) -> None:
    cluster.add_topic("known")
    producer = Producer(cluster.bootstrap, max_block_ms=10 * LONG_MS)
    lost: list[Any] = []
    for number in range(20):
        lost += [producer.send("missing", b"x"), producer.send_many("missing", [(None, b"x"), (b"k", b"y")])]
        producer.send("known", b"%d" % number).result(PATIENCE_S)
    assert not any(future.done() for future in lost)
    assert producer.metrics()["buffer-available-bytes"] < producer.metrics()["buffer-total-bytes"]
    with pytest.raises(FlushTimedOut):
        producer.close(0)
    for future in lost:
        with pytest.raises(ClientClosed):
            future.result(PATIENCE_S)
    assert producer.failed_records == 60


def test_what_waits_for_a_topic_stays_in_order_and_is_flushed(cluster: FakeCluster) -> None:
    cluster.add_topic("known")
    with Producer(cluster.bootstrap, max_block_ms=LONG_MS, buffer_memory=100_000) as producer:
        producer.send("known", b"x").result(PATIENCE_S)
        futures: list[Any] = []
        for number in range(0, 90, 3):
            futures.append(producer.send("late", b"%d" % number, timestamp_ms=5))
            futures.append(producer.send("late", b"%d" % (number + 1), timestamp_ms=5))
            futures.append(producer.send_many("late", [(None, b"%d" % (number + 2))], timestamp_ms=5))
        producer.send("known", b"y").result(PATIENCE_S)
        with pytest.raises(FlushTimedOut):
            producer.flush(0.05)
        cluster.add_topic("late")
        producer.flush(PATIENCE_S)
        assert all(future.done() for future in futures)
        assert producer.metrics()["buffer-available-bytes"] == 100_000
    assert stored(cluster, "late") == [b"%d" % number for number in range(90)]


def test_records_without_any_bytes_are_flushed_too(cluster: FakeCluster) -> None:
    with Producer(cluster.bootstrap, max_block_ms=LONG_MS) as producer:
        empty = producer.send_many("late", [(None, None)])
        with pytest.raises(FlushTimedOut):
            producer.flush(0.05)
        cluster.add_topic("late")
        producer.flush(PATIENCE_S)
        assert empty.done()


def test_a_record_that_comes_alone_stays_behind_those_that_wait_for_its_topic(cluster: FakeCluster) -> None:
    cluster.add_topic("known")
    with Producer(cluster.bootstrap) as producer:
        sent = producer.send("known", b"x")
        sent.result(PATIENCE_S)

        async def is_taken_now(held_back: set[str]) -> bool:
            producer._held_back.has = held_back.__contains__
            return producer._take_now(producer._client, send_future(sent.where, (None, b"y")))

        assert not producer._portal.call(is_taken_now, {"known"}, timeout_s=PATIENCE_S)
        assert producer._portal.call(is_taken_now, set(), timeout_s=PATIENCE_S)


def test_each_record_waits_for_max_block_ms_and_no_longer(cluster: FakeCluster) -> None:
    cluster.add_topic("known")
    with Producer(cluster.bootstrap, max_block_ms=300) as producer:
        lost = [producer.send("missing", b"x", timestamp_ms=number) for number in range(50)]
        for future in lost:  # one after the other they would take 15 s
            with pytest.raises(UnknownTopic, match="300 ms"):
                future.result(8)
        producer.flush()
        assert producer._held_back.kept_bytes == producer._client._accumulator.waiting_bytes == 0


def test_a_topic_that_is_refused_for_good_is_told_at_once(cluster: FakeCluster) -> None:
    answer = cluster.brokers[0].metadata

    def refuse(request: Any) -> Any:
        told = answer(request)
        topics = [MetadataTopic(ErrorCode.INVALID_TOPIC_EXCEPTION, each.name, []) for each in told.topics]
        return MetadataResponse(told.brokers, topics, told.controller_id, told.cluster_id)

    cluster.brokers[0].metadata = refuse
    with Producer(cluster.bootstrap, max_block_ms=LONG_MS) as producer, pytest.raises(InvalidTopic):
        producer.send("refused", b"x").result(PATIENCE_S / 2)


def test_the_memory_of_what_waits_for_a_topic_counts(cluster: FakeCluster) -> None:
    cluster.add_topic("known")
    with Producer(cluster.bootstrap, max_block_ms=500, buffer_memory=50_000, batch_size=1_000) as producer:
        producer._room_timeout_s = PATIENCE_S
        for _ in range(5):  # of what is refused the memory comes free
            producer.send("missing", bytes(30_000))
        lost = producer.send_many("missing", [(None, bytes(10_000))] * 4)
        assert producer.send("known", bytes(5_000)).result(PATIENCE_S).offset == 0
        with pytest.raises(UnknownTopic):
            lost.result(PATIENCE_S)
        with pytest.raises(Exception, match="5 records were not delivered"):
            producer.flush()
