"""`buffer_memory` of the synchronous producer: all that waits, wherever it does, and what becomes of who sends then."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from contextlib import suppress
from typing import Any

import pytest
import trio.testing

from strandline import Producer
from strandline.aio import AioProducer
from strandline.client.errors import BufferFull, FlushTimedOut, InvalidTopic, RecordDropped, SendsFailed
from strandline.client.record_sizes import content_bytes
from strandline.client.send_futures import SendFuture
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import MetadataResponse, MetadataTopic
from strandline.runtime.processes import mailbox
from strandline.runtime.processes.alarms import Alarm
from unit.client.fake_broker import FakeCluster, Fault
from unit.client.test_sync import PATIENCE_S, cluster

__all__ = ["cluster"]

NOWHERE = "127.0.0.1:1"
BLOCK = b"x" * 10_000
MEMORY = 20 * len(BLOCK)


def available(producer: Producer) -> float:
    return producer.metrics()["buffer-available-bytes"]


def test_records_that_are_not_settled_are_never_more_than_buffer_memory(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, buffer_memory=MEMORY, batch_size=len(BLOCK)) as producer:
        under_way: deque[SendFuture] = deque()
        for number in range(500):
            under_way.append(producer.send("t", BLOCK, headers={"n": b"%d" % number}))
            while under_way and under_way[0].done():
                under_way.popleft()
            assert len(under_way) * len(BLOCK) <= MEMORY
        producer.flush()
        assert producer.delivered_records == 500
        assert available(producer) == MEMORY


@pytest.mark.parametrize(
    "send",
    [
        lambda producer: producer.send("t", BLOCK),
        lambda producer: producer.send("t", None, key=BLOCK),
        lambda producer: producer.send("t", b"", headers={"h": BLOCK}),
        lambda producer: producer.send_many("t", [(None, BLOCK)]),
        lambda producer: producer.send_many("t", [(None, None, [("h", BLOCK)], 1)]),
    ],
    ids=["value", "key", "header", "many", "header of many"],
)
def test_what_has_no_room_is_refused_as_buffer_full_says(send: Any) -> None:
    settings = {"buffer_memory": MEMORY, "bootstrap_timeout_ms": 1000 * PATIENCE_S}
    producer = Producer(NOWHERE, buffer_full="raise", **settings)
    with pytest.raises(BufferFull, match="buffer_full=raise"):
        for _ in range(21):
            send(producer)
    assert available(producer) < len(BLOCK)
    dropping = Producer(NOWHERE, buffer_full="drop", **settings)
    futures = [send(dropping) for _ in range(21)]
    assert isinstance(futures[-1].exception(PATIENCE_S), RecordDropped)
    waiting = Producer(NOWHERE, **settings)
    waiting._room_timeout_s = 0.05
    with pytest.raises(BufferFull, match="max_block_ms"):
        for _ in range(21):
            send(waiting)
    for each in (producer, dropping, waiting):
        with suppress(FlushTimedOut, SendsFailed):
            each.close(0)


def test_a_long_list_is_no_full_memory(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, buffer_full="raise") as producer:
        busy = threading.Event()
        producer._portal.post(busy.wait)  # the loop has a turn that takes long
        try:
            producer.send("t", b"first")
            producer.send_many("t", [(None, b"x")] * 15_000)
        finally:
            busy.set()
    assert producer.delivered_records == 15_001


def test_a_list_that_is_larger_than_the_memory_is_sent_all_the_same(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, buffer_memory=MEMORY, batch_size=len(BLOCK)) as producer:
        futures = [producer.send_many("t", [(None, BLOCK)] * 50) for _ in range(3)]
        assert [sum(batch.records_count for batch in future.result(PATIENCE_S)) for future in futures] == [50] * 3
        assert available(producer) == MEMORY


def test_batches_do_not_linger_while_somebody_waits_for_memory(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, buffer_memory=500, linger_ms=1000 * PATIENCE_S) as producer:
        for _ in range(5):
            producer.send("t", b"x" * 200)
        producer.flush()


def test_a_record_is_not_kept_twice_while_it_is_under_way(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, linger_ms=0) as producer:
        producer.send("t", b"first").result(PATIENCE_S)
        cluster.brokers[0].faults[0].append(Fault(hang=True))
        future = producer.send("t", BLOCK)
        producer._call(trio.testing.wait_all_tasks_blocked, timeout_s=PATIENCE_S)
        assert future.pair is None and not future.done()
        with pytest.raises(FlushTimedOut):
            producer.close(0)
        assert future.exception(PATIENCE_S) is not None


def test_content_is_counted_of_pairs_and_of_full_records() -> None:
    assert content_bytes([]) == 0
    assert content_bytes([(None, b"123"), (b"12", None), (b"1", b"1")]) == 7
    assert content_bytes([(None, b"123", [("h", b"12"), ("g", None)], 5), (b"12", None, (), 5)]) == 9


def test_a_list_larger_than_the_memory_does_not_wait_for_a_topic_that_nobody_knows(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    producer = Producer(cluster.bootstrap, buffer_memory=MEMORY)
    producer.send("t", b"x").result(PATIENCE_S)
    producer.send("missing", b"x")
    sent = producer.send_many("t", [(None, BLOCK)] * 50)
    assert len(sent.result(PATIENCE_S)) > 0
    with suppress(FlushTimedOut):
        producer.close(0)


def test_who_waits_for_memory_is_told_when_what_was_held_back_is_refused(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    answer, refused = cluster.brokers[0].metadata, asyncio.Event()

    def refuse(request: Any) -> Any:
        told = answer(request)
        code = ErrorCode.INVALID_TOPIC_EXCEPTION
        topics = [MetadataTopic(code, each.name, []) if each.name == "missing" else each for each in told.topics]
        return MetadataResponse(told.brokers, topics, told.controller_id, told.cluster_id) if refused.is_set() else told

    cluster.brokers[0].metadata = refuse

    async def main() -> None:
        async with AioProducer(cluster.bootstrap, buffer_memory=MEMORY, max_block_ms=2_000 * PATIENCE_S) as producer:
            await (await producer.send("t", b"x"))
            held_back = await producer.send("missing", BLOCK * 19)
            waits = asyncio.ensure_future(producer.send("t", BLOCK * 2))
            await asyncio.sleep(0.1)
            assert not waits.done()
            refused.set()
            await (await asyncio.wait_for(waits, PATIENCE_S))
            with pytest.raises(InvalidTopic):
                await held_back

    asyncio.run(main())


def test_a_wish_for_memory_is_not_lost_while_it_is_being_made(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop tells all that wait just when this thread is about to be one of them: batches must not linger."""
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, buffer_memory=500, linger_ms=1_000 * PATIENCE_S) as producer:
        producer.send("t", b"x")
        producer.flush()

        def alarm() -> Alarm:
            async def ring() -> None:
                producer._mailbox._ring_all()

            monkeypatch.setattr(mailbox, "Alarm", Alarm)
            producer._portal.call(ring, timeout_s=PATIENCE_S)
            return Alarm()

        producer.send("t", bytes(200))
        monkeypatch.setattr(mailbox, "Alarm", alarm)
        producer._room_timeout_s = PATIENCE_S / 2
        for _ in range(4):
            producer.send("t", bytes(200))


def test_a_flush_does_not_cut_batches_that_records_are_still_coming_for(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap, batch_size=10_000, linger_ms=1_000 * PATIENCE_S) as producer:
        producer.send("t", b"x")
        producer.flush()
        for number in range(2_000):
            producer.send("t", bytes(90), partition=0, timestamp_ms=number)
        producer.flush()
        assert producer.metrics()["batch-send-total"] <= 1 + 2_000 / 90
