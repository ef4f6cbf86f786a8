"""The producer against scripted brokers: order, retries, outcomes, memory, time."""

from __future__ import annotations

from functools import partial

import pytest
import trio

from strandline.client import DeliveredBatch, FailedBatch, TrioProducer
from strandline.client.delivery import Delivery
from strandline.client.errors import (
    BufferFull,
    ClientClosed,
    DeliveryFailed,
    DeliveryTimeout,
    FlushTimedOut,
    InvalidRecordValue,
    NoBrokerReachable,
    RecordDropped,
    RecordTooLarge,
    UnknownTopic,
)
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import ProduceRequest
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

T0 = TopicPartition("t", 0)


def producer(cluster: FakeCluster, **settings: object) -> TrioProducer:
    return TrioProducer(cluster.bootstrap, environment=cluster.environment(), **settings)


def values(cluster: FakeCluster, partition: TopicPartition = T0) -> list[bytes | None]:
    return [record.value for record in cluster.logs[partition].records()]


async def test_records_arrive_in_order_and_their_offsets_come_back(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster) as client:
            deliveries = [await client.send("t", b"%d" % i) for i in range(100)]
            results = [await delivery for delivery in deliveries]
            assert [result.offset for result in results] == list(range(100))
            assert results[0].timestamp_ms == 1_600_000_000_000
            assert not any(result.retried for result in results)
        nursery.cancel_scope.cancel()
    assert values(cluster) == [b"%d" % i for i in range(100)]


async def test_a_send_that_is_cancelled_has_sent_nothing(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, linger_ms=60_000) as client:
            returned = [b"first"]
            await client.send("t", returned[0])
            for i in range(2_000):
                with trio.CancelScope() as scope:
                    scope.cancel()
                    await client.send("t", b"%d" % i)
                    returned.append(b"%d" % i)
            assert len(returned) < 2_000, "some were cancelled"
        nursery.cancel_scope.cancel()
    assert values(cluster) == returned


@pytest.mark.parametrize(
    ("fault", "doubled"),
    [
        (Fault(error=ErrorCode.NOT_LEADER_OR_FOLLOWER), False),
        (Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS), False),
        (Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, apply=True), True),
        (Fault(error=ErrorCode.REQUEST_TIMED_OUT, apply=True), True),
        (Fault(close=True), False),
        (Fault(close=True, apply=True), True),
        (Fault(hang=True, apply=True), True),
    ],
)
async def test_retries_keep_order_and_say_what_may_be_doubled(
    autojump_clock: object, fault: Fault, doubled: bool
) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    settled: list[DeliveredBatch | FailedBatch] = []
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        cluster.brokers[0].faults[ApiKey.PRODUCE].extend([fault, fault])
        client = TrioProducer(
            cluster.bootstrap,
            environment=cluster.environment(),
            on_batch=settled.append,
            batch_size=200,
            linger_ms=0,
            request_timeout_ms=1000,
            enable_idempotence=False,
        )
        async with client:
            for i in range(200):
                await client.send("t", b"%03d" % i)
        nursery.cancel_scope.cancel()
    stored = values(cluster)
    expected = [b"%03d" % i for i in range(200)]
    if doubled:
        assert len(stored) > 200
    else:
        assert stored == expected
    retried = [batch for batch in settled if isinstance(batch, DeliveredBatch) and batch.retried]
    assert len(stored) - 200 <= 2 * sum(batch.records_count for batch in retried)
    first_seen = list(dict.fromkeys(stored))
    assert first_seen == expected
    last_seen = list(dict.fromkeys(reversed(stored)))
    assert last_seen == expected[::-1], "the last copy of each record stands in order, too"


async def test_a_leader_that_dies_is_followed_to_the_new_one(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, linger_ms=0) as client:
            await (await client.send("t", b"before"))
            cluster.move(T0, -1)
            cluster.brokers[0].kill()
            late = await client.send("t", b"after")
            await trio.sleep(3)
            cluster.move(T0, 1)
            result = await late
            assert (result.offset, cluster.leaders[T0]) == (1, (1, 2))
        nursery.cancel_scope.cancel()
    assert values(cluster) == [b"before", b"after"]


@pytest.mark.parametrize("after_s", [0.35, 0.45, 0.55, 0.75, 0.95])
async def test_a_new_leader_is_found_as_soon_as_there_is_one_however_often_the_old_one_was_tried(
    autojump_clock: object, after_s: float
) -> None:
    """The cluster goes on naming the dead leader until it has elected another one."""
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, linger_ms=0) as client:
            await (await client.send("t", b"before"))
            cluster.brokers[0].kill()
            late = await client.send("t", b"after")
            await trio.sleep(after_s)
            cluster.move(T0, 1)
            with trio.fail_after(0.2):
                await late
        nursery.cancel_scope.cancel()


async def test_a_leader_that_stands_still_is_left_once_another_one_leads(autojump_clock: object) -> None:
    """SIGSTOP: the connection stands, no answer comes."""
    cluster = FakeCluster(2)
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, linger_ms=0) as client:
            await (await client.send("t", b"before"))
            cluster.brokers[0].faults[ApiKey.PRODUCE].append(Fault(hang=True))
            started = trio.current_time()
            late = await client.send("t", b"after")
            await trio.sleep(2)
            cluster.move(T0, 1)
            result = await late
            assert trio.current_time() - started < 6
            assert not result.retried, "it stands there once"
        nursery.cancel_scope.cancel()
    assert values(cluster) == [b"before", b"after"]


async def test_delivery_timeout_says_whether_the_record_may_be_in_the_log(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, delivery_timeout_ms=5000, request_timeout_ms=1000, linger_ms=0) as client:
            await client.partitions_for("t")
            cluster.brokers[0].faults[ApiKey.PRODUCE].extend([Fault(hang=True)] * 50)
            started = trio.current_time()
            with pytest.raises(DeliveryTimeout, match=r"broker 0 at broker-0:9092.*request_timeout_ms.*may be") as lost:
                await (await client.send("t", b"x"))
            assert lost.value.outcome_unknown
            assert trio.current_time() - started == pytest.approx(5, abs=0.01)
            cluster.move(T0, -1)
            client._metadata.request_update()
            await trio.sleep(2)
            with pytest.raises(DeliveryTimeout, match=r"no leader.*not in the log") as never_sent:
                await (await client.send("t", b"y"))
            assert not never_sent.value.outcome_unknown
        nursery.cancel_scope.cancel()


async def test_a_refused_batch_is_found_among_its_neighbours(autojump_clock: object) -> None:
    """The broker refuses all batches of a partition in one request; only the guilty one must fail."""
    cluster = FakeCluster()
    cluster.add_topic("t")
    settled: list[DeliveredBatch | FailedBatch] = []
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        faults = cluster.brokers[0].faults[ApiKey.PRODUCE]
        client = TrioProducer(
            cluster.bootstrap,
            environment=cluster.environment(),
            on_batch=settled.append,
            batch_size=100,
            enable_idempotence=False,
        )
        async with client:
            await client.partitions_for("t")
            faults.extend([Fault(error=ErrorCode.MESSAGE_TOO_LARGE), Fault(apply=True)])
            faults.append(Fault(error=ErrorCode.MESSAGE_TOO_LARGE))
            delivery = await client.send_many("t", [(None, b"%d" % i * 30) for i in range(4)])
            with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE") as failure:
                await delivery
        nursery.cancel_scope.cancel()
    assert not failure.value.outcome_unknown
    assert [isinstance(batch, FailedBatch) for batch in settled] == [False, True, False, False]
    assert values(cluster) == [b"0" * 30, b"2" * 30, b"3" * 30]


async def test_full_buffer_policies(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    small = {"buffer_memory": 400, "batch_size": 200, "max_block_ms": 1000, "delivery_timeout_ms": 10_000}
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        for policy in ("block", "raise", "drop"):
            async with producer(cluster, buffer_full=policy, **small) as client:
                await client.partitions_for("t")
                cluster.brokers[0].faults[ApiKey.PRODUCE].append(Fault(hang=True))
                started = trio.current_time()
                accepted = 0
                try:
                    while accepted < 50:
                        delivery = await client.send("t", b"x" * 80)
                        if delivery.done():
                            break
                        accepted += 1
                except BufferFull as error:
                    assert policy != "drop", error
                    assert "buffer_memory" in str(error)
                else:
                    assert policy == "drop"
                    with pytest.raises(RecordDropped):
                        await delivery
                waited = trio.current_time() - started
                assert (waited >= 1) == (policy == "block")
                assert 1 <= accepted < 5
                with pytest.raises(FlushTimedOut):
                    await client.close(timeout_ms=100)
        nursery.cancel_scope.cancel()


async def test_a_sender_that_waits_for_memory_goes_on_when_some_comes_free(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, buffer_memory=600, batch_size=200) as client:
            delivery = await client.send_many("t", [(None, b"%04d" % i * 10) for i in range(200)])
            await delivery
            assert client._accumulator.used_bytes == 0
        nursery.cancel_scope.cancel()
    assert len(values(cluster)) == 200


async def test_refused_before_it_is_accepted(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, max_request_size=1000, max_block_ms=500) as client:
            with pytest.raises(RecordTooLarge, match="max_request_size"):
                await client.send("t", b"x" * 2000)
            with pytest.raises(InvalidRecordValue, match="encode"):
                await client.send("t", "text")
            with pytest.raises(UnknownTopic, match="no partition 7"):
                await client.send("t", b"x", partition=7)
            with pytest.raises(UnknownTopic, match=r"'nowhere'.*max_block_ms"):
                await client.send("nowhere", b"x")
            assert (await (await client.send("t", b"fine"))).offset == 0
        with pytest.raises(ClientClosed):
            await client.send("t", b"late")
        nursery.cancel_scope.cancel()


async def test_a_partitioner_that_raises_has_the_record_refused(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")

    def choose(key: bytes, count: int) -> int:
        raise LookupError("no such customer")

    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, partitioner=choose) as client:
            with pytest.raises(InvalidRecordValue, match="no such customer"):
                await client.send("t", b"x", key=b"k")
            await (await client.send("t", b"x"))
        nursery.cancel_scope.cancel()


async def test_one_who_raises_when_told_keeps_nobody_else_from_being_told(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)

    def raises(batch: object) -> None:
        raise ValueError("a mistake of the program")

    with pytest.RaisesGroup(ValueError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await cluster.start(nursery)
            async with producer(cluster, linger_ms=60_000, on_batch=raises) as client:
                told = [await client.send("t", b"x", partition=number) for number in range(2)]
                told += [await client.send("t", b"y", partition=number) for number in range(2)]
                client.stop()
                await client.finished()
                nursery.cancel_scope.cancel()
    assert all(delivery.done() for delivery in told)


@pytest.mark.parametrize(
    ("acks", "retries", "faults"),
    [
        (0, 0, []),
        (1, 0, []),
        (1, 0, [Fault(error=ErrorCode.REQUEST_TIMED_OUT)]),
        (1, 1, [Fault(error=ErrorCode.REQUEST_TIMED_OUT)] * 2),
    ],
    ids=["sent", "delivered", "given up", "given up beside one that may be sent again"],
)
async def test_one_who_raises_when_told_keeps_no_other_batch_of_the_group_from_being_settled(
    acks: int, retries: int, faults: list[Fault], autojump_clock: object
) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")

    def raises(batch: object) -> None:
        raise ValueError("a mistake of the program")

    settings = {"acks": acks, "retries": retries, "retry_backoff_ms": 1000, "batch_size": 1, "linger_ms": 0}
    with pytest.RaisesGroup(ValueError, flatten_subgroups=True):
        async with trio.open_nursery() as nursery:
            await cluster.start(nursery)
            async with producer(cluster, on_batch=raises, **settings) as client:
                await client.partitions_for("t")
                cluster.brokers[0].faults[ApiKey.PRODUCE].extend(faults)
                told = [await client.send("t", b"x")]
                await trio.sleep(0.5 if retries else 0.0)  # the first is sent for the second time beside the second
                told.append(await client.send("t", b"y"))
                await client.finished()
                nursery.cancel_scope.cancel()
    assert all(delivery.done() for delivery in told)


async def test_a_delivery_calls_back_when_it_is_settled_or_at_once(autojump_clock: object) -> None:
    """A callback that raises is warned of, and ends nothing; the others are called all the same."""
    cluster = FakeCluster()
    cluster.add_topic("t")
    told: list[tuple[str, bool, int]] = []

    def tell(when: str, delivery: Delivery) -> None:
        told.append((when, delivery.done(), delivery.result().offset))

    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster) as client:
            delivery = await client.send("t", b"x")
            delivery.add_done_callback(lambda _: 1 / 0)
            delivery.add_done_callback(partial(tell, "settled"))
            for premature in (delivery.result, delivery.exception):
                with pytest.raises(RuntimeError, match="await the Delivery"):
                    premature()
            assert not delivery.done() and told == []
            with pytest.warns(RuntimeWarning, match=r"callback of Delivery raised ZeroDivisionError"):
                assert (await delivery).offset == 0
            assert await delivery is delivery.result()
            delivery.add_done_callback(partial(tell, "late"))
            with pytest.warns(RuntimeWarning, match="ZeroDivisionError"):
                delivery.add_done_callback(lambda _: 1 / 0)
            assert delivery.exception() is None
            assert told == [("settled", True, 0), ("late", True, 0)]
            many = await client.send_many("t", [(None, b"y"), (None, b"x" * 2_000_000)])
            many.add_done_callback(lambda many: told.append(("many", many.done(), many.failed_records)))
            with pytest.raises(RecordTooLarge):
                await many
            assert isinstance(many.exception(), RecordTooLarge)
            assert told[2:] == [("many", True, 1)]
            await (await client.send("t", b"z"))
        nursery.cancel_scope.cancel()


async def test_who_is_still_sending_when_the_producer_has_ended_is_told_and_waits_for_nothing(
    autojump_clock: object,
) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)

        def stop_and_choose(key: bytes, count: int) -> int:
            client.stop()  # it ends while the records are taken, some at a time
            return 0

        async with producer(cluster, partitioner=stop_and_choose) as client:
            many = await client.send_many("t", [(b"k", b"%d" % number) for number in range(50_000)])
            await client.finished()
            assert many.done() and many.failed_records == 50_000
        nursery.cancel_scope.cancel()


async def test_nobody_there_is_said_with_every_address_and_cause(autojump_clock: object) -> None:
    cluster = FakeCluster(2)
    async with producer(cluster, max_block_ms=2000) as client:
        with pytest.raises(NoBrokerReachable) as failure:
            await client.send("t", b"x")
    for part in ("broker-0:9092", "broker-1:9092", "bootstrap_servers", "is a broker running there"):
        assert part in str(failure.value)


async def test_acks_0_expects_no_answer(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster, acks=0, linger_ms=0) as client:
            result = await (await client.send("t", b"x"))
            assert result.offset == -1
            await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert values(cluster) == [b"x"]


async def test_one_group_per_partition_is_under_way_and_few_requests_per_broker(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 8)
    cluster.memory.link("broker-0", "client").latency_s = 0.05
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        client = producer(
            cluster,
            linger_ms=0,
            batch_size=300,
            max_request_size=700,
            max_in_flight_requests_per_connection=3,
            enable_idempotence=False,
        )
        async with client:
            await client.send_many("t", [(b"%d" % (i % 50), b"v" * 50) for i in range(500)])
            most = 0
            while client._accumulator.active:
                link = client._links.to(0)
                if link.connection is not None:
                    most = max(most, link.connection.in_flight)
                for request in cluster.brokers[0].seen(ProduceRequest):
                    assert isinstance(request, ProduceRequest)
                    indexes = [part.index for topic in request.topic_data for part in topic.partition_data]
                    assert len(indexes) == len(set(indexes))
                await trio.sleep(0.01)
        nursery.cancel_scope.cancel()
    assert most == 3


async def test_closing_with_dead_brokers_ends_in_time_and_settles_everything(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster) as client:
            await client.partitions_for("t")
            cluster.brokers[0].kill()
            delivery = await client.send("t", b"x")
            started = trio.current_time()
            with pytest.raises(FlushTimedOut, match=r"broker-0:9092|broker 0"):
                await client.close(timeout_ms=3000)
            assert trio.current_time() - started == pytest.approx(3, abs=0.01)
            with pytest.raises(DeliveryTimeout, match="closed"):
                await delivery
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("controller_id", [0, -1])
async def test_a_partition_without_a_leader_is_named_as_what_everything_waits_for(
    controller_id: int, autojump_clock: object
) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 3)
    cluster.controller_id = controller_id
    for index in range(3):
        cluster.move(TopicPartition("t", index), -1)
    expected = "partition t-[012] has no leader" + ("" if controller_id == 0 else ", and no controller is known")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        settings = {"linger_ms": 0, "buffer_memory": 3000, "batch_size": 300, "max_request_size": 1000}
        async with producer(cluster, **settings, max_block_ms=1000, buffer_full="block") as client:
            with pytest.raises(BufferFull, match=f"last cause: {expected}"):
                while True:
                    await client.send("t", b"x" * 80)
            with pytest.raises(FlushTimedOut, match=f"last cause: {expected}.*; likewise [12] more partition"):
                await client.flush(timeout_ms=1000)
            with pytest.raises(FlushTimedOut):
                await client.close(timeout_ms=100)
        nursery.cancel_scope.cancel()


class _Stop(Exception):
    """The program's own."""


async def test_a_failure_of_the_producer_is_named_by_its_records_and_by_later_calls(
    autojump_clock: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    failing = trio.Event()

    async def serve(client: TrioProducer) -> None:
        with pytest.RaisesGroup(ZeroDivisionError):
            await client.run()

    async def fail() -> None:
        await failing.wait()
        raise ZeroDivisionError("a mistake")

    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        client = producer(cluster, linger_ms=10_000)
        monkeypatch.setattr(client._links, "run", fail)
        nursery.start_soon(serve, client)
        delivery = await client.send("t", b"accepted")
        failing.set()
        with pytest.raises(DeliveryFailed, match=r"ZeroDivisionError\('a mistake'\) ended the producer"):
            await delivery
        with pytest.raises(ClientClosed, match=r"ZeroDivisionError\('a mistake'\) ended the producer") as caught:
            await client.send("t", b"too late")
        assert isinstance(caught.value.__cause__, ZeroDivisionError)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("linger_ms", [0, 1000])
async def test_a_cancelled_block_settles_what_is_left(linger_ms: int, autojump_clock: object) -> None:
    """The records lie there unsent; as long as they linger, no link to their leader may have been wanted."""
    cluster = FakeCluster()
    cluster.add_topic("t")
    failures: list[Exception | None] = []
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        with trio.CancelScope() as scope:
            async with producer(cluster, linger_ms=linger_ms) as client:
                await client.partitions_for("t")
                delivery = await client.send("t", b"v")
                delivery.add_done_callback(lambda delivery: failures.append(delivery.exception()))
                scope.cancel()
                await trio.sleep_forever()
        nursery.cancel_scope.cancel()
    (failure,) = failures
    assert isinstance(failure, DeliveryTimeout) and not failure.outcome_unknown
    assert "they are not in the log" in str(failure)


async def test_an_error_in_the_block_leaves_it_as_it_is_and_what_was_sent_is_delivered(autojump_clock: object) -> None:
    cluster = FakeCluster()
    cluster.add_topic("t")
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        with pytest.raises(_Stop) as caught:
            async with producer(cluster, linger_ms=60_000, max_block_ms=50) as client:
                await client.send("t", b"v")
                await client.send_many("nowhere", [(None, b"v")])
                raise _Stop
        nursery.cancel_scope.cancel()
    assert values(cluster) == [b"v"]
    [note] = caught.value.__notes__
    assert note.startswith("and closing the producer: 1 record was not delivered")


async def test_a_flush_does_not_tell_of_a_send_that_was_cancelled(autojump_clock: object) -> None:
    cluster = FakeCluster()
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with producer(cluster) as client:
            with trio.move_on_after(1):
                await client.send("nowhere", b"v")
            await client.flush()
        nursery.cancel_scope.cancel()
