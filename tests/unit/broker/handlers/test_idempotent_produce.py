"""Produce by idempotent producers: repetitions are answered as the first time, bad sequences fail alone."""

from __future__ import annotations

import errno

import trio
from trio.testing import MockClock

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records import BatchBuilder
from support.replica_site import T0, T1, Hand, ReplicaSite, batch, produce_hand

PID = 7


def from_producer(sequence: int, count: int = 1, *, pid: int = PID, epoch: int = 0) -> bytes:
    return batch(count, producer=(pid, epoch, sequence))


def answers(hand: Hand) -> list[tuple[int, int]]:
    return [(outcome.error_code, outcome.base_offset) for outcome in hand.outcomes]


async def test_a_repetition_with_acks_1_is_answered_with_the_first_offset(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    assert answers(site.produce((T0, from_producer(0, 3)), acks=1)) == [(0, 0)]
    site.produce((T0, batch(2)), acks=1)
    assert answers(site.produce((T0, from_producer(0, 3)), acks=1)) == [(0, 0)]
    assert site.partition().log.log_end_offset == 5


async def test_a_repetition_with_acks_all_waits_for_its_own_offset_only(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    first = site.produce((T0, from_producer(0, 3)))
    later = site.produce((T0, batch(2)))
    again = site.produce((T0, from_producer(0, 3)))
    assert not (first.is_answered or later.is_answered or again.is_answered)
    site.follow(2, 3)
    site.follow(3, 3)
    assert answers(first) == answers(again) == [(0, 0)]
    assert not later.is_answered
    assert answers(site.produce((T0, from_producer(0, 3)))) == [(0, 0)], "it is committed by now"


async def test_a_burst_with_the_same_batch_twice_appends_it_once(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    hands = [
        produce_hand((T0, records), acks=1)
        for records in (from_producer(0, 2), batch(1), from_producer(0, 2), from_producer(2))
    ]
    site.burst(*hands)
    assert [answers(hand) for hand in hands] == [[(0, 0)], [(0, 2)], [(0, 0)], [(0, 3)]]
    assert site.partition().log.log_end_offset == 4


async def test_a_bad_sequence_fails_neither_its_burst_nor_its_request(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    await site.lead(T1)
    out_of_order = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    site.produce((T0, from_producer(0)), acks=1)
    bad = produce_hand((T0, from_producer(5)), (T1, batch(1)), acks=1)
    good = produce_hand((T0, from_producer(1)), acks=1)
    site.burst(bad, good)
    assert answers(bad) == [(out_of_order, -1), (0, 0)]
    assert "sequence 5 where 1 follows" in (bad.outcomes[0].error_message or "")
    assert answers(good) == [(0, 1)]


async def test_a_fenced_producer_is_told_so(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    site.produce((T0, from_producer(0, epoch=2)), acks=1)
    assert answers(site.produce((T0, from_producer(1, epoch=1)), acks=1)) == [(ErrorCode.INVALID_PRODUCER_EPOCH, -1)]


async def test_a_bad_sequence_with_acks_0_closes_the_connection(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    site.produce((T0, from_producer(0)), acks=1)
    hand = site.produce((T0, from_producer(5)), acks=0)
    assert "OUT_OF_ORDER_SEQUENCE_NUMBER" in hand.connection.why_closed


async def test_a_transactional_batch_is_refused(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    builder = BatchBuilder(is_transactional=True)
    builder.set_producer(PID, 0, 0)
    builder.append(1000, b"k", b"v")
    assert answers(site.produce((T0, builder.build()), acks=1)) == [(ErrorCode.INVALID_TXN_STATE, -1)]
    assert site.partition().log.log_end_offset == 0


async def test_a_disk_that_fails_under_a_wave_of_producers_is_no_answer_but_an_error(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    site.disk.fail("pwritev", "/logs/t-0/*.log", errno.EIO)
    hands = [produce_hand((T0, records), acks=1) for records in (from_producer(0), batch(1))]
    site.burst(*hands)
    assert [answers(hand) for hand in hands] == [[(ErrorCode.KAFKA_STORAGE_ERROR, -1)]] * 2


async def test_a_repetition_has_the_time_of_its_first_append(autojump_clock: MockClock) -> None:
    site = ReplicaSite(topic={"message.timestamp.type": "LogAppendTime"})
    await site.lead()
    first = site.produce((T0, from_producer(0)), acks=1).outcomes[0]
    await trio.sleep(5)
    again = site.produce((T0, from_producer(0)), acks=1).outcomes[0]
    assert (first.base_offset, first.log_append_time_ms) == (again.base_offset, again.log_append_time_ms)
    assert first.log_append_time_ms > 0
    assert (first.is_repetition, again.is_repetition) == (False, True)
