"""Records that are sent one by one and accepted together: each future tells of its own record."""

from __future__ import annotations

import random
import threading
from typing import Any

import pytest

from strandline import Producer
from strandline.client import sync_producer
from strandline.client.accumulator import Accumulator
from strandline.client.errors import ClientClosed, DeliveryTimeout, InvalidRecordValue, RecordTooLarge, UnknownTopic
from strandline.client.send_futures import SendFuture, send_future
from strandline.protocol.records import Record
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeCluster
from unit.client.test_sync import cluster

__all__ = ["cluster"]


def stored(cluster: FakeCluster) -> dict[tuple[str, int, int], Record]:
    return {
        (at.topic, at.partition, index): record
        for at, log in cluster.logs.items()
        for index, record in enumerate(log.records())
    }


@pytest.mark.parametrize("seed", range(5))
def test_each_future_tells_where_its_own_record_stands(
    cluster: FakeCluster, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever is mixed: topics, keys, partitions, headers, timestamps, records that are too large; over batches that
    are full after some records, in runs that are cut."""
    monkeypatch.setattr(sync_producer, "RUN_RECORDS", 50)
    cluster.add_topic("t", 3)
    cluster.add_topic("u", 1)
    rng = random.Random(seed)
    sent: list[tuple[Any, dict[str, Any]]] = []
    with Producer(cluster.bootstrap, batch_size=500, max_request_size=2_000, linger_ms=1) as producer:
        for number in range(3_000):
            record: dict[str, Any] = {"topic": "t", "value": b"%d" % number}
            kind = rng.randrange(60)
            if kind < 20:
                record["key"] = b"key-%d" % rng.randrange(20)
            if kind in (1, 21):
                record["topic"] = "u"
            if kind in (2, 22):
                record["headers"] = {"h": b"%d" % number}
            if kind in (3, 23):
                record["timestamp_ms"] = number
            if kind == 24:
                record["partition"] = 0
            if kind in (5, 25):
                record["value"] = b"%d" % number + b"x" * 3_000
            sent.append((producer.send(**record), record))
            if kind == 26:
                producer.send_many("t", [(b"k", b"of many"), (None, b"of many")])
        for future, record in sent:
            if len(record["value"]) > 2_000:
                with pytest.raises(RecordTooLarge):
                    future.result()
    found = stored(cluster)
    seen: dict[tuple[str, int], int] = {}
    for future, record in sent:
        if len(record["value"]) > 2_000:
            continue
        metadata = future.result()
        there = found[metadata.topic, metadata.partition, metadata.offset]
        assert metadata.topic == record["topic"]
        assert (there.value, there.key) == (record["value"], record.get("key"))
        assert list(there.headers) == list(record.get("headers", {}).items())
        assert there.timestamp_ms == metadata.timestamp_ms == record.get("timestamp_ms", metadata.timestamp_ms)
        if "key" in record or "partition" in record:  # records without a key change partitions as they like
            assert seen.get((metadata.topic, metadata.partition, record.get("key")), -1) < metadata.offset
            seen[metadata.topic, metadata.partition, record.get("key")] = metadata.offset


def test_a_record_that_is_alone_leaves_without_a_switch_of_tasks(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer:
        producer.send("t", b"0", partition=0).result()  # the topic's partitions are known now
        monkeypatch.setattr(producer._mailbox, "take_all", None)  # nobody asks for more once it has waited
        for number in range(1, 4):
            sent = producer.send("t", b"%d" % number, partition=0)
            assert sent.result().offset == number
        monkeypatch.undo()

        async def under_way() -> int:
            assert producer._take_now(producer._client, send_future(sent.where, (None, b"4")))
            return len(producer._client._accumulator.queues[TopicPartition("t", 0)].in_flight)

        assert producer._portal.call(under_way, timeout_s=60) == 1, "its request has left"


def test_a_loop_that_is_busy_is_no_full_buffer(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.add_topic("t")
    monkeypatch.setattr(sync_producer, "MAILBOX_RECORDS", 1)
    monkeypatch.setattr(sync_producer, "BUSY_S", 60)
    with Producer(cluster.bootstrap, buffer_full="raise") as producer:
        producer.send("t", b"0").result()
        busy = threading.Event()
        producer._portal.post(busy.wait)  # the loop has a turn that takes long
        release = threading.Timer(0.1, busy.set)
        release.start()
        for number in range(1, 4):
            producer.send("t", b"%d" % number)
        release.join()
    assert [each.value for each in cluster.logs[TopicPartition("t", 0)].records()] == [b"0", b"1", b"2", b"3"]


def test_what_is_wrong_with_one_record_keeps_out_no_other(cluster: FakeCluster) -> None:
    cluster.add_topic("t", 2)

    def choose(key: bytes, partitions: int) -> int:
        if key == b"unknown":
            raise LookupError("no such customer")
        return 0

    with Producer(cluster.bootstrap, partitioner=choose, max_request_size=1_000) as producer:
        futures = [
            producer.send("t", b"%d" % number, key=b"unknown" if number % 3 == 1 else b"k") for number in range(9)
        ]
        nowhere = [producer.send("t", b"x", partition=7) for _ in range(2)]
        for number, future in enumerate(futures):
            if number % 3 == 1:
                with pytest.raises(InvalidRecordValue, match="no such customer"):
                    future.result()
            else:
                assert future.result().partition == 0
        for future in nowhere:
            with pytest.raises(UnknownTopic, match="no partition 7"):
                future.result()
        assert (producer.delivered_records, producer.failed_records) == (6, 5)
    values = [record.value for record in cluster.logs[TopicPartition("t", 0)].records()]
    assert values == [b"%d" % number for number in range(9) if number % 3 != 1]


@pytest.mark.parametrize("where", ["open_batch", "queue"])
def test_an_unexpected_error_leaves_no_future_open(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    cluster.add_topic("t", 2)
    producer = Producer(cluster.bootstrap, batch_size=500)
    producer.send("t", b"x", partition=0).result(60)
    original = getattr(Accumulator, where)
    calls: list[Any] = []

    def fail_at_last(*arguments: Any) -> Any:
        calls.append(arguments)
        if len(calls) > 1:
            raise MemoryError("no memory for a batch")
        return original(*arguments)

    async def send_all() -> list[SendFuture]:
        return [producer.send("t", b"x" * 100, key=b"%d" % index, timestamp_ms=5) for index in range(100)]

    monkeypatch.setattr(Accumulator, where, fail_at_last)
    futures = producer._call(send_all, timeout_s=60)
    errors = [future.exception(15) for future in futures]
    assert {type(error) for error in errors} <= {type(None), ClientClosed, DeliveryTimeout}
    assert isinstance(errors[-1], ClientClosed) and "MemoryError('no memory for a batch')" in str(errors[-1])
    with pytest.raises(ClientClosed, match="MemoryError"):
        producer.close()


@pytest.mark.parametrize("answer", [2, -1, None, 1.0, "0"], ids=repr)
def test_what_a_partitioner_returns_that_is_no_partition_refuses_the_record(cluster: FakeCluster, answer: Any) -> None:
    cluster.add_topic("t", 2)

    def pick(key: bytes, partitions: int) -> Any:
        return answer if key == b"wrong" else 1

    with Producer(cluster.bootstrap, partitioner=pick) as producer:
        futures = [producer.send("t", b"x", key=key, timestamp_ms=5) for key in (b"fine", b"wrong", b"fine")]
        futures.append(producer.send("t", b"alone", key=b"wrong"))
        complaint = rf"the partitioner .*pick returned {answer!r} .* 2 partitions"
        for future in (futures[1], futures[3], producer.send_many("t", [(b"wrong", b"x")])):
            with pytest.raises(InvalidRecordValue, match=complaint):
                future.result(60)
        assert [futures[index].result(60)[1:3] for index in (0, 2)] == [(1, 0), (1, 1)]
