"""The idempotent producer against scripted brokers that know what each producer appended (`FakeLog.produce`)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from strandline.client import DeliveredBatch, FailedBatch, TrioProducer
from strandline.client.errors import DeliveryFailed, DeliveryTimeout, InvalidClientConfig
from strandline.client.identity import MAX_EPOCH, SEQUENCES
from strandline.client.numbering import FORGOTTEN_AFTER_S, MAX_IN_FLIGHT, Numbering
from strandline.client.settings import ProducerSettings, from_mapping
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import InitProducerIdRequest, ProduceRequest
from strandline.protocol.records import read_header
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault

T0 = TopicPartition("t", 0)


class Site:
    """One topic, and a producer whose every record is a batch of its own. `settled`: what became of each."""

    def __init__(self, brokers: int, latency_s: float, **settings: object) -> None:
        self.cluster = FakeCluster(brokers)
        self.cluster.add_topic("t")
        for number in range(brokers):
            self.cluster.memory.link(f"broker-{number}", "client").latency_s = latency_s
        self.settled: list[DeliveredBatch | FailedBatch] = []
        self.producer = TrioProducer(
            self.cluster.bootstrap,
            environment=self.cluster.environment(),
            on_batch=self.settled.append,
            **{"batch_size": 1, "linger_ms": 0, "request_timeout_ms": 1000, **settings},
        )

    @property
    def faults(self):
        return self.cluster.brokers[0].faults

    async def send(self, *values: bytes):
        return [await self.producer.send("t", value, partition=0) for value in values]

    async def deliver(self, *values: bytes) -> None:
        for delivery in await self.send(*values):
            await delivery

    def stored(self) -> list[bytes | None]:
        return [record.value for record in self.cluster.logs[T0].records()]

    def numbers(self) -> list[tuple[int, int, int]]:
        """(producer id, epoch, base sequence) of each batch in the log."""
        headers = [read_header(batch) for batch in self.cluster.logs[T0].batches]
        return [(header.producer_id, header.producer_epoch, header.base_sequence) for header in headers]

    def most_in_flight(self) -> int:
        queue = self.producer._accumulator.queues.get(T0)
        return 0 if queue is None else len(queue.in_flight)


@asynccontextmanager
async def opened(brokers: int = 1, latency_s: float = 0.0, **settings: object) -> AsyncIterator[Site]:
    site = Site(brokers, latency_s, **settings)
    async with trio.open_nursery() as nursery:
        await site.cluster.start(nursery)
        async with site.producer:
            yield site
        nursery.cancel_scope.cancel()


def named(count: int) -> list[bytes]:
    return [b"%03d" % number for number in range(count)]


# --- the id --------------------------------------------------------------------------------------------------------


async def test_an_id_is_asked_for_once_before_the_first_record_and_numbers_every_batch(
    autojump_clock: MockClock,
) -> None:
    async with opened() as site:
        await site.producer.partitions_for("t")
        await trio.sleep(1)
        assert site.cluster.producer_ids == 0
        await site.deliver(*named(4))
        assert site.cluster.producer_ids == 1
    assert site.numbers() == [(1, 0, sequence) for sequence in range(4)]


@pytest.mark.parametrize(
    "fault",
    [
        Fault(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        Fault(error=ErrorCode.UNKNOWN_SERVER_ERROR),
        Fault(close=True),
    ],
    ids=["no block", "an error", "a broken connection"],
)
async def test_an_id_is_asked_for_until_there_is_one(fault: Fault, autojump_clock: MockClock) -> None:
    async with opened() as site:
        site.faults[ApiKey.INIT_PRODUCER_ID].extend([fault] * 5)
        await site.deliver(b"x")
        assert len(site.cluster.brokers[0].seen(InitProducerIdRequest)) == 6
    assert site.stored() == [b"x"]


async def test_a_broker_that_does_not_answer_is_not_the_only_one_that_is_asked(autojump_clock: MockClock) -> None:
    async with opened(2, request_timeout_ms=60_000) as site:
        site.faults[ApiKey.INIT_PRODUCER_ID].extend([Fault(hang=True)] * 100)
        [delivery] = await site.send(b"x")
        await trio.sleep(1)
        site.cluster.move(T0, 1)
        site.producer._metadata.request_update()
        with trio.fail_after(10):
            await delivery


async def test_without_an_id_records_time_out_and_the_cause_is_named(autojump_clock: MockClock) -> None:
    async with opened(delivery_timeout_ms=3000) as site:
        site.faults[ApiKey.INIT_PRODUCER_ID].extend([Fault(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)] * 100)
        [delivery] = await site.send(b"x")
        await trio.sleep(1)
        assert "COORDINATOR_LOAD_IN_PROGRESS" in str(site.producer.waiting()[T0])
        with pytest.raises(DeliveryTimeout, match=r"producer id: COORDINATOR_LOAD_IN_PROGRESS.*not in the log"):
            await delivery
    assert site.stored() == []


# --- retries -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fault",
    [
        Fault(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS),
        Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, apply=True),
        Fault(error=ErrorCode.REQUEST_TIMED_OUT, apply=True),
        Fault(error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        Fault(error=ErrorCode.INVALID_PRODUCER_EPOCH),
        Fault(error=ErrorCode.UNKNOWN_PRODUCER_ID),
        Fault(close=True),
        Fault(close=True, apply=True),
        Fault(hang=True),
        Fault(hang=True, apply=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("at", [0, 1, 20])
async def test_whatever_fails_the_log_has_each_record_once_and_in_order(
    fault: Fault, at: int, autojump_clock: MockClock
) -> None:
    async with opened(latency_s=0.01) as site:
        site.faults[ApiKey.PRODUCE].extend([Fault(apply=True)] * at + [fault] * 2)
        deliveries = await site.send(*named(100))
        for delivery in deliveries:
            result = await delivery
            assert not result.retried
    assert site.stored() == named(100)


async def test_no_more_than_five_batches_are_under_way_and_one_until_the_first_is_acknowledged(
    autojump_clock: MockClock,
) -> None:
    most: list[int] = []
    async with opened(latency_s=0.1, max_in_flight_requests_per_connection=20) as site:
        await site.send(*named(60))
        while len(site.settled) < 60:
            if not site.settled:
                assert site.most_in_flight() <= 1
            most.append(site.most_in_flight())
            await trio.sleep(0.01)
    assert max(most) == MAX_IN_FLIGHT
    for request in site.cluster.brokers[0].seen(ProduceRequest):
        assert isinstance(request, ProduceRequest)
        assert sum(len(topic.partition_data) for topic in request.topic_data) == 1
    assert site.stored() == named(60)


async def test_batches_behind_one_that_failed_follow_it_in_their_order(autojump_clock: MockClock) -> None:
    async with opened(latency_s=0.1) as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].append(Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS))
        deliveries = await site.send(b"a", b"b", b"c")
        await trio.sleep(0.05)
        assert site.most_in_flight() == 3
        assert [(await delivery).offset for delivery in deliveries] == [1, 2, 3]
    assert site.stored() == [b"first", b"a", b"b", b"c"]
    assert site.numbers() == [(1, 0, sequence) for sequence in range(4)]


async def test_a_leader_that_knows_nothing_of_the_producer_gets_its_batches_from_the_first_on(
    autojump_clock: MockClock,
) -> None:
    """It would take any of them: so none is sent to it while an earlier one is on its way, or failed a moment ago."""
    async with opened(2, latency_s=0.1) as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].extend([Fault(hang=True)] * 10)
        deliveries = await site.send(*named(3))
        await trio.sleep(0.2)
        site.cluster.move(T0, 1)
        site.cluster.logs[T0].producers.clear()
        site.cluster.brokers[1].faults[ApiKey.PRODUCE].append(Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS))
        site.producer._metadata.request_update()
        await trio.sleep(0.5)
        assert site.most_in_flight() == 3
        deliveries += await site.send(*named(6)[3:])
        for delivery in deliveries:
            await delivery
    assert site.stored() == [b"first", *named(6)]


async def test_a_leader_that_forgot_the_producer_meanwhile_gets_its_batches_from_the_first_on(
    autojump_clock: MockClock,
) -> None:
    async with opened(latency_s=0.1) as site:
        await site.deliver(b"first")
        await trio.sleep(FORGOTTEN_AFTER_S + 1)
        site.cluster.logs[T0].producers.clear()
        site.faults[ApiKey.PRODUCE].append(Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS))
        for delivery in await site.send(b"a", b"b", b"c"):
            await delivery
    assert site.stored() == [b"first", b"a", b"b", b"c"]


# --- what cannot be repeated -----------------------------------------------------------------------------------------


async def test_a_refused_batch_fails_alone_and_those_behind_it_begin_anew(autojump_clock: MockClock) -> None:
    async with opened(latency_s=0.1) as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].extend([Fault(apply=True), Fault(error=ErrorCode.MESSAGE_TOO_LARGE)])
        one, large, *behind = await site.send(b"a", b"large", b"b", b"c")
        assert (await one).offset == 1
        with pytest.raises(DeliveryFailed, match="MESSAGE_TOO_LARGE") as failure:
            await large
        assert not failure.value.outcome_unknown
        assert [(await delivery).offset for delivery in behind] == [2, 3]
    assert site.stored() == [b"first", b"a", b"b", b"c"]
    assert site.numbers() == [(1, 0, 0), (1, 0, 1), (1, 1, 0), (1, 1, 1)]


@pytest.mark.parametrize("is_appended", [True, False])
async def test_after_a_batch_that_timed_out_nothing_is_doubled_or_held_up(
    is_appended: bool, autojump_clock: MockClock
) -> None:
    async with opened(delivery_timeout_ms=3000, request_timeout_ms=2000) as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].extend([Fault(hang=True, apply=is_appended), *[Fault(close=True)] * 30])
        [lost] = await site.send(b"lost")
        with pytest.raises(DeliveryTimeout) as failure:
            await lost
        assert failure.value.outcome_unknown
        site.faults[ApiKey.PRODUCE].clear()
        await trio.sleep(2)  # what is sent over a connection that just broke may be in the log, too
        await site.deliver(b"a", b"b")
    assert site.stored() == [b"first", *([b"lost"] if is_appended else []), b"a", b"b"]
    assert site.numbers()[-1] == ((1, 0, 3) if is_appended else (1, 1, 1))


async def test_a_batch_that_may_be_in_the_log_is_never_sent_under_other_numbers(autojump_clock: MockClock) -> None:
    async with opened(latency_s=0.1) as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].extend([Fault(close=True), Fault(error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)])
        [unknown] = await site.send(b"unknown")
        with pytest.raises(DeliveryFailed, match=r"OUT_OF_ORDER.*may be in the log") as failure:
            await unknown
        assert failure.value.outcome_unknown
        await site.deliver(b"next")
    assert site.stored() == [b"first", b"next"]
    assert site.numbers() == [(1, 0, 0), (1, 1, 0)]


async def test_what_followed_a_batch_that_was_given_up_is_given_up_where_it_may_be_in_the_log(
    autojump_clock: MockClock,
) -> None:
    async with opened(latency_s=0.1) as site:
        await site.deliver(b"first")
        out_of_order = Fault(error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        site.faults[ApiKey.PRODUCE].extend([*[Fault(close=True)] * 3, out_of_order])  # it reads all three
        deliveries = await site.send(b"a", b"b", b"c")
        await trio.sleep(0.05)
        assert site.most_in_flight() == 3
        for delivery in deliveries:
            with pytest.raises(DeliveryFailed) as failure:
                await delivery
            assert failure.value.outcome_unknown
        await site.deliver(b"next")
    assert site.stored() == [b"first", b"next"]


@pytest.mark.parametrize(
    ("mistake", "raised"), [(LookupError("a mistake of the program"), LookupError), (SystemExit(3), RuntimeError)]
)
async def test_one_who_raises_when_told_keeps_nobody_behind_from_being_told(
    autojump_clock: MockClock, mistake: BaseException, raised: type[Exception]
) -> None:
    """One who exits would end the loop that other clients share."""
    told: list[object] = []

    def raises(batch: object) -> None:
        told.append(batch)
        if len(told) == 2:
            raise mistake

    with pytest.RaisesGroup(raised, flatten_subgroups=True):
        async with opened(latency_s=0.1) as site:
            await site.deliver(b"first")
            out_of_order = Fault(error=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
            site.faults[ApiKey.PRODUCE].extend([*[Fault(close=True)] * 3, out_of_order])  # it reads all three
            site.producer._accumulator.on_batch = raises
            deliveries = await site.send(b"a", b"b", b"c")
            await site.producer.finished()
    assert all(delivery.done() for delivery in deliveries) and len(told) == 3


async def test_who_is_fenced_goes_on_with_another_id(autojump_clock: MockClock) -> None:
    async with opened() as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].append(Fault(error=ErrorCode.INVALID_PRODUCER_EPOCH))
        await site.deliver(b"a", b"b")
    assert site.stored() == [b"first", b"a", b"b"]
    assert site.numbers() == [(1, 0, 0), (2, 0, 0), (2, 0, 1)]


async def test_a_duplicate_is_delivered_although_nobody_knows_where_it_stands(autojump_clock: MockClock) -> None:
    async with opened() as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].append(Fault(error=ErrorCode.DUPLICATE_SEQUENCE_NUMBER, apply=True))
        [delivery] = await site.send(b"a")
        assert (await delivery).offset == -1
        await site.deliver(b"b")
    assert site.stored() == [b"first", b"a", b"b"]


# --- numbers and settings --------------------------------------------------------------------------------------------


def test_sequences_go_on_with_0_behind_the_largest() -> None:
    numbering = Numbering()
    assert numbering.begin(7)
    numbering.next_sequence = SEQUENCES - 2
    assert [numbering.take(3), numbering.take(1)] == [(7, 0, SEQUENCES - 2), (7, 0, 1)]


def test_an_id_has_a_last_epoch() -> None:
    numbering = Numbering()
    for epoch in range(MAX_EPOCH + 1):
        assert numbering.begin(7)
        assert numbering.take(1) == (7, epoch, 0)
    assert not numbering.begin(7)
    assert numbering.begin(8)
    assert numbering.take(1) == (8, 0, 0)


@pytest.mark.parametrize(
    ("given", "is_idempotent"),
    [
        ({}, True),
        ({"acks": "all", "enable.idempotence": "true"}, True),
        ({"enable.idempotence": "false"}, False),
        ({"acks": 1}, False),
        ({"acks": "0"}, False),
        ({"retries": 0}, False),
    ],
)
def test_a_producer_is_idempotent_where_nothing_speaks_against_it(
    given: dict[str, object], is_idempotent: bool
) -> None:
    settings = from_mapping(ProducerSettings, {"bootstrap_servers": "b:1", **given})
    assert settings.is_idempotent is is_idempotent


@pytest.mark.parametrize("given", [{"acks": 1}, {"acks": 0}, {"retries": 0}])
def test_idempotence_that_is_asked_for_and_impossible_is_refused(given: dict[str, object]) -> None:
    with pytest.raises(InvalidClientConfig, match=r"enable_idempotence.*acks=all"):
        from_mapping(ProducerSettings, {"bootstrap_servers": "b:1", "enable_idempotence": True, **given})


async def test_without_idempotence_no_id_is_asked_for(autojump_clock: MockClock) -> None:
    async with opened(acks=1) as site:
        await site.deliver(b"x")
    assert site.cluster.producer_ids == 0
    assert site.numbers() == [(-1, -1, -1)]
