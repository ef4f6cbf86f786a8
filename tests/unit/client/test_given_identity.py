"""A producer whose id, epoch and first sequences the program gives, against scripted brokers."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from strandline.client import ProducerIdentity, TrioProducer
from strandline.client.errors import (
    DeliveryFailed,
    DeliveryTimeout,
    InvalidClientConfig,
    ProducerFenced,
    SequenceTaken,
)
from strandline.client.identity import MAX_EPOCH, SEQUENCES
from strandline.client.settings import ProducerSettings, from_mapping
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import InitProducerIdRequest
from strandline.protocol.types import TopicPartition
from unit.client.fake_broker import ApiKey, FakeCluster, Fault
from unit.client.test_idempotent_producer import T0, Site, named, opened

ME = ProducerIdentity(7, 3)
LOST = Fault(close=True, apply=True)


def note(site: Site, identity: ProducerIdentity, sequence: int, count: int = 1, at: int = 0) -> None:
    """The leader knows this batch; it is none of this producer's."""
    producers = site.cluster.logs[T0].producers
    producers.note(identity.producer_id, identity.epoch, sequence, at, at + count - 1, 1000)


async def failure(delivery) -> DeliveryFailed:
    with pytest.raises(DeliveryFailed) as caught:
        await delivery
    return caught.value


async def test_batches_have_the_given_numbers_and_no_broker_is_asked_for_an_id(autojump_clock: MockClock) -> None:
    async with opened(identity=ProducerIdentity(7, 3, {T0: SEQUENCES - 2})) as site:
        await site.deliver(*named(3))
        assert not site.cluster.brokers[0].seen(InitProducerIdRequest)
    assert site.numbers() == [(7, 3, SEQUENCES - 2), (7, 3, SEQUENCES - 1), (7, 3, 0)]


async def test_each_partition_begins_with_its_own_sequence(autojump_clock: MockClock) -> None:
    async with opened(identity=ProducerIdentity(7, 0, {T0: 5, TopicPartition("t", 1): 9})) as site:
        await site.deliver(b"x")
    assert site.numbers() == [(7, 0, 5)]


@pytest.mark.parametrize("known", [0, 1, 7], ids=["the same batch", "another length", "something later"])
async def test_taken_numbers_fail_with_all_that_is_behind_them(known: int, autojump_clock: MockClock) -> None:
    async with opened(identity=ME) as site:
        note(site, ME, 0, count=known + 1)
        deliveries = await site.send(*named(10))
        for delivery in deliveries:
            error = await failure(delivery)
            assert isinstance(error, SequenceTaken) and not error.outcome_unknown and not error.retriable
        [late] = await site.send(b"late")
        assert isinstance(await failure(late), SequenceTaken)
    assert site.stored() == []


async def test_numbers_that_are_in_the_log_for_long_are_taken(autojump_clock: MockClock) -> None:
    async with opened(identity=ME) as site:
        for sequence in range(1, 6):
            note(site, ME, sequence, at=sequence)
        [delivery] = await site.send(b"x")
        error = await failure(delivery)
        assert isinstance(error, SequenceTaken) and not error.outcome_unknown
        assert "DUPLICATE_SEQUENCE_NUMBER" in str(error)


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
async def test_numbers_that_do_not_follow_fail_and_nothing_begins_anew(
    code: ErrorCode, autojump_clock: MockClock
) -> None:
    async with opened(identity=ME) as site:
        site.faults[ApiKey.PRODUCE].append(Fault(error=code))
        one, two = await site.send(b"a", b"b")
        assert isinstance(await failure(one), SequenceTaken)
        assert isinstance(await failure(two), SequenceTaken)
    assert site.stored() == []


async def test_a_batch_sent_again_that_the_log_has_by_then_may_be_its_own_or_not(autojump_clock: MockClock) -> None:
    async with opened(latency_s=0.1, identity=ME) as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].append(LOST)
        own, *behind = await site.send(b"own", b"b", b"c")
        error = await failure(own)
        assert isinstance(error, SequenceTaken) and error.outcome_unknown
        assert "at offset 1" in str(error)
        for delivery in behind:
            assert isinstance(await failure(delivery), SequenceTaken)
    assert site.stored()[:2] == [b"first", b"own"]  # and what was under way behind it


@pytest.mark.parametrize(
    "fault",
    [
        Fault(error=ErrorCode.NOT_LEADER_OR_FOLLOWER),
        Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS),
        Fault(close=True),
        Fault(hang=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("at", [0, 1, 20])
async def test_what_did_not_reach_the_log_is_sent_again(fault: Fault, at: int, autojump_clock: MockClock) -> None:
    async with opened(latency_s=0.01, identity=ME) as site:
        site.faults[ApiKey.PRODUCE].extend([Fault(apply=True)] * at + [fault] * 2)
        for delivery in await site.send(*named(60)):
            await delivery
    assert site.stored() == named(60)
    assert site.numbers() == [(7, 3, sequence) for sequence in range(60)]


async def test_a_later_epoch_ends_everything(autojump_clock: MockClock) -> None:
    other = TopicPartition("u", 0)
    async with opened(identity=ME) as site:
        site.cluster.add_topic("u")
        await site.deliver(b"first")
        await (await site.producer.send("u", b"x", partition=0))
        site.cluster.logs[T0].producers.note(7, 4, 0, 1, 1, 1000)
        [one] = await site.send(b"a")
        error = await failure(one)
        assert isinstance(error, ProducerFenced) and not error.outcome_unknown and not error.retriable
        assert isinstance(await failure(await site.producer.send("u", b"y", partition=0)), ProducerFenced)
    assert site.stored() == [b"first"]
    assert len(site.cluster.logs[other].batches) == 1


async def test_nothing_follows_a_batch_that_was_refused(autojump_clock: MockClock) -> None:
    async with opened(latency_s=0.1, identity=ME) as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].append(Fault(error=ErrorCode.MESSAGE_TOO_LARGE))
        site.cluster.logs[T0].producers.clear()  # it would take what follows
        large, *behind = await site.send(b"large", *named(20))
        assert "MESSAGE_TOO_LARGE" in str(await failure(large))
        errors = [await failure(delivery) for delivery in behind[5:]]
        assert all(type(error) is DeliveryFailed and "MESSAGE_TOO_LARGE" in str(error) for error in errors)


async def test_nothing_follows_a_batch_that_timed_out(autojump_clock: MockClock) -> None:
    async with opened(delivery_timeout_ms=3000, request_timeout_ms=2000, identity=ME) as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].extend([Fault(close=True)] * 100)
        [lost] = await site.send(b"lost")
        assert isinstance(await failure(lost), DeliveryTimeout)
        site.faults[ApiKey.PRODUCE].clear()
        [late] = await site.send(b"late")
        error = await failure(late)
        assert type(error) is DeliveryFailed and not error.outcome_unknown
    assert site.stored() == [b"first"]


@pytest.mark.parametrize("taken", [1, 2], ids=["one batch", "two batches as one"])
async def test_what_lands_behind_taken_numbers_is_not_told_as_delivered(taken: int, autojump_clock: MockClock) -> None:
    """Somebody else's batch has the numbers of the first ones under way, and the next one follows that. Who counted it
    as delivered would take those before it for delivered, too."""
    async with opened(latency_s=0.1, identity=ME) as site:
        await site.deliver(b"first")
        note(site, ME, 1, count=taken, at=1)
        *lost, landed = await site.send(*named(taken + 1))
        for delivery in lost:
            error = await failure(delivery)
            assert isinstance(error, SequenceTaken) and not error.outcome_unknown
        error = await failure(landed)
        assert isinstance(error, SequenceTaken) and error.outcome_unknown
    assert site.stored() == [b"first", named(taken + 1)[-1]]


async def test_what_lands_before_a_batch_that_is_to_be_sent_again_is_not_told_as_delivered(
    autojump_clock: MockClock,
) -> None:
    """The first of two under way finds too few replicas, then somebody else takes its numbers."""
    async with opened(latency_s=0.1, identity=ME) as site:
        await site.deliver(b"first")
        site.faults[ApiKey.PRODUCE].append(Fault(error=ErrorCode.NOT_ENOUGH_REPLICAS))
        one, two = await site.send(b"a", b"b")
        note(site, ME, 1, at=1)
        assert isinstance(await failure(one), SequenceTaken)
        error = await failure(two)
        assert isinstance(error, SequenceTaken) and error.outcome_unknown
    assert site.stored() == [b"first", b"b"]


# --- races -----------------------------------------------------------------------------------------------------------


@given(
    batch_sizes=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    faults=st.lists(st.sampled_from([Fault(apply=True), Fault(close=True), LOST]), max_size=12),
    delay_s=st.sampled_from([0.0, 0.005, 0.02, 0.1]),
)
@settings(max_examples=60, deadline=None)
def test_of_two_with_one_identity_each_record_stands_once_and_who_was_told_so_wrote_it(
    batch_sizes: tuple[int, int], faults: list[Fault], delay_s: float
) -> None:
    """What is told as delivered stands where it is told to, and is the beginning of what was sent."""

    async def race() -> None:
        cluster = FakeCluster(1)
        cluster.add_topic("t")
        cluster.memory.link("broker-0", "client").latency_s = 0.01
        cluster.brokers[0].faults[ApiKey.PRODUCE].extend(faults)
        delivered: dict[bytes, int] = {}
        failed: dict[bytes, list[bytes]] = {b"a": [], b"b": []}

        async def write(name: bytes, batch_size: int, after_s: float) -> None:
            await trio.sleep(after_s)
            environment = cluster.environment()
            async with TrioProducer(
                cluster.bootstrap, environment=environment, identity=ME, batch_size=batch_size, linger_ms=0
            ) as producer:
                values = [name + value for value in named(12)]
                sent = [(value, await producer.send("t", value, partition=0)) for value in values]
                for value, delivery in sent:
                    try:
                        delivered[value] = (await delivery).offset
                    except SequenceTaken:
                        failed[name].append(value)

        async with trio.open_nursery() as nursery:
            await cluster.start(nursery)
            async with trio.open_nursery() as writers:
                writers.start_soon(write, b"a", batch_sizes[0], 0.0)
                writers.start_soon(write, b"b", batch_sizes[1], delay_s)
            nursery.cancel_scope.cancel()
        stored = [record.value for record in cluster.logs[T0].records()]
        positions = [value[1:] for value in stored if value is not None]
        assert positions == named(12)[: len(positions)], "each once, in order, whoever wrote it"
        assert all(stored[offset] == value for value, offset in delivered.items())
        for name, values in failed.items():
            assert [name + value for value in named(12)][12 - len(values) :] == values

    trio.run(race, clock=MockClock(autojump_threshold=0))


# --- settings --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "given",
    [(-1, 0, {}), (2**63, 0, {}), (1, -1, {}), (1, MAX_EPOCH + 1, {}), (1, 0, {T0: -1}), (1, 0, {T0: SEQUENCES})],
)
def test_what_cannot_be_an_identity_is_refused(given: tuple[int, int, dict[TopicPartition, int]]) -> None:
    with pytest.raises(InvalidClientConfig, match="identity"):
        ProducerIdentity(*given)


@pytest.mark.parametrize("given", [{"acks": 1}, {"acks": 0}, {"retries": 0}, {"enable_idempotence": False}])
def test_an_identity_needs_what_idempotence_needs(given: dict[str, object]) -> None:
    with pytest.raises(InvalidClientConfig, match="identity needs acks=all"):
        from_mapping(ProducerSettings, {"bootstrap_servers": "b:1", "identity": ME, **given})


def test_an_identity_is_a_producer_identity() -> None:
    with pytest.raises(InvalidClientConfig, match="is not a ProducerIdentity"):
        from_mapping(ProducerSettings, {"bootstrap_servers": "b:1", "identity": 7})
