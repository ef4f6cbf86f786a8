"""Fetch: what consumers and followers see, what a follower's fetch proves, and fetches that wait for data."""

from __future__ import annotations

import errno
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.handlers.fetch_reads import FetchReads
from strandline.broker.handlers.fetch_sessions import Read
from strandline.broker.network import regions
from strandline.broker.replication.partition import Partition
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import (
    EpochEndOffset,
    FetchPartition,
    FetchRequest,
    FetchTopic,
    UpdateMetadataPartitionState,
)
from strandline.protocol.records import decode_records
from strandline.protocol.types import TopicPartition
from support.replica_site import T0, T1, TOPIC_ID, FakeConnection, Hand, ReplicaSite, batch, fetch_hand, produce_hand

HW = 3
LEO = 5
U0 = TopicPartition("u", 0)


def offsets(hand: Hand, place: int = 0) -> list[int]:
    return [record.offset for record in decode_records(memoryview(hand.sent[place]))] if hand.sent else []


def codes(hand: Hand) -> list[int]:
    return [data.error_code for data in hand.fetched]


@asynccontextmanager
async def deadlines(site: ReplicaSite) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        yield
        nursery.cancel_scope.cancel()


@pytest.fixture
async def leading(site: ReplicaSite) -> ReplicaSite:
    """Leader of t-0 at epoch 2: offsets 0..4 in single batches, HW 3."""
    await site.lead(epoch=2)
    for _ in range(LEO):
        site.produce((T0, batch()), acks=1)
    site.follow(2, LEO)
    site.follow(3, HW)
    assert (site.partition().high_watermark, site.partition().log.log_end_offset) == (HW, LEO)
    return site


# --- what is seen ----------------------------------------------------------------------------------------------


async def test_a_consumer_never_sees_the_high_watermark_or_above(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = leading.fetch((T0, 0))
    assert offsets(hand) == [0, 1, 2]
    assert (hand.fetched[0].high_watermark, hand.fetched[0].last_stable_offset) == (HW, HW)


@pytest.mark.parametrize("offset", [HW, HW + 1, LEO])
async def test_a_consumer_between_high_watermark_and_log_end_gets_nothing_and_no_error(
    offset: int, leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = leading.fetch((T0, offset))
    assert (codes(hand), hand.fetched[0].records_size, hand.sent) == ([0], -1, [])


async def test_a_batch_that_crosses_the_high_watermark_is_not_shown(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    site.produce((T0, batch(2)), (T0, batch(3)), acks=1)
    site.follow(2, 5)
    site.follow(3, 4)
    assert site.partition().high_watermark == 4
    assert offsets(site.fetch((T0, 0))) == [0, 1]


async def test_a_follower_sees_everything(leading: ReplicaSite, autojump_clock: MockClock) -> None:
    hand = leading.follow(3, HW)
    assert offsets(hand) == [3, 4]
    assert hand.fetched[0].high_watermark == HW


async def test_a_produce_of_the_same_burst_is_seen_by_the_fetch_behind_it(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    hand = fetch_hand((T0, 0))
    site.burst(produce_hand((T0, batch(2))), hand)
    assert offsets(hand) == [0, 1]


@pytest.mark.parametrize("offset", [LEO + 1, 10**12, -1])
async def test_an_offset_outside_the_log_is_out_of_range(
    offset: int, leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    assert codes(leading.fetch((T0, offset))) == [ErrorCode.OFFSET_OUT_OF_RANGE]


async def test_an_offset_below_the_logs_start_is_out_of_range_and_the_start_is_told(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.follow_leader()
    site.partition().restart_at(10)
    await site.lead(epoch=1)
    for hand in (site.fetch((T0, 9)), site.follow(2, 9, last_epoch=-1)):
        assert codes(hand) == [ErrorCode.OFFSET_OUT_OF_RANGE]
        assert hand.fetched[0].log_start_offset == 10
    assert site.partition().leadership.followers[2].log_end_offset == -1, "such a fetch proves nothing"


# --- fencing ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("epoch", "code"), [(1, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH)], ids=["older", "newer"]
)
async def test_another_epoch_than_the_leaders_is_refused(
    epoch: int, code: ErrorCode, leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    assert codes(leading.fetch((T0, 0), epoch=epoch)) == [code]
    hand = leading.follow(3, LEO, epoch=epoch)
    assert codes(hand) == [code]
    assert hand.fetched[0].current_leader_epoch == 2
    assert leading.partition().high_watermark == HW, "and its fetch acknowledges nothing"


async def test_a_follower_must_name_an_epoch(leading: ReplicaSite, autojump_clock: MockClock) -> None:
    assert codes(leading.follow(3, LEO, epoch=-1)) == [ErrorCode.FENCED_LEADER_EPOCH]


async def test_a_topic_is_fetched_by_its_id_alone(leading: ReplicaSite, autojump_clock: MockClock) -> None:
    leading.update_metadata(UpdateMetadataPartitionState(0, 1, 1, 2, [1], 0, [1, 2, 3]))
    hand = leading.fetch((TopicPartition("", 0), 0), topic_id=TOPIC_ID)
    assert offsets(hand) == [0, 1, 2]
    [topic] = hand.answer.responses
    assert (topic.topic, topic.topic_id) == ("t", TOPIC_ID)


async def test_a_fetch_by_an_id_that_no_topic_has_is_refused_and_the_id_is_told(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    topics = [FetchTopic("", [FetchPartition(0, 0, 1000)], bytes([n]) * 16) for n in (8, 9)]
    hand = Hand(FetchRequest(0, 0, 1000, topics))
    leading.burst(hand)
    assert codes(hand) == [ErrorCode.UNKNOWN_TOPIC_ID] * 2
    assert [(topic.topic, topic.topic_id) for topic in hand.answer.responses] == [
        ("", b"\x08" * 16),
        ("", b"\x09" * 16),
    ]


async def test_a_fetch_by_an_id_other_than_that_of_the_log_here_is_refused(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    """The topic was made anew, and this broker has not been told yet what becomes of its replica."""
    state = UpdateMetadataPartitionState(0, 1, 1, 2, [1], 0, [1, 2, 3])
    leading.update_metadata(state, topic_id=b"\x07" * 16)
    assert codes(leading.fetch((TopicPartition("", 0), 0), topic_id=b"\x07" * 16)) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert codes(leading.fetch((TopicPartition("", 0), 0), topic_id=TOPIC_ID)) == [ErrorCode.UNKNOWN_TOPIC_ID]


async def test_a_follower_of_another_topic_of_that_name_is_refused(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    assert codes(leading.follow(3, LEO, topic_id=b"\x07" * 16)) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert leading.partition().high_watermark == HW


async def test_a_replica_id_that_is_not_assigned_gets_an_error_and_leaves_no_trace(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    for replica_id in (4, 1):
        assert codes(leading.follow(replica_id, LEO, epoch=2, last_epoch=2)) == [ErrorCode.REPLICA_NOT_AVAILABLE]
    leadership = leading.partition().leadership
    assert (set(leadership.followers), leadership.proposal, leadership.high_watermark) == ({2, 3}, None, HW)


async def test_a_replica_id_on_a_clients_listener_is_refused_and_leaves_no_trace(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = leading.follow(3, LEO, connection=FakeConnection(is_inter_broker=False))
    assert hand.answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert hand.answer.responses == []
    assert leading.partition().high_watermark == HW


async def test_a_broker_that_does_not_lead_names_who_does(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.follow_leader(leader=3, epoch=4)
    data = site.fetch((T0, 0)).fetched[0]
    assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (data.current_leader_id, data.current_leader_epoch) == (3, 4)
    assert codes(site.fetch((T1, 0))) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


# --- divergence ------------------------------------------------------------------------------------------------


async def fork(site: ReplicaSite) -> ReplicaSite:
    """Leader at epoch 5: offsets 0, 1 of epoch 0, 2..4 of epoch 3, 5 of epoch 5."""
    for epoch, count in ((0, 2), (3, 3), (5, 1)):
        await site.lead(epoch=epoch)
        for _ in range(count):
            site.produce((T0, batch()), acks=1)
    return site


@pytest.mark.parametrize(
    ("offset", "last_epoch", "diverging"),
    [
        (5, 3, None),
        (3, 3, None),
        (2, 0, None),
        (6, 5, None),
        (4, 0, EpochEndOffset(0, 2)),
        (6, 3, EpochEndOffset(3, 5)),
        (4, 2, EpochEndOffset(0, 2)),
        (6, 4, EpochEndOffset(3, 5)),
        (7, 5, EpochEndOffset(5, 6)),
    ],
    ids=[
        "behind, at an epoch's end",
        "behind, inside an epoch",
        "behind, in an old epoch",
        "level",
        "too much of an old epoch",
        "too much of the middle epoch",
        "an epoch that the leader lacks",
        "a later epoch that the leader lacks",
        "beyond the leader",
    ],
)
async def test_divergence_is_the_largest_common_epoch_and_its_end(
    offset: int, last_epoch: int, diverging: EpochEndOffset | None, site: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = (await fork(site)).follow(2, offset, last_epoch=last_epoch)
    assert hand.fetched[0].diverging_epoch == diverging
    assert bool(hand.sent) == (diverging is None and offset < 6)


async def test_a_follower_with_an_epoch_that_is_yet_to_come_is_not_told_to_cut_it(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    """The partition's epochs began anew, and it follows nevertheless."""
    (answer,) = (await fork(site)).follow(2, 6, last_epoch=7).fetched
    assert (answer.error_code, answer.diverging_epoch) == (ErrorCode.UNKNOWN_LEADER_EPOCH, None)
    assert site.partition().leadership.followers[2].log_end_offset == -1


async def test_a_diverged_fetch_changes_nothing_on_the_leader(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await fork(site)
    leadership = site.partition().leadership
    site.follow(3, 6)
    progress = leadership.followers[2]
    before = (progress.log_end_offset, progress.caught_up_at, progress.last_fetch_at, progress.incarnation)
    await trio.sleep(5)
    site.follow(2, 6, last_epoch=3)
    assert (progress.log_end_offset, progress.caught_up_at, progress.last_fetch_at, progress.incarnation) == before
    assert (leadership.high_watermark, leadership.proposal) == (0, None)


async def test_a_diverged_fetch_is_answered_at_once_without_data(site: ReplicaSite, autojump_clock: MockClock) -> None:
    hand = (await fork(site)).follow(2, 6, last_epoch=3, wait_ms=500)
    assert hand.fetched[0].diverging_epoch == EpochEndOffset(3, 5)
    assert hand.sent == []


# --- limits ----------------------------------------------------------------------------------------------------


async def test_the_first_batch_is_sent_whole_however_large(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    site.produce((T0, batch(size_bytes=5000)), (T0, batch()))
    assert offsets(site.fetch((T0, 0), max_bytes=10, partition_max_bytes=1)) == [0]
    assert offsets(site.fetch((T0, 0), max_bytes=0, partition_max_bytes=0)) == [0]


@pytest.mark.parametrize("max_bytes", [10, 500], ids=["less than one batch", "more than one batch, less than two"])
async def test_only_the_first_partition_with_data_may_exceed_the_limit(
    max_bytes: int, site: ReplicaSite, autojump_clock: MockClock
) -> None:
    alone = {"replicas": (1,), "isr": (1,)}
    t2 = T0._replace(partition=2)
    await site.order(site.state(T0, **alone), site.state(T1, **alone), site.state(t2, **alone))
    site.produce((T1, batch(size_bytes=300)), (t2, batch(size_bytes=300)))
    hand = site.fetch((T0, 0), (T1, 0), (t2, 0), max_bytes=max_bytes)
    assert [data.records_size > 0 for data in hand.fetched] == [False, True, False]
    assert codes(hand) == [0, 0, 0]


async def test_max_bytes_bounds_all_partitions_together_and_partition_max_bytes_each(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    alone = {"replicas": (1,), "isr": (1,)}
    await site.order(site.state(T0, **alone), site.state(T1, **alone))
    size = len(batch())
    for _ in range(10):
        site.produce((T0, batch()), (T1, batch()))
    hand = site.fetch((T0, 0), (T1, 0), partition_max_bytes=4 * size, max_bytes=6 * size)
    assert [data.records_size for data in hand.fetched] == [4 * size, 2 * size]
    assert (offsets(hand, 0), offsets(hand, 1)) == ([0, 1, 2, 3], [0, 1])


# --- fetches that wait -----------------------------------------------------------------------------------------


async def test_a_fetch_that_waits_is_served_once_when_its_data_commits(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = leading.fetch((T0, HW), wait_ms=500)
    leading.produce((T0, batch()), acks=1)
    assert not hand.is_answered, "appended is not committed"
    leading.follow(3, LEO)
    assert offsets(hand) == [3, 4]
    leading.follow(2, LEO + 1)
    leading.follow(3, LEO + 1)
    async with deadlines(leading):
        await trio.sleep(2)
    assert len(hand.answers) == 1
    assert not leading.partition().parked_fetches


async def test_a_followers_fetch_that_waits_is_served_by_an_append(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = leading.follow(2, LEO, wait_ms=500)
    leading.produce((T0, batch()), acks=1)
    assert offsets(hand) == [LEO]


@pytest.mark.parametrize("limit", ["of the partition", "of the request", "of the broker"])
async def test_a_fetch_waits_for_no_more_than_may_be_sent(limit: str, autojump_clock: MockClock) -> None:
    """Which may end within a batch."""
    site = ReplicaSite(config={"fetch.max.bytes": "1024"} if limit == "of the broker" else {})
    await site.lead(T0, replicas=(1,), isr=(1,))
    for _ in range(2):
        site.produce((T0, batch(size_bytes=500)))
    wanted = {
        "of the partition": {"partition_max_bytes": 1000, "min_bytes": 1000},
        "of the request": {"max_bytes": 1000, "min_bytes": 10**6},
        "of the broker": {"min_bytes": 10**6},
    }[limit]
    assert offsets(site.fetch((T0, 0), wait_ms=500, **wanted)) == [0]
    assert not site.fetch((T0, 1), wait_ms=500, **wanted).is_answered


async def test_a_fetch_does_not_wait_at_the_end_of_a_segment(autojump_clock: MockClock) -> None:
    site = ReplicaSite(topic={"segment.bytes": str(2 * len(batch()))})
    await site.lead(T0, replicas=(1,), isr=(1,))
    for _ in range(3):
        site.produce((T0, batch()))
    assert offsets(site.fetch((T0, 0), wait_ms=500, min_bytes=10**6)) == [0, 1]
    assert not site.fetch((T0, 2), wait_ms=500, min_bytes=10**6).is_answered


async def test_a_fetch_waits_for_min_bytes(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    hand = site.fetch((T0, 0), wait_ms=500, min_bytes=2 * len(batch()))
    site.produce((T0, batch()))
    assert not hand.is_answered
    site.produce((T0, batch()))
    assert offsets(hand) == [0, 1]


async def test_a_fetch_over_several_partitions_is_answered_once_though_all_of_them_get_data(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    alone = {"replicas": (1,), "isr": (1,)}
    await site.order(site.state(T0, **alone), site.state(T1, **alone))
    hand = site.fetch((T0, 0), (T1, 0), wait_ms=500)
    site.produce((T0, batch()), (T1, batch(2)))
    assert [data.records_size > 0 for data in hand.fetched] == [True, True]
    assert not site.partition(T0).parked_fetches and not site.partition(T1).parked_fetches


async def test_a_fetch_that_waits_in_vain_is_answered_empty_at_its_deadline(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = leading.fetch((T0, HW), wait_ms=500)
    async with deadlines(leading):
        await trio.sleep(0.4)
        assert not hand.is_answered
        await trio.sleep(0.2)
    assert (codes(hand), hand.sent) == ([0], [])
    assert not leading.partition().parked_fetches


async def test_a_change_of_role_answers_who_waits_with_the_new_leader(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer, follower = leading.fetch((T0, HW), wait_ms=500), leading.follow(2, LEO, wait_ms=500)
    await leading.follow_leader(leader=3, epoch=3)
    assert codes(consumer) == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert consumer.fetched[0].current_leader_id == 3
    assert codes(follower) == [ErrorCode.FENCED_LEADER_EPOCH]


async def test_a_new_epoch_of_the_same_leader_fences_the_followers_that_wait_and_keeps_consumers(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    consumer, follower = leading.fetch((T0, HW), wait_ms=500), leading.follow(2, LEO, wait_ms=500)
    await leading.lead(epoch=3)
    assert not consumer.is_answered
    assert codes(follower) == [ErrorCode.FENCED_LEADER_EPOCH]


async def test_a_stopped_replica_answers_who_waits(leading: ReplicaSite, autojump_clock: MockClock) -> None:
    hand = leading.fetch((T0, HW), wait_ms=500)
    leading.stop(epoch=2)
    assert codes(hand) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]


async def test_a_fetch_whose_connection_ended_is_forgotten(leading: ReplicaSite, autojump_clock: MockClock) -> None:
    hand = leading.fetch((T0, HW), wait_ms=500)
    hand.connection.close("gone")
    leading.follow(3, LEO)
    assert not leading.partition().parked_fetches
    assert hand.answers == []


async def test_an_error_in_one_partition_answers_at_once_with_what_the_others_have(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = leading.fetch((T1, 0), (T0, 0), wait_ms=500, min_bytes=10**6)
    assert codes(hand) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]
    assert offsets(hand) == [0, 1, 2]


async def test_a_fetch_of_nothing_is_answered_at_once(site: ReplicaSite, autojump_clock: MockClock) -> None:
    assert site.fetch(wait_ms=500).answer.responses == []
    assert isinstance(site.fetch(wait_ms=500).message, FetchRequest)


# --- the disk --------------------------------------------------------------------------------------------------


@pytest.fixture
async def cold(leading: ReplicaSite, monkeypatch: pytest.MonkeyPatch) -> ReplicaSite:
    """Nothing of the log is in the page cache, and its end is not near."""
    monkeypatch.setattr(regions, "COLD_DISTANCE_BYTES", 0)
    leading.disk.cold_patterns.append("/logs/t-0/*.log")
    return leading


async def test_a_cold_read_is_warmed_by_a_handler_task_and_then_answered(
    cold: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = cold.fetch((T0, 0))
    assert not hand.is_answered
    assert len(cold.submitted) == 1
    flushes = cold.flushes
    await cold.run_submitted()
    assert offsets(hand) == [0, 1, 2]
    assert cold.flushes > flushes


async def test_a_cold_read_shows_what_was_committed_when_it_was_asked(
    cold: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = cold.fetch((T0, 0))
    cold.follow(3, LEO, min_bytes=0)
    await cold.run_submitted()
    assert offsets(hand) == [0, 1, 2]
    assert hand.fetched[0].high_watermark == HW


async def test_a_cold_read_that_fails_ends_the_replica_and_the_connection(
    cold: ReplicaSite, autojump_clock: MockClock
) -> None:
    hand = cold.fetch((T0, 0))
    cold.disk.fail("pread", "/logs/t-0/*.log", errno.EIO)
    await cold.run_submitted()
    assert hand.connection.closed, "its answer was due, and later ones wait behind it"
    assert cold.partition().failed
    assert codes(cold.fetch((T0, 0))) == [ErrorCode.KAFKA_STORAGE_ERROR]


async def test_a_bug_in_reading_one_partition_fails_that_one_alone(
    site: ReplicaSite, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tp in (T0, T1):
        await site.lead(tp, replicas=(1,), isr=(1,))
        site.produce((tp, batch()), acks=1)
    real = FetchReads.read_one

    def read_one(self: FetchReads, one: Read, *rest: Any) -> Any:
        if one.wanted.partition == T0.partition:
            raise ValueError("a bug")
        return real(self, one, *rest)

    monkeypatch.setattr(FetchReads, "read_one", read_one)
    hand = site.fetch((T0, 0), (T1, 0))
    assert (codes(hand), len(hand.sent)) == ([ErrorCode.UNKNOWN_SERVER_ERROR, 0], 1)
    counts = site.replicas.traffic.rows[T0.topic]
    assert (counts.fetch_requests, counts.failed_fetch_requests) == (2, 1)
    (line,) = [entry for entry in site.events.entries if entry["event"] == "a partition could not be fetched"]
    assert (line["topic"], line["partition"], line["error"]) == ("t", 0, "ValueError('a bug')")


async def test_a_bug_in_noting_what_a_follower_has_fails_no_fetch(
    site: ReplicaSite, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.lead()
    site.produce((T0, batch()), acks=1)

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(Partition, "record_follower_fetch", fail)
    hand = site.follow(2, 0, wait_ms=1000)
    assert (codes(hand), len(hand.sent)) == ([0], 1)
    assert site.partition().high_watermark == 0
    (line,) = [entry for entry in site.events.entries if entry["event"] == "a partition could not be fetched"]
    assert line["error"] == "ValueError('a bug')"


async def test_a_bug_in_one_partition_leaves_a_fetch_that_waits_to_the_others(
    site: ReplicaSite, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for tp in (T0, T1):
        await site.lead(tp, replicas=(1,), isr=(1,))
    hand = site.fetch((T0, 0), (T1, 0), wait_ms=1000, min_bytes=100_000)

    def fail(*_: object) -> None:
        raise ValueError("a bug")

    monkeypatch.setattr(site.partition(T0).log, "read", fail)
    site.produce((T1, batch()), acks=1)
    assert not hand.is_answered
    site.produce((T0, batch()), acks=1)
    assert (codes(hand), len(hand.sent)) == ([ErrorCode.UNKNOWN_SERVER_ERROR, 0], 1)


async def test_fetches_of_several_topics_count_for_each(site: ReplicaSite, autojump_clock: MockClock) -> None:
    sizes = await _lead_two_topics(site)
    site.fetch((T0, 0), (T1, 0), (U0, 0))
    assert _counts(site, "t") == (2, sizes[T0] + sizes[T1])
    assert _counts(site, "u") == (1, sizes[U0])


async def test_what_a_quota_withholds_counts_as_a_fetch_that_found_nothing(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await _lead_two_topics(site)
    hand = fetch_hand((T0, 0), (T1, 0), (U0, 0))
    hand.hooks = (lambda message, regions: message and (message, ()),)
    site.burst(hand)
    assert (_counts(site, "t"), _counts(site, "u")) == ((0, 0), (0, 0)), "nothing has left yet"
    hand.hooks[-1](hand.answer, ())
    assert (_counts(site, "t"), _counts(site, "u")) == ((2, 0), (1, 0))


async def _lead_two_topics(site: ReplicaSite) -> dict[TopicPartition, int]:
    """Returns how many bytes each partition has."""
    sizes = {}
    for tp, topic_id, records in ((T0, TOPIC_ID, 1), (T1, TOPIC_ID, 2), (U0, b"u" * 16, 3)):
        await site.order(site.state(tp, replicas=(1,), isr=(1,)), topic=tp.topic, topic_id=topic_id)
        data = batch(records)
        sizes[tp] = len(data)
        site.produce((tp, data), acks=1)
    return sizes


def _counts(site: ReplicaSite, topic: str) -> tuple[int, int]:
    """Fetches of partitions, and bytes."""
    row = site.replicas.traffic.rows[topic]
    return row.fetch_requests, row.bytes_out


async def test_a_read_error_takes_the_replica_offline(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.follow_leader()
    for epoch in range(1, 4):  # old epochs are looked up on disk, the tail is not
        await site.lead(epoch=epoch)
        site.produce((T0, batch(size_bytes=4000)), acks=1)
    site.partition().log._boundaries.forget()
    site.disk.fail("pread*", "/logs/t-0/*.log", errno.EIO)
    site.disk.fail("pread_into", "/logs/t-0/*.log", errno.EIO)
    site.disk.fail("pread", "/logs/t-0/*.log", errno.EIO)
    hand = site.follow(2, 0)
    assert codes(hand) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert site.replicas.traffic.rows[T0.topic].failed_fetch_requests == 0, "no fault of the topic, as in Kafka"
    assert site.partition().failed
