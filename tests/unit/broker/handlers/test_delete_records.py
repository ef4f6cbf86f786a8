"""DeleteRecords: what moves, who is waited for, what is refused."""

from __future__ import annotations

import errno

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.broker.replication.follower_fetch import build_fetch
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import DeleteRecordsRequest, DeleteRecordsTopic
from strandline.protocol.records import decode_records
from strandline.protocol.types import TopicPartition
from strandline.storage.log.log import Log
from strandline.storage.log.truncation_guard import CheckpointFirst
from support.replica_site import T0, T1, Hand, ReplicaSite, batch
from support.storage_site import StorageSite, produced, raw


async def leading_alone(site: ReplicaSite, records: int = 10, tp: TopicPartition = T0) -> None:
    await site.lead(tp, replicas=(1,), isr=(1,))
    for _ in range(records // 5):
        site.produce((tp, batch(5)))


async def leading_three(site: ReplicaSite, records: int = 10) -> None:
    """All replicas have everything, and have told so with their log start."""
    await site.lead()
    site.produce((T0, batch(records)))
    for follower in (2, 3):
        site.follow(follower, records, log_start=0)


async def write_log_starts(site: ReplicaSite) -> None:
    """Let the log starts that were raised reach the disk."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.log_starts.run)
        await wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()


async def deleted(site: ReplicaSite, *parts: tuple[TopicPartition, int]) -> list[tuple[int, int]]:
    """What a request is answered once the log starts are on this disk."""
    hand = site.delete_records(*parts)
    await write_log_starts(site)
    return hand.deleted


def read(site: ReplicaSite, offset: int) -> list[int]:
    hand = site.fetch((T0, offset))
    return [record.offset for record in decode_records(memoryview(b"".join(hand.sent)))]


async def test_the_log_start_moves_and_reads_begin_at_the_batch_that_holds_it(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await leading_alone(site)
    assert await deleted(site, (T0, 7)) == [(0, 7)]
    assert site.partition().log.log_start_offset == 7
    assert read(site, 7) == [5, 6, 7, 8, 9], "the batch comes whole; clients skip what lies before their offset"
    for offset in (0, 5, 6):
        (data,) = site.fetch((T0, offset)).fetched
        assert (data.error_code, data.log_start_offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, 7)


async def test_minus_one_deletes_all_that_is_committed(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await leading_three(site)
    site.produce((T0, batch(4)))  # nobody has copied these
    hand = site.delete_records((T0, -1))
    assert not hand.is_answered and site.partition().log.log_start_offset == 10
    await write_log_starts(site)
    for follower in (2, 3):
        site.follow(follower, 10, log_start=10)
    assert hand.deleted == [(0, 10)]


async def test_the_answer_waits_until_every_live_replica_begins_there(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await leading_three(site)
    hand = site.delete_records((T0, 6))
    await write_log_starts(site)
    site.follow(2, 10, log_start=6)
    site.follow(3, 10, log_start=5)
    assert not hand.is_answered
    site.follow(3, 10, log_start=8)
    assert hand.deleted == [(0, 6)]


async def test_a_replica_that_dies_is_waited_for_until_nobody_can_elect_it_any_more(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await leading_three(site)
    hand = site.delete_records((T0, 6), timeout_ms=60_000)
    site.follow(2, 10, log_start=6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        nursery.start_soon(site.data.log_starts.run)
        await trio.sleep(1)
        assert not hand.is_answered
        site.update_metadata(alive=(1, 2))
        await trio.sleep(1)
        assert not hand.is_answered, "it is in the in-sync set, so it may return and lead"
        await site.lead(epoch=1, isr=(1, 2))
        site.follow(2, 10, last_epoch=0, log_start=6)
        await trio.sleep(1)
        nursery.cancel_scope.cancel()
    assert hand.deleted == [(0, 6)]


async def test_a_dead_replica_that_is_eligible_to_lead_is_waited_for(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    """It would lead with a log that begins lower, and what was answered would be undone."""
    await leading_three(site)
    leadership = site.partition().leadership
    assert leadership is not None
    leadership.commit((1,), (3,), leadership.zk_version + 1)
    site.update_metadata(alive=(1, 2))
    hand = site.delete_records((T0, 6), timeout_ms=60_000)
    await write_log_starts(site)
    site.follow(2, 10, log_start=6)
    assert not hand.is_answered and site.partition().low_watermark < 6
    leadership.commit((1,), (), leadership.zk_version + 1)
    assert site.partition().low_watermark == 6


async def test_a_replica_that_has_not_fetched_yet_is_waited_for(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await leading_three(site)
    await site.lead(epoch=1)  # nothing is known of followers in a new epoch
    for follower in (2, 3):
        site.follow(follower, 10, last_epoch=0)
    hand = site.delete_records((T0, 3))
    await write_log_starts(site)
    assert not hand.is_answered
    for follower in (2, 3):
        site.follow(follower, 10, last_epoch=0, log_start=3)
    assert hand.deleted == [(0, 3)]


async def test_after_its_timeout_it_says_how_far_the_replicas_are(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await leading_three(site)
    hand = site.delete_records((T0, 6), timeout_ms=500)
    site.follow(2, 10, log_start=6)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert hand.deleted == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
    assert site.partition().log.log_start_offset == 6, "deletion goes on all the same"
    site.follow(3, 10, log_start=6)
    assert len(hand.answers) == 1


async def test_who_gives_no_time_hears_of_what_the_leader_has_on_its_disk_in_a_moment(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    site.produce((T0, batch(10)), acks=1)
    hand = site.delete_records((T0, 6), timeout_ms=0)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        await trio.sleep(0.5)
        nursery.start_soon(site.data.log_starts.run)
        await trio.sleep(2)
        nursery.cancel_scope.cancel()
    assert hand.deleted == [(0, 6)]


async def test_who_waits_for_a_leader_that_resigns_is_told(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await leading_three(site)
    hand = site.delete_records((T0, 6))
    await site.follow_leader(epoch=1)
    assert hand.deleted == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


async def test_who_waits_for_a_disk_that_fails_is_told(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await leading_three(site)
    hand = site.delete_records((T0, 6))
    site.replicas.partition_failed(site.partition(), OSError("broken"))
    assert hand.deleted == [(ErrorCode.KAFKA_STORAGE_ERROR, -1)]


async def test_a_parked_follower_is_told_the_new_log_start_at_once(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await leading_three(site)
    parked = site.follow(2, 10, log_start=0, wait_ms=60_000)
    consumer = site.fetch((T0, 10), wait_ms=60_000)
    assert not parked.is_answered
    site.delete_records((T0, 6))
    assert parked.fetched[0].log_start_offset == 6 and not consumer.is_answered


@pytest.mark.parametrize("offset", [11, -2, 2**63 - 1])
async def test_nothing_above_the_high_watermark_is_deleted(
    site: ReplicaSite, offset: int, autojump_clock: MockClock
) -> None:
    await leading_three(site)
    site.produce((T0, batch(5)))
    assert site.delete_records((T0, offset)).deleted == [(ErrorCode.OFFSET_OUT_OF_RANGE, -1)]
    assert site.partition().log.log_start_offset == 0


async def test_an_offset_below_the_log_start_changes_nothing(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await leading_alone(site)
    await deleted(site, (T0, 7))
    assert site.delete_records((T0, 3)).deleted == [(0, 7)]
    assert site.partition().log.log_start_offset == 7


async def test_each_partition_has_an_outcome_of_its_own(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await leading_alone(site)
    await leading_alone(site, tp=T1)
    parts = (T0, 3), (TopicPartition("nowhere", 0), 1), (TopicPartition("__consumer_offsets", 0), 0), (T1, 99)
    assert await deleted(site, *parts) == [
        (0, 3),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        (ErrorCode.INVALID_TOPIC_EXCEPTION, -1),
        (ErrorCode.OFFSET_OUT_OF_RANGE, -1),
    ]
    assert await deleted(site, (T1, 4)) == [(0, 4)]
    hand = Hand(DeleteRecordsRequest([DeleteRecordsTopic("t", [])]))
    site.burst(hand)
    assert hand.answer.topics[0].partitions == []


async def test_a_topic_that_is_only_compacted_keeps_its_records(autojump_clock: MockClock) -> None:
    for policy, code in (("compact", ErrorCode.POLICY_VIOLATION), ("compact,delete", 0)):
        site = ReplicaSite(topic={"cleanup.policy": policy})
        await leading_alone(site)
        ((answered, _),) = await deleted(site, (T0, 3))
        assert answered == code


async def test_a_follower_deletes_nothing_by_order_of_a_client(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.follow_leader()
    assert site.delete_records((T0, 0)).deleted == [(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)]


# --- what is on the disk ----------------------------------------------------------------------------------------------

CHECKPOINT = "log-start-offset-checkpoint"


async def test_nothing_is_acknowledged_before_it_is_on_the_disk_for_good(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await leading_alone(site)
    hand = site.delete_records((T0, 7))
    assert not hand.is_answered and read(site, 7), "in memory it has happened at once"
    await write_log_starts(site)
    assert hand.deleted == [(0, 7)]
    site.disk.crash()
    assert b"t 0 7\n" in site.disk.read(f"/logs/{CHECKPOINT}")


async def test_a_log_start_that_is_on_the_disk_is_not_written_again(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await leading_alone(site)
    await deleted(site, (T0, 7))
    site.disk.fail("open", f"*/{CHECKPOINT}*", errno.EIO)
    for offset in (7, 3):
        assert await deleted(site, (T0, offset)) == [(0, 7)]


async def test_one_write_for_all_partitions_that_came_meanwhile() -> None:
    site = ReplicaSite()
    partitions = [TopicPartition("t", index) for index in range(50)]
    for tp in partitions:
        await leading_alone(site, tp=tp)
    written: list[str] = []
    site.disk.on_operation = lambda name, path: (
        written.append(path)
        if (name, CHECKPOINT in path)
        == (
            "rename",
            True,
        )
        else None
    )
    assert await deleted(site, *((tp, 7) for tp in partitions)) == [(0, 7)] * 50
    assert len(written) == 1


@pytest.mark.parametrize("hangs", [True, False], ids=["hangs", "has-no-descriptor"])
async def test_a_disk_that_takes_nothing_times_the_request_out_and_holds_up_nobody_else(
    hangs: bool, autojump_clock: MockClock
) -> None:
    site = ReplicaSite(config={"log.dirs": "/logs,/more"}, topic={"min.insync.replicas": "1"})
    for tp in (T0, T1):
        await leading_alone(site, tp=tp)
    if hangs:
        site.hang_disk("/logs")
    else:
        fault = site.disk.fail("open", f"/logs/{CHECKPOINT}*", errno.EMFILE, times=3)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        nursery.start_soon(site.data.log_starts.run)
        hand = site.delete_records((T0, 7), timeout_ms=1000)
        other = site.delete_records((T1, 7), timeout_ms=1000)
        await trio.sleep(0.5)
        assert other.deleted == [(0, 7)] and not hand.is_answered
        assert site.produce((T0, batch())).outcomes[0].error_code == 0 and read(site, 10) == [10]
        await trio.sleep(1)
        assert hand.deleted == [(ErrorCode.REQUEST_TIMED_OUT, 0)]
        if not hangs:
            again = site.delete_records((T0, 7), timeout_ms=10_000)
            await trio.sleep(5)
            assert fault.hits == 3 and again.deleted == [(0, 7)], "it is tried again"
        nursery.cancel_scope.cancel()


async def test_a_follower_tells_its_leader_what_is_on_its_disk(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.follow_leader()
    partition.append_fetched(memoryview(raw(leaders_log(5, 4))), 20)
    partition.learn_log_start(7)
    site.data.log_starts.add(partition)

    def told() -> int:
        request, _ = build_fetch([partition], site.config, 1, 1, 500)
        return request.topics[0].partitions[0].log_start_offset

    assert (partition.log.log_start_offset, told()) == (7, 0)
    await write_log_starts(site)
    assert told() == 7
    with pytest.raises(CheckpointFirst):
        partition.restart_at(3)
    site.logs.checkpoints.write_cuts("/logs")
    assert told() == 3, "what is about to begin anew lower is told as it stands on the disk"


# --- the follower's side ----------------------------------------------------------------------------------------------


def leaders_log(records_per_batch: int, batches: int) -> Log:
    log = StorageSite().log(segment_bytes=10**6)
    for _ in range(batches):
        log.append_as_leader(produced(records_per_batch), 0)
    return log


async def test_a_follower_takes_the_leaders_log_start_as_far_as_it_knows_records_committed(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    partition = await site.follow_leader()
    partition.append_fetched(memoryview(raw(leaders_log(5, 4))), 12)
    partition.learn_log_start(7)
    assert partition.log.log_start_offset == 7
    partition.learn_log_start(15)
    assert (partition.log.log_start_offset, partition.high_watermark) == (12, 12)
    partition.learn_log_start(3)
    assert partition.log.log_start_offset == 12


async def test_an_empty_follower_begins_with_the_batch_that_holds_the_leaders_log_start(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    leader = leaders_log(5, 4)
    partition = await site.follow_leader()
    partition.restart_at(12)  # the leader's log start, in the middle of the batch 10..14
    records = memoryview(raw(leader, start=12))
    with pytest.raises(CheckpointFirst):
        partition.append_fetched(records, 20)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (12, 12)
    site.logs.checkpoints.write_cuts("/logs")
    partition.append_fetched(records, 20)
    partition.learn_log_start(12)
    log = partition.log
    assert (log.log_start_offset, partition.high_watermark, log.log_end_offset) == (12, 20, 20)
    assert raw(log) == raw(leader, start=12)


async def test_a_follower_with_records_takes_no_batch_that_begins_before_its_end(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    leader = leaders_log(5, 4)
    partition = await site.follow_leader()
    partition.append_fetched(memoryview(raw(leader, end=10)), 0)
    with pytest.raises(Exception, match="offset"):
        partition.append_fetched(memoryview(raw(leader, start=7)), 0)
    assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 10)
