"""Failures do not vanish: wrong types are refused where they are sent, and what is not delivered is told in the end."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import pytest
import trio

from strandline import Producer
from strandline.aio import AioProducer
from strandline.client import TrioProducer
from strandline.client.errors import (
    ClientClosed,
    ClientError,
    FlushTimedOut,
    InvalidRecordValue,
    InvalidTopic,
    RecordTooLarge,
    SendsFailed,
    UnknownTopic,
)
from strandline.client.send_futures import Run, SendManyFuture, Where, send_future
from strandline.client.unread_failures import MAX_REMEMBERED, SWEEP_AT_LEAST, Tally, Unread, UnreadFailures
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import FakeCluster, Fault
from unit.client.test_sync import cluster

__all__ = ["cluster"]

PATIENCE_S = 60
LARGE = b"x" * 3_000_000


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("t", "text"), r"the value is a str, 'text': give its \.encode\(\), or the producer a value_serializer"),
        (("t", 5), r"the value is 5 \(int\): give bytes or None"),
        (("t", b"x", "key"), r"the key is a str, 'key': .* key_serializer"),
        ((b"t", b"x"), r"the topic is b't' \(bytes\): give its name as a str"),
        ((["t"], b"x"), "the topic is"),
        (("t", b"x", None, "0"), "the partition is '0'"),
        (("t", b"x", None, None, [("h", "text")]), "the value of header 'h' is a str"),
        (("t", b"x", None, None, [(b"h", b"x")]), "the name of a header is b'h'"),
        (("t", b"x", None, None, [("\udc80", b"x")]), "cannot be encoded as UTF-8"),
        (("t", b"x", None, None, ["h"]), "give a dict of names and bytes, or pairs"),
        (("t", b"x", None, None, 7), "give a dict of names and bytes, or pairs"),
        (("t", b"x", None, None, None, 7.5), "timestamp_ms is 7.5"),
        (("t", b"x", None, None, None, True), "timestamp_ms is True"),
        (("t", b"x", None, None, None, -7), "timestamp_ms is -7"),
    ],
)
def test_what_is_no_record_is_refused_where_it_is_sent(arguments: tuple[Any, ...], complaint: str) -> None:
    with Producer("127.0.0.1:1") as producer:
        with pytest.raises(TypeError, match=complaint) as caught:
            producer.send(*arguments)
        assert isinstance(caught.value, ClientError)


@pytest.mark.parametrize(
    ("records", "complaint"),
    [
        ([(b"k", b"1"), (b"k", b"2"), (b"k", "text")], r"record 2: the value is a str, 'text': give its \.encode\(\)"),
        ([(b"k", b"1"), (), (b"k", b"2")], r"record 1 is \(\): give \(key, value\) or"),
        ([None], "record 0 is None"),
        (["ab"], "record 0 is 'ab'"),
        ([("text", b"1")], "the key is a str"),
        ([(None, 5)], r"the value is 5 \(int\): give bytes or None"),
        ([(b"k", b"1"), (b"k", b"2", (), 7)], "record 1 is of another kind"),
        ([(b"k", b"1", [("h", "text")], 7)], "the value of header 'h' is a str"),
        ([(b"k", b"1", [], 7.5)], "timestamp_ms is 7.5"),
        ([(b"k", b"1", [], 2**64)], "timestamp_ms is 1844"),
    ],
)
def test_many_are_refused_together_where_one_of_them_is_no_record(
    cluster: FakeCluster, records: list[Any], complaint: str
) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer:
        with pytest.raises(TypeError, match=complaint):
            producer.send_many("t", records)
        producer.send("t", b"last")
    assert [record.value for record in cluster.logs[TopicPartition("t", 0)].records()] == [b"last"]


@pytest.mark.parametrize("headers", [None, {}, (), []])
def test_a_record_of_many_may_have_no_headers(cluster: FakeCluster, headers: Any) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer:
        producer.send_many("t", [(b"k", b"v", headers, 5)]).result(PATIENCE_S)
        producer.send_many("t", [(b"k", b"v", [("h", b"1")], 5), (b"k", b"v", headers, 5)]).result(PATIENCE_S)
    records = cluster.logs[TopicPartition("t", 0)].records()
    assert [(list(each.headers), each.timestamp_ms) for each in records] == [([], 5), ([("h", b"1")], 5), ([], 5)]


@pytest.mark.parametrize("topic", ["", "with space", "a/b", "x" * 250, ".."])
def test_an_illegal_topic_is_refused_where_it_is_sent(topic: str) -> None:
    with Producer("127.0.0.1:1") as producer:
        for send in (lambda: producer.send(topic, b"x"), lambda: producer.send_many(topic, [])):
            with pytest.raises(InvalidTopic, match="topic name") as caught:
                send()
            assert isinstance(caught.value, ValueError)


def test_what_can_be_copied_into_bytes_is_taken_as_it_is_then(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    value = bytearray(b"before")
    with Producer(cluster.bootstrap) as producer:
        producer.send("t", value, memoryview(b"key"), headers={"h": bytearray(b"1"), "empty": None})
        producer.send_many("t", [(None, value)])
        value[:] = b"behind"
        producer.send("t", None)
    records = cluster.logs[TopicPartition("t", 0)].records()
    assert [(each.key, each.value) for each in records] == [(b"key", b"before"), (None, b"before"), (None, None)]
    assert list(records[0].headers) == [("h", b"1"), ("empty", None)]


def test_serializers_make_bytes_in_the_thread_that_sends(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    serializers: dict[str, Any] = {"key_serializer": str.encode, "value_serializer": lambda number: b"%d" % number}
    with Producer(cluster.bootstrap, **serializers) as producer:
        producer.send("t", 1, key="a")
        producer.send_many("t", [("b", 2), (None, None)])
        producer.send_many("t", [("c", 3, {"h": b"1"}, 7)])
        for send in (lambda: producer.send("t", "text"), lambda: producer.send_many("t", [(None, "text")])):
            with pytest.raises(TypeError, match="required"):
                send()
        with pytest.raises(TypeError, match="'str' object"):
            producer.send("t", 1, key=5)
    records = cluster.logs[TopicPartition("t", 0)].records()
    assert [(each.key, each.value) for each in records] == [(b"a", b"1"), (b"b", b"2"), (None, None), (b"c", b"3")]


def test_leaving_the_block_raises_what_nobody_has_read_with_counts_and_the_first_cause(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    producer = Producer(cluster.bootstrap, max_block_ms=300)
    with pytest.raises(SendsFailed, match="4 records were not delivered") as caught, producer:
        producer.send("t", b"fine")
        producer.send("t", LARGE)
        producer.send("nowhere", b"x")
        producer.send_many("t", [(None, LARGE), (None, LARGE), (None, b"fine, too")])
    assert caught.value.failed_records == 4
    assert isinstance(caught.value.__cause__, RecordTooLarge) and caught.value.cause is caught.value.__cause__
    assert (producer.delivered_records, producer.failed_records) == (2, 4)
    producer.close()


def raised(future: Any) -> None:
    with pytest.raises(RecordTooLarge):
        future.result()


@pytest.mark.parametrize(
    "read",
    [
        raised,
        lambda future: future.exception(),
        lambda future: future.add_done_callback(lambda _: None),
        lambda future: asyncio.run(wrapped(future)),
    ],
)
def test_what_was_read_is_not_told_again(cluster: FakeCluster, read: Callable[[Any], object]) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer:
        read(producer.send("t", LARGE))
        read(producer.send_many("t", [(None, LARGE)]))
        producer.flush()
        assert producer.failed_records == 2


async def wrapped(future: Any) -> None:
    with pytest.raises(RecordTooLarge):
        await asyncio.wrap_future(future)


def test_each_failure_is_told_once_by_flush(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with Producer(cluster.bootstrap) as producer:
        for count in (1, 2):
            kept = [producer.send("t", LARGE) for _ in range(count)]
            with pytest.raises(SendsFailed) as caught:
                producer.flush()
            assert caught.value.failed_records == count
            assert all(isinstance(future.exception(), RecordTooLarge) for future in kept)
            producer.flush()


def test_what_a_broker_refused_is_told_unless_on_batch_was(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    batches: list[Any] = []
    for on_batch in (None, batches.append):
        cluster.brokers[0].faults[0].append(Fault(ErrorCode.INVALID_RECORD))
        with Producer(cluster.bootstrap, on_batch=on_batch) as producer:
            for _ in range(5):
                producer.send("t", b"x")
            if on_batch is None:
                with pytest.raises(SendsFailed, match=r"5 records were not delivered.*INVALID_RECORD"):
                    producer.flush()
            assert producer.failed_records == 5 or on_batch is not None
    assert [batch.records_count for batch in batches] == [5]


def test_what_on_batch_was_told_is_not_told_again_with_what_it_was_not(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    told: list[Any] = []
    with Producer(cluster.bootstrap, on_batch=told.append, max_request_size=1_000, batch_size=1_000) as producer:
        producer.send("t", b"x").result(20)
        cluster.brokers[0].faults[0].append(Fault(ErrorCode.INVALID_RECORD))
        producer.send_many("t", [(None, b"x")] * 5 + [(None, bytes(2_000))])
        with pytest.raises(SendsFailed, match=r"^1 record was not delivered"):
            producer.flush()
    assert [each.records_count for each in told] == [1, 5]


def test_a_partitioner_that_exits_refuses_its_record_and_ends_nobody(cluster: FakeCluster) -> None:
    cluster.add_topic("t")

    def partitioner(key: bytes, _: int) -> int:
        if key == b"bad":
            sys.exit(3)
        return 0

    with Producer(cluster.bootstrap, partitioner=partitioner) as producer:
        assert producer.send("t", b"x", key=b"ok").result(20).offset == 0
        for lost in (
            producer.send("t", b"x", key=b"bad"),
            producer.send_many("t", [(b"ok", b"x"), (b"bad", b"x")]),
        ):
            with pytest.raises(InvalidRecordValue, match=r"partitioner .* raised SystemExit\(3\)"):
                lost.result(20)
        assert producer.send("t", b"x", key=b"ok").result(20).topic == "t"


def test_the_error_that_ends_a_block_is_not_hidden_and_has_a_note_of_what_failed(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    with pytest.raises(KeyError) as caught, Producer(cluster.bootstrap) as producer:
        producer.send("t", LARGE)
        raise KeyError("of the program")
    assert "1 record was not delivered" in caught.value.__notes__[0]


def test_a_close_that_is_over_too_soon_says_how_many_were_not_delivered() -> None:
    producer = Producer("127.0.0.1:1")
    for _ in range(3):
        producer.send("t", b"x")
    with pytest.raises(FlushTimedOut, match="3 records were not delivered"):
        producer.close(0.1)


async def test_a_trio_producer_tells_at_the_end_of_its_block(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        client = TrioProducer(cluster.bootstrap, environment=cluster.environment())
        cluster.brokers[0].faults[0].append(Fault(ErrorCode.INVALID_RECORD))
        with pytest.raises(SendsFailed, match=r"2 records were not delivered.*INVALID_RECORD"):
            async with client:
                await client.send("t", b"x")
                await client.send("t", b"y")
        with pytest.raises(KeyError):
            async with TrioProducer(cluster.bootstrap, environment=cluster.environment()) as client:
                await client.send_many("t", [(None, LARGE)])
                raise KeyError
        async with TrioProducer(cluster.bootstrap, environment=cluster.environment()) as client:
            with pytest.raises(UnknownTopic):
                await client.send("t", b"x", partition=7)
            with pytest.raises(RecordTooLarge):
                await (await client.send_many("t", [(None, LARGE)]))
            assert client.failed_records == 2
        nursery.cancel_scope.cancel()


def test_an_asyncio_producer_tells_at_the_end_of_its_block(
    cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.add_topic("t")

    async def main() -> None:
        with pytest.raises(SendsFailed, match="3 records were not delivered") as caught:
            async with AioProducer(cluster.bootstrap) as producer:
                await producer.send("t", LARGE)
                await producer.send_many("t", [(None, LARGE), (None, LARGE)])
        assert isinstance(caught.value.__cause__, RecordTooLarge)
        async with AioProducer(cluster.bootstrap) as producer:
            deliveries = [await producer.send("t", LARGE) for _ in range(10)]
            await asyncio.gather(*deliveries, return_exceptions=True)
            waiting = asyncio.ensure_future(awaited(await producer.send("t", LARGE)))
            await producer.flush()
            await waiting
            assert producer.failed_records == 11

    asyncio.run(main())
    assert not caplog.records, "asyncio does not tell it again"


async def awaited(delivery: asyncio.Future[Any]) -> None:
    with pytest.raises(RecordTooLarge):
        await delivery


def test_a_flush_has_accepted_records_leave_while_others_wait_for_their_topic(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    producer = Producer(cluster.bootstrap, linger_ms=1000 * PATIENCE_S)
    try:
        future = producer.send("t", b"fine")
        producer.send("nowhere", b"waits for max_block_ms")
        with ThreadPoolExecutor(1) as thread:
            flushed = thread.submit(producer.flush)
            assert future.result(PATIENCE_S / 2).offset == 0
            with suppress(FlushTimedOut, SendsFailed):
                producer.close(0)
            assert isinstance(flushed.exception(PATIENCE_S), ClientClosed)
    finally:
        with suppress(FlushTimedOut, SendsFailed):
            producer.close(0)


SYNCHRONOUS = """
import sys
from strandline import Producer
producer = Producer(sys.argv[1])
producer.send("t", b"fine")
for _ in range(2):
    producer.send("t", b"x" * 3_000_000)
"""

ASYNCHRONOUS = """
import asyncio, sys
from strandline.aio import AioProducer

async def main():
    producer = AioProducer(sys.argv[1], max_block_ms=500)
    await producer.send("t", b"fine")
    await producer.send_many("nowhere", [(None, b"x"), (None, b"y")])

asyncio.run(main())
"""


@pytest.mark.parametrize("script", [SYNCHRONOUS, ASYNCHRONOUS])
def test_a_program_that_ends_without_close_is_warned_of_what_was_not_delivered(
    cluster: FakeCluster, script: str
) -> None:
    cluster.add_topic("t")
    done = subprocess.run(
        [sys.executable, "-c", script, cluster.bootstrap],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=True,
    )
    assert "a Producer was not closed: " in done.stderr
    assert "2 records were not delivered" in done.stderr
    assert [record.value for record in cluster.logs[TopicPartition("t", 0)].records()] == [b"fine"]


class Sink:
    is_read = False

    def take_unread(self) -> Unread:
        self.is_read = True
        return Unread(1, KeyError("x"))

    def move_unread(self, tally: Tally) -> None:
        tally.add(self.take_unread())
        self.is_read = True

    def has_unread(self) -> bool:
        return not self.is_read


def test_failures_that_nobody_ever_asks_for_are_counted_and_do_not_pile_up() -> None:
    failures = UnreadFailures()
    for _ in range(2 * MAX_REMEMBERED):
        failures.note(Sink())
    assert len(failures._noted) <= MAX_REMEMBERED * 1.25
    told = failures.take()
    assert told is not None and told.failed_records == 2 * MAX_REMEMBERED
    assert failures.take() is None


def test_failures_that_were_read_are_forgotten() -> None:
    failures = UnreadFailures()
    for _ in range(2 * MAX_REMEMBERED):
        sink = Sink()
        failures.note(sink)
        sink.is_read = True
    assert len(failures._noted) <= SWEEP_AT_LEAST


def test_many_failures_of_one_call_are_counted_once() -> None:
    failures, sink = UnreadFailures(), SendManyFuture(60, 3 * MAX_REMEMBERED)
    for told in (2 * MAX_REMEMBERED, MAX_REMEMBERED):
        for index in range(told):
            sink.failed(KeyError("x"), 1, index)
            failures.note(sink)
        error = failures.take()
        assert error is not None and error.failed_records == told
    assert sink.failed_records == 3 * MAX_REMEMBERED


def test_failures_of_one_run_are_told_once_each() -> None:
    failures = UnreadFailures()
    run = Run([send_future(Where("t", 0, None, False, (), 60.0, 0), (None, b"x")) for _ in range(5)])
    for count, start in ((2, 0), (3, 2)):
        run.failed(KeyError("x"), count, start)
        failures.note(run)
        assert run.has_unread()
        error = failures.take()
        assert error is not None and error.failed_records == count
        assert not run.has_unread()
