"""The clients in an asyncio loop, over real sockets, with a fake broker in another thread's event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import trio

from strandline import Admin, Consumer
from strandline.aio import AioAdmin, AioConsumer, AioProducer
from strandline.client import TrioAdmin, TrioConsumer, TrioProducer
from strandline.client import sync_producer as mailboxes
from strandline.client.errors import (
    BufferFull,
    ClientClosed,
    ClientError,
    DeliveryTimeout,
    FlushTimedOut,
    InvalidClientConfig,
    NoBrokerReachable,
    RecordDropped,
    RecordTooLarge,
    TopicAlreadyExists,
)
from strandline.protocol.types import TopicPartition
from strandline.runtime.processes.asyncio_loop import AsyncioLoop
from strandline.runtime.processes.outcomes import Outcome
from strandline.runtime.processes.portal import Portal
from unit.client.fake_broker import ApiKey, FakeCluster, Fault
from unit.client.test_sync import cluster

__all__ = ["cluster"]

PATIENCE_S = 60
T0 = TopicPartition("t", 0)


def in_asyncio(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(main(), PATIENCE_S))
    assert Portal._shared is None, "the last client stops the thread"


def test_produce_consume_and_describe(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with AioAdmin(cluster.bootstrap) as admin:
            assert (await admin.create_topic("t", 1, 1)).num_partitions == 1
            with pytest.raises(TopicAlreadyExists):
                await admin.create_topic("t", 1, 1)
            assert await admin.list_topics() == ["t"]
        called: list[int] = []
        async with AioProducer(cluster.bootstrap, linger_ms=1) as producer:
            assert await producer.partitions_for("t") == [0]
            deliveries = [await producer.send("t", b"%d" % number, headers=[("h", b"1")]) for number in range(300)]
            deliveries[0].add_done_callback(lambda delivery: called.append(delivery.result().offset))
            assert [each.offset for each in await asyncio.gather(*deliveries)] == list(range(300))
            many = await producer.send_many("t", [(b"k", b"%d" % number) for number in range(5000)])
            assert sum(batch.records_count for batch in await many) == 5000
            assert await (await producer.send_many("t", [])) == []
            with pytest.raises(RecordTooLarge):
                await (await producer.send("t", b"x" * 2_000_000))
            await producer.flush()
            assert (producer.delivered_records, producer.failed_records, producer.waiting()) == (5300, 1, {})
            unawaited = await producer.send("t", b"last")
        assert (unawaited.result().offset, called) == (5300, [0]), "what was sent is flushed by closing"
        with pytest.raises(ClientClosed):
            await producer.send("t", b"late")
        async with AioConsumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            assert consumer.assignment == [T0]
            seen = 0
            while seen < 5301:
                seen += sum(map(len, (await consumer.poll(timeout_ms=1000 * PATIENCE_S)).values()))
            assert await consumer.position(T0) == 5301
            consumer.seek(T0, 7)
            [records] = (await consumer.poll(timeout_ms=1000 * PATIENCE_S, max_records=1)).values()
            assert (records[0].offset, records[0].value) == (7, b"7")
            consumer.seek(T0, 7)
            assert (await consumer.poll_columns(timeout_ms=1000 * PATIENCE_S))[0].values[0] == b"7"
            with pytest.raises(ValueError, match="negative"):
                consumer.seek(T0, -1)
        with pytest.raises(ClientClosed):
            await consumer.poll()

    in_asyncio(main)


FRONTS = [
    *((AioConsumer, TrioConsumer), (AioAdmin, TrioAdmin)),
    *((Consumer, TrioConsumer), (Admin, TrioAdmin)),
]


@pytest.mark.parametrize(("ours", "trios"), FRONTS)
def test_whatever_the_trio_client_can_do_this_one_can(ours: type, trios: type) -> None:
    """As awaitable as there in asyncio, never for threads; with the same words and the same arguments."""
    lacking = {"close", "run", "stop"}
    is_blocking = ours in (Consumer, Admin)
    differing = {"poll", "fetch_batches", "poll_columns", "unsubscribe"} if is_blocking else set()
    for name, member in inspect.getmembers(trios, lambda each: inspect.isfunction(each) or isinstance(each, property)):
        if name.startswith("_") or name in lacking:
            continue
        own = getattr(ours, name)
        assert isinstance(own, property) == isinstance(member, property)
        if isinstance(own, property):
            continue
        assert inspect.iscoroutinefunction(own) == (inspect.iscoroutinefunction(member) and not is_blocking), name
        assert "DueCall" not in str(inspect.signature(own)), f"{name} is for fronts"
        if name not in differing:
            assert own.__doc__ == member.__doc__
            assert inspect.signature(own) == inspect.signature(member)


def test_what_a_call_was_given_is_taken_as_it_was_and_generated_in_its_own_thread(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    threads: list[threading.Thread] = []

    def generated() -> Iterator[TopicPartition]:
        threads.append(threading.current_thread())
        yield T0

    async def main() -> None:
        async with AioConsumer(cluster.bootstrap) as consumer:
            await consumer.assign(generated())
            assert await consumer.end_offsets(generated()) == {T0: 0}

    in_asyncio(main)
    with Consumer(cluster.bootstrap) as blocking_one:
        blocking_one.assign(generated())
        assert blocking_one.end_offsets(generated()) == {T0: 0}
    assert threads == [threading.current_thread()] * 4


def test_the_producer_sends_as_the_trio_producer_does() -> None:
    for name in ("send", "send_many"):
        ours, trios = (inspect.signature(getattr(each, name)) for each in (AioProducer, TrioProducer))
        assert list(ours.parameters.items()) == list(trios.parameters.items())


def test_a_poll_that_is_cancelled_ends_in_the_background_and_loses_nothing(cluster: FakeCluster) -> None:
    cluster.add_topic("t")

    async def main() -> None:
        async with AioConsumer(cluster.bootstrap, auto_offset_reset="earliest") as consumer:
            await consumer.assign([T0])
            for _ in range(3):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(consumer.poll(timeout_ms=1000 * PATIENCE_S), 0.05)
            assert not consumer._front._under_way
            async with AioProducer(cluster.bootstrap) as producer:
                await producer.send_many("t", [(None, b"%d" % number) for number in range(2000)])
            seen: list[int] = []
            while len(seen) < 2000:  # cancelled at any moment, also while records are on their way over
                poll = asyncio.ensure_future(consumer.poll(timeout_ms=1000 * PATIENCE_S, max_records=100))
                await asyncio.wait([poll], timeout=0.0003 * (len(seen) % 7))
                seen += await offsets_or_cancelled(poll)
            assert seen == list(range(2000))

    in_asyncio(main)


async def offsets_or_cancelled(poll: asyncio.Future[Any]) -> list[int]:
    """What `asyncio.wait_for` does."""
    try:
        return [record.offset for records in (await asyncio.wait_for(poll, 0)).values() for record in records]
    except TimeoutError:
        return []


def test_what_had_succeeded_is_returned_and_the_task_is_cancelled_at_its_next_await() -> None:
    async def main() -> None:
        loop = AsyncioLoop()
        outcome: Outcome[str] = Outcome()
        got: list[str] = []

        async def wait() -> None:
            got.append(await loop.result_of(outcome))
            await asyncio.sleep(PATIENCE_S)
            got.append("went on")

        task = asyncio.ensure_future(wait())
        await asyncio.sleep(0)
        task.cancel()
        outcome.settle("taken")
        with pytest.raises(asyncio.CancelledError):
            await task
        assert got == ["taken"]

        late: Outcome[str] = Outcome()
        async with asyncio.timeout(None) as limit:
            threading.Timer(0.05, late.settle, ["in time after all"]).start()
            limit.reschedule(asyncio.get_running_loop().time())
            got.append(await loop.result_of(late))
        await asyncio.sleep(0)  # whoever has taken the cancellation back is not cancelled again
        assert got == ["taken", "in time after all"]

        failed: Outcome[str] = Outcome()
        task = asyncio.ensure_future(loop.result_of(failed))
        await asyncio.sleep(0)
        task.cancel()
        failed.settle(None, KeyError("ended by the cancellation"))
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())


def test_a_burst_wakes_the_loop_once() -> None:
    async def main() -> None:
        loop = AsyncioLoop()
        futures = [loop.future() for _ in range(1000)]
        woken: list[int] = []
        asyncio.get_running_loop().call_soon_threadsafe = lambda *args: woken.append(1) or original(*args)
        for number, future in enumerate(futures):
            loop.settle(future, number, None)
        futures[1].cancel()
        assert await asyncio.gather(*futures[2:]) == list(range(2, 1000))
        assert len(woken) == 1

    new = asyncio.new_event_loop()
    original = new.call_soon_threadsafe
    new.run_until_complete(main())
    new.close()


def test_who_sends_waits_for_room_without_holding_the_loop(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.add_topic("t")
    monkeypatch.setattr(mailboxes, "MAILBOX_RECORDS", 10)

    async def main() -> None:
        async with AioProducer(cluster.bootstrap, batch_size=200, buffer_memory=2000, linger_ms=0) as producer:
            deliveries = [await producer.send("t", b"%d" % number * 20) for number in range(500)]
            assert [each.offset for each in await asyncio.gather(*deliveries)] == list(range(500))
        settings = {"max_block_ms": 300, "delivery_timeout_ms": 300}
        async with AioProducer("127.0.0.1:1", **settings, buffer_full="drop", buffer_memory=500) as producer:
            deliveries = [await producer.send("t", b"x") for _ in range(30)]
            failures = await asyncio.gather(*deliveries, return_exceptions=True)
            assert isinstance(failures[-1], RecordDropped) and isinstance(failures[0], NoBrokerReachable)
        producer = AioProducer("127.0.0.1:1", **settings | {"max_block_ms": 60_000}, buffer_memory=500)
        producer._front._room_timeout_s = 0.05
        with pytest.raises(BufferFull):
            for _ in range(30):
                await producer.send("t", b"x")
        producer._front._room_timeout_s = PATIENCE_S
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(producer.send("t", b"x"), 0.05)
        with pytest.raises(FlushTimedOut):
            await producer.close(0)

    in_asyncio(main)


def test_a_block_that_ends_by_an_error_delivers_what_was_sent(cluster: FakeCluster) -> None:
    cluster.add_topic("t")

    async def main() -> None:
        with pytest.raises(KeyError) as raised:
            async with AioProducer(cluster.bootstrap) as producer:
                for _ in range(1_000):
                    await producer.send("t", b"x")
                raise KeyError
        assert not hasattr(raised.value, "__notes__")

    in_asyncio(main)
    assert len(cluster.logs[T0].records()) == 1_000


def test_a_block_that_ends_by_an_error_gives_up_what_is_not_delivered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("strandline.client.aio.EXIT_FLUSH_MS", 10)

    async def main() -> None:
        with pytest.raises(KeyError) as raised:
            async with AioProducer("127.0.0.1:1") as producer:
                delivery = await producer.send("t", b"x")
                raise KeyError
        assert "and closing the producer: " in raised.value.__notes__[0]
        with pytest.raises(ClientClosed):
            await delivery
        mistaken: Any = {"lingerms": 5}
        with pytest.raises(InvalidClientConfig, match="linger_ms"):
            AioProducer("127.0.0.1:1", **mistaken)

    in_asyncio(main)


def test_a_close_that_is_cancelled_flushes_no_longer(cluster: FakeCluster) -> None:
    cluster.add_topic("t")
    cluster.brokers[0].faults[ApiKey.PRODUCE].extend(Fault(hang=True) for _ in range(100))

    async def main() -> None:
        producer = AioProducer(cluster.bootstrap)
        delivery = await producer.send("t", b"x")
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.05)
        with pytest.raises(DeliveryTimeout, match="the producer was closed"):
            await asyncio.wait_for(delivery, PATIENCE_S)

    in_asyncio(main)


@contextmanager
def due(consumer: AioConsumer, callback: Callable[..., Any]) -> Iterator[None]:
    """That a commit failed is what the consumer has to tell next; nobody is there to commit to."""
    consumer.commit_nowait({T0: 1}, on_done=callback)
    group = consumer._front._client._group
    assert group is not None
    until = time.monotonic() + PATIENCE_S
    while not group._told:
        assert time.monotonic() < until
        time.sleep(0.01)  # it is the background thread that has to get on
    yield
    assert not group._told


LONELY = {"group_id": "g", "default_api_timeout_ms": 50, "auto_offset_reset": "earliest"}


@pytest.mark.parametrize("moment", ["poll", "fetch_batches", "unsubscribe", "close", "end of the block"])
@pytest.mark.parametrize("kind", ["function", "async function"])
def test_callbacks_are_called_by_the_task_that_polls_or_ends(kind: str, moment: str) -> None:
    async def main() -> None:
        called: list[object] = []

        def callback(offsets: object, error: Exception | None) -> None:
            assert isinstance(error, ClientError)
            assert consumer.assignment == [], "plain methods can be used"
            called.append(asyncio.current_task())

        async def async_callback(offsets: object, error: Exception | None) -> None:
            await asyncio.sleep(0.01)
            with pytest.raises(ClientError):
                await consumer.committed([T0], timeout_ms=10)
            with pytest.raises(RuntimeError, match="callback"):
                await consumer.poll()
            callback(offsets, error)

        async with AioConsumer("127.0.0.1:1", **LONELY) as consumer:
            with due(consumer, callback if kind == "function" else async_callback):
                if moment == "end of the block":
                    await consumer.__aexit__(None, None, None)
                else:
                    await getattr(consumer, moment)()
        assert called == [asyncio.current_task()]

    in_asyncio(main)


@pytest.mark.parametrize("how", ["raises", "is cancelled"])
def test_a_callback_that_fails_ends_the_poll_and_the_next_one_goes_on(how: str) -> None:
    async def main() -> None:
        async def callback(offsets: object, error: Exception | None) -> None:
            if how == "raises":
                raise ZeroDivisionError
            asyncio.get_running_loop().call_soon(task.cancel)
            await asyncio.sleep(PATIENCE_S)

        async with AioConsumer("127.0.0.1:1", **LONELY) as consumer:
            with due(consumer, callback):
                task = asyncio.ensure_future(consumer.poll())
                with pytest.raises(ZeroDivisionError if how == "raises" else asyncio.CancelledError):
                    await task
            assert await consumer.poll() == {}

    in_asyncio(main)


def test_after_an_error_a_block_calls_and_commits_nothing() -> None:
    async def main() -> None:
        called: list[object] = []
        consumer = AioConsumer("127.0.0.1:1", **LONELY)
        with pytest.raises(KeyError):
            async with consumer:
                consumer.commit_nowait({T0: 1}, on_done=lambda *_: called.append("told"))
                consumer._front.unsubscribe = lambda: called.append("unsubscribed")
                await asyncio.sleep(0.2)
                raise KeyError
        assert called == []
        with pytest.raises(ClientClosed):
            await consumer.poll()

    in_asyncio(main)


def test_there_has_to_be_a_loop() -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        AioProducer("127.0.0.1:1")
    assert Portal._shared is None


def test_a_loop_that_is_gone_is_told_nothing_more() -> None:
    async def main() -> tuple[AsyncioLoop, asyncio.Future[int]]:
        loop = AsyncioLoop()
        return loop, loop.future()

    loop, future = asyncio.run(main())
    for _ in range(2):
        loop.settle(future, 1, None)
        assert not future.done() and not loop._settled, "and keeps nothing"


def test_what_ended_a_client_is_told_by_its_calls() -> None:
    async def main() -> None:
        async with AioAdmin("127.0.0.1:1") as admin:

            async def endless() -> None:
                await trio.sleep_forever()

            call = asyncio.ensure_future(admin._cross(endless))
            await asyncio.sleep(0)

            async def fail() -> None:
                raise ZeroDivisionError("a mistake")

            await admin._cross(admin._front._serve, fail)
            with pytest.raises(ClientClosed, match="was ended by ZeroDivisionError"):
                await call

    in_asyncio(main)


def test_a_forked_child_is_refused() -> None:
    async def main() -> None:
        async with AioAdmin("127.0.0.1:1") as admin, AioProducer("127.0.0.1:1") as producer:
            for call in (lambda: admin.list_topics(), lambda: producer.send("t", b"x")):
                child = os.fork()
                if child == 0:  # pragma: no cover  # another process
                    try:
                        call().send(None)
                    except ClientClosed as error:
                        os._exit(0 if "before the process forked" in str(error) else 2)
                    os._exit(1)
                while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
                    await asyncio.sleep(0.01)
                assert os.waitstatus_to_exitcode(ended[1]) == 0

    in_asyncio(main)


def test_a_callback_in_the_background_thread_may_use_the_client(cluster: FakeCluster) -> None:
    cluster.add_topic("t")

    async def main() -> None:
        async with AioConsumer(cluster.bootstrap) as consumer:
            await consumer.assign([T0])

            async def callback() -> list[TopicPartition]:
                consumer.seek(T0, 0)
                return consumer.assignment

            assert await consumer._cross(callback) == [T0]

    in_asyncio(main)
