"""Incremental fetches: what a session's answers name, whom they wait for, and what they cost."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.handlers.fetch_reads import FetchReads
from strandline.broker.handlers.session_fetches import PendingSessionFetch
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import UpdateMetadataPartitionState
from strandline.protocol.records import decode_records
from strandline.protocol.records.batch import assign_offset
from strandline.protocol.types import TopicPartition
from support.replica_site import T0, T1, TOPIC_ID, FakeConnection, Hand, ReplicaSite, batch, fetch_hand, produce_hand

PARTITIONS = [TopicPartition("t", index) for index in range(4)]


class Consumer:
    """Fetches as clients with sessions do: everything at first, then what it has read on."""

    def __init__(self, site: ReplicaSite, *partitions: TopicPartition, **fields: Any) -> None:
        self.site = site
        self.fields = fields
        self.positions = dict.fromkeys(partitions, 0)
        self.epoch = 0
        self.hand = site.fetch(*self.positions.items(), session=(0, 0), **fields)
        self.session_id = self.hand.answer.session_id
        self.moved = self.read_on()

    def poll(self, *added: TopicPartition, forgotten: tuple[TopicPartition, ...] = (), **fields: Any) -> Hand:
        self.epoch += 1
        self.positions |= dict.fromkeys(added, 0)
        asked = [(tp, self.positions[tp]) for tp in dict.fromkeys((*self.moved, *added))]
        session = (self.session_id, self.epoch)
        self.hand = self.site.fetch(*asked, session=session, forgotten=forgotten, **{**self.fields, **fields})
        self.moved = self.read_on() if self.hand.is_answered else []
        return self.hand

    def read_on(self) -> list[TopicPartition]:
        """Whose position has changed."""
        moved = []
        pieces = iter(self.hand.sent)
        for topic in self.hand.answer.responses:
            for data in topic.partitions:
                if data.records_size > 0:
                    tp = TopicPartition("t", data.partition_index)
                    self.positions[tp] = max(record.offset for record in decode_records(memoryview(next(pieces)))) + 1
                    moved.append(tp)
        return moved


def named(hand: Hand) -> list[int]:
    return [data.partition_index for data in hand.fetched]


def codes(hand: Hand) -> list[int]:
    return [data.error_code for data in hand.fetched]


@pytest.fixture
async def alone(site: ReplicaSite) -> ReplicaSite:
    """Leads t-0 to t-3 and is their only replica."""
    for tp in PARTITIONS:
        await site.lead(tp, replicas=(1,), isr=(1,))
    return site


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions that are read, one after the other."""
    read: list[int] = []
    real = FetchReads.read_one

    def read_one(self: FetchReads, one: Any, *rest: Any) -> Any:
        read.append(one.wanted.partition)
        return real(self, one, *rest)

    monkeypatch.setattr(FetchReads, "read_one", read_one)
    return read


async def test_after_the_first_answer_only_what_has_news_is_named(
    alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer = Consumer(alone, *PARTITIONS)
    assert named(consumer.hand) == [0, 1, 2, 3] and consumer.session_id > 0
    assert named(consumer.poll()) == []
    alone.produce((T1, batch(2)))
    hand = consumer.poll()
    assert (named(hand), hand.answer.session_id, consumer.positions[T1]) == ([1], consumer.session_id, 2)
    assert named(consumer.poll()) == []


async def test_partitions_to_which_nothing_happens_are_not_read(
    alone: ReplicaSite, autojump_clock: MockClock, reads: list[int]
) -> None:
    consumer = Consumer(alone, *PARTITIONS)
    consumer.poll()
    reads.clear()
    for _ in range(3):
        consumer.poll()
    assert reads == []
    alone.produce((T1, batch()))
    consumer.poll()
    assert reads == [1]


async def test_partitions_that_were_not_looked_at_count_as_fetched(
    alone: ReplicaSite, autojump_clock: MockClock, reads: list[int]
) -> None:
    consumer, row = Consumer(alone, *PARTITIONS), alone.replicas.traffic.rows["t"]
    assert row.fetch_requests == 4
    reads.clear()
    for _ in range(3):
        consumer.poll()
    alone.produce((T1, batch()))
    consumer.poll()
    consumer.poll(wait_ms=1000)  # answered later, or never
    for _ in alone.data.fetch.sessions.sessions.settle():
        pass
    assert (len(reads), row.fetch_requests) == (6, 4 + 5 * 4)


async def test_a_fetch_that_waits_is_answered_by_the_next_records_alone(
    alone: ReplicaSite, autojump_clock: MockClock, reads: list[int]
) -> None:
    consumer = Consumer(alone, *PARTITIONS)
    hand = consumer.poll(wait_ms=1000)
    assert not hand.is_answered
    (waiting,) = alone.data.deadlines.waiting()
    assert isinstance(waiting, PendingSessionFetch) and waiting.watched_count == 4
    reads.clear()
    alone.produce((T1, batch()), acks=1)
    assert (named(hand), reads) == ([1], [1])
    assert all(not alone.partition(tp).parked_fetches for tp in PARTITIONS) and len(alone.data.deadlines) == 0


async def test_what_was_produced_earlier_in_its_burst_is_seen_by_a_fetch_that_does_not_wait(
    alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer, other = Consumer(alone, *PARTITIONS), Consumer(alone, *PARTITIONS)
    assert named(consumer.poll()) == []
    waiting = other.poll(wait_ms=1000)
    hand = fetch_hand(session=(consumer.session_id, 2), wait_ms=0)
    alone.burst(produce_hand((T1, batch())), hand)
    assert named(hand) == [1] and len(hand.sent) == 1
    assert named(waiting) == [1], "who waits in another session is answered as well"


async def test_a_fetch_waits_for_as_many_bytes_as_it_wants_over_all_its_partitions(
    alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer = Consumer(alone, *PARTITIONS)
    size = len(batch())
    hand = consumer.poll(wait_ms=1000, min_bytes=3 * size)
    for tp in (T0, T1, T0):
        assert not hand.is_answered
        alone.produce((tp, batch()))
    assert named(hand) == [0, 1]


async def test_a_fetch_that_has_waited_long_enough_is_answered_with_what_is_there(
    alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer = Consumer(alone, *PARTITIONS)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(alone.data.deadlines.run, alone.data.burst.end)
        hand = consumer.poll(wait_ms=1000)
        await trio.sleep(2)
        assert named(hand) == [] and hand.answer.session_id == consumer.session_id
        hand = consumer.poll(wait_ms=1000, min_bytes=10_000)
        alone.produce((T1, batch()))
        await trio.sleep(2)
        assert named(hand) == [1]
        nursery.cancel_scope.cancel()


async def test_nobody_starves_behind_a_partition_that_fills_every_answer(
    alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer = Consumer(alone, *PARTITIONS)
    size = len(batch())
    for tp in PARTITIONS:
        for _ in range(3):
            alone.produce((tp, batch()))
    answered = []
    for _ in range(8):
        consumer.poll(max_bytes=size)
        answered += [tp.partition for tp in consumer.moved]
    assert answered == [0, 1, 2, 3, 0, 1, 2, 3]


async def test_an_error_is_told_each_time_and_everything_when_it_is_over(
    alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer = Consumer(alone, T0, T1)
    consumer.poll()
    hand = consumer.poll(wait_ms=1000)
    await alone.lead(T1, leader=2, epoch=1)
    assert codes(hand) == [ErrorCode.NOT_LEADER_OR_FOLLOWER], "at once"
    assert (named(consumer.poll()), codes(consumer.hand)) == ([1], [ErrorCode.NOT_LEADER_OR_FOLLOWER])
    await alone.lead(T1, epoch=2, replicas=(1,), isr=(1,))
    assert (named(consumer.poll()), codes(consumer.hand)) == ([1], [0])
    assert named(consumer.poll()) == []


async def test_a_partition_that_is_not_here_yet_is_read_once_it_is(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer = Consumer(site, T0)
    assert codes(consumer.hand) == codes(consumer.poll()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await site.lead(T0, replicas=(1,), isr=(1,))
    assert codes(consumer.poll()) == [0]
    consumer.poll()
    site.stop(T0, epoch=1, delete=True)
    assert codes(consumer.poll()) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    await site.lead(T0, replicas=(1,), isr=(1,))
    consumer.poll()
    site.produce((T0, batch()))
    assert named(consumer.poll()) == [0], "the replica that is here now is watched"


async def test_a_log_start_that_moved_is_news(alone: ReplicaSite, autojump_clock: MockClock) -> None:
    alone.produce((T0, batch(3)))
    consumer = Consumer(alone, T0, T1)
    consumer.poll()
    consumer.poll()
    alone.delete_records((T0, 2))
    [data] = consumer.poll().fetched
    assert (data.partition_index, data.log_start_offset) == (0, 2)
    assert named(consumer.poll()) == []


async def test_a_high_watermark_that_rose_is_news_to_one_who_reads_ahead_of_it(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    site.produce((T0, batch()), (T0, batch()), acks=1)
    consumer = Consumer(site, T0)
    consumer.positions[T0], consumer.moved = 2, [T0]
    assert named(consumer.poll()) == []
    site.follow(2, 2)
    site.follow(3, 1)
    [data] = consumer.poll().fetched
    assert (data.high_watermark, data.records_size) == (1, -1)


async def test_partitions_are_added_and_forgotten(alone: ReplicaSite, autojump_clock: MockClock) -> None:
    consumer = Consumer(alone, T0)
    assert named(consumer.poll(T1)) == [1], "a new one is always named"
    consumer.poll(forgotten=(T0,))
    alone.produce((T0, batch()), (T1, batch()))
    assert named(consumer.poll()) == [1]
    hand = consumer.poll(forgotten=(T1,))
    assert (hand.answer.session_id, named(hand)) == (0, []), "nothing is left of it"
    assert consumer.poll().answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_another_epoch_or_session_is_refused_as_a_whole(alone: ReplicaSite, autojump_clock: MockClock) -> None:
    consumer = Consumer(alone, T0)
    for session, code in (
        ((consumer.session_id, 2), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        ((consumer.session_id + 1, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        ((0, 1), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
    ):
        answer = alone.fetch((T1, 0), session=session).answer
        assert (answer.error_code, answer.session_id, answer.responses) == (code, 0, [])


@pytest.mark.parametrize("epoch", [0, -1])
async def test_a_full_fetch_ends_the_session_that_it_names(
    epoch: int, alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer = Consumer(alone, T0)
    hand = alone.fetch((T0, 0), session=(consumer.session_id, epoch))
    assert (named(hand), hand.answer.session_id > 0) == ([0], epoch == 0)
    assert hand.answer.session_id != consumer.session_id
    assert consumer.poll().answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_goes_on_over_another_connection(alone: ReplicaSite, autojump_clock: MockClock) -> None:
    consumer = Consumer(alone, T0)
    lost = FakeConnection()
    waiting = consumer.poll(wait_ms=1000, connection=lost)
    lost.close("gone")
    alone.produce((T0, batch()))
    assert not waiting.is_answered
    assert named(consumer.poll()) == [0]


async def test_a_fetch_that_waits_gives_way_to_the_next_of_its_session(
    alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer = Consumer(alone, T0)
    waiting = consumer.poll(wait_ms=1000)
    consumer.poll()
    assert waiting.answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    waiting = consumer.poll(wait_ms=1000)
    alone.produce((T0, batch()), acks=1)
    consumer.poll()
    assert named(waiting) == [0], "one that was answered is not refused"
    assert len(alone.data.deadlines) == 0


async def test_there_is_no_session_where_no_slot_is_free(autojump_clock: MockClock) -> None:
    site = ReplicaSite(config={"max.incremental.fetch.session.cache.slots": "1"})
    await site.lead(T0, replicas=(1,), isr=(1,))
    assert Consumer(site, T0).session_id > 0
    refused = Consumer(site, T0)
    assert (refused.session_id, named(refused.hand)) == (0, [0])


async def test_a_full_fetch_that_waits_begins_a_session_too(alone: ReplicaSite, autojump_clock: MockClock) -> None:
    hand = alone.fetch((T0, 0), (T1, 0), session=(0, 0), wait_ms=1000)
    alone.produce((T0, batch()))
    session = (hand.answer.session_id, 1)
    assert named(alone.fetch((T0, 1), session=session)) == [] and session[0] > 0


async def test_a_follower_gets_no_session(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    assert site.follow(2, 0, session=(0, 0)).answer.session_id == 0


async def test_a_session_by_ids_stays_with_ids_and_finds_topics_that_come_later(
    alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    by_id = (TopicPartition("", 0), 0)
    hand = alone.fetch(by_id, session=(0, 0), topic_id=TOPIC_ID)
    session_id = hand.answer.session_id
    assert codes(hand) == [ErrorCode.UNKNOWN_TOPIC_ID]
    hand = alone.fetch((T0, 0), session=(session_id, 1))
    assert hand.answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    alone.update_metadata(UpdateMetadataPartitionState(0, 1, 1, 0, [1], 0, [1]))
    hand = alone.fetch(session=(session_id, 1))
    [topic] = hand.answer.responses
    assert (codes(hand), topic.topic_id) == ([0], TOPIC_ID)
    alone.fetch(session=(session_id, 2))
    for _ in alone.data.fetch.sessions.sessions.settle():
        pass
    assert alone.replicas.traffic.rows["t"].fetch_requests == 1, "counted for the topic from the next one on"


async def test_a_fetch_that_waits_hears_of_records_after_the_log_start_moved(
    alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    alone.produce((T0, batch(3)))
    consumer = Consumer(alone, T0, T1)
    waiting = consumer.poll(wait_ms=1000)
    alone.delete_records((T0, 2))
    assert not waiting.is_answered
    alone.produce((T0, batch()))
    assert named(waiting) == [0]


async def test_a_fetch_that_waits_at_a_follower_hears_of_records_after_the_log_start_moved(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    site.produce((T0, batch()), (T0, batch()), acks=1)
    for _ in range(2):
        site.follow(2, 2)
        site.follow(3, 2)
    partition = await site.follow_leader(epoch=1)
    consumer = Consumer(site, T0, rack_id="rack-1")
    waiting = consumer.poll(wait_ms=1000)
    partition.learn_log_start(1)
    assert not waiting.is_answered
    view = memoryview(bytearray(batch()))
    assign_offset(view, 2, 1)
    partition.append_fetched(view, 3)
    site.data.burst.changes.committed(partition)
    site.data.burst.end()
    assert (named(waiting), waiting.fetched[0].high_watermark) == ([0], 3)


async def test_a_fetch_that_gave_way_is_not_looked_at_for_records_of_the_same_burst(
    alone: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer = Consumer(alone, T0)
    gave_way = consumer.poll(wait_ms=1000)
    waiting = fetch_hand(session=(consumer.session_id, 2), wait_ms=1000, min_bytes=10_000)
    alone.burst(produce_hand((T0, batch())), waiting)
    assert gave_way.answer.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert not waiting.is_answered
    alone.produce((T0, batch(size_bytes=10_000)))
    assert named(waiting) == [0]
