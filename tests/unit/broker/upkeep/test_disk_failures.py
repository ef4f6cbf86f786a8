"""A log directory that goes offline: its replicas are given up, the others serve, the last one ends the broker."""

from __future__ import annotations

import errno
import json

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.upkeep.disk_failures import DiskFailures
from strandline.protocol.errors import ErrorCode
from strandline.protocol.types import TopicPartition
from strandline.storage.errors import LogStorageError, NoLogDirLeft
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.environment import EPOCH_MS
from strandline.testkit.zookeeper.server import MemoryZooKeeper
from support.replica_site import BROKER, T0, T1, ReplicaSite, batch
from support.scripted_brokers import create_persistent_paths

TWO = {"log.dirs": "/logs,/more"}
T2 = TopicPartition("t", 2)


async def watch(site: ReplicaSite, seconds: float = 1) -> None:
    with trio.move_on_after(seconds):
        await DiskFailures(site.logs, site.replicas, site.data.burst, site.environment.blocking, site.log).run()


async def test_all_replicas_of_the_directory_are_given_up_and_who_waits_is_told(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = two_disks
    await site.order(site.state(T0), site.state(T1), site.state(T2))
    waiting, elsewhere = site.produce((T2, batch())), site.produce((T1, batch()))
    parked = site.fetch((T2, 0), wait_ms=60_000)
    site.disk.fail("pwritev", "/logs/t-0/*", errno.EIO)
    site.produce((T0, batch()), acks=1)
    assert not waiting.is_answered
    await watch(site)
    assert waiting.outcomes[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert parked.fetched[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert site.partition(T2).failed and site.partition(T2).leadership is None
    assert not elsewhere.is_answered and site.partition(T1).leadership is not None
    assert "log directory offline" in site.event_names()


async def test_who_is_told_its_role_again_before_that_answers_with_the_disks_error(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = two_disks
    await site.order(site.state(T0), site.state(T1), site.state(T2))
    site.disk.fail("pwritev", "/logs/t-0/*", errno.EIO)
    site.produce((T0, batch()), acks=1)
    response = await site.order(site.state(T0), site.state(T1), site.state(T2))
    assert [error.error_code for error in response.partition_errors] == [56, 0, 56]


async def test_a_failed_directory_is_announced_to_the_controller_once_and_as_kafka_does(
    autojump_clock: MockClock, nursery: trio.Nursery
) -> None:
    zookeeper = MemoryZooKeeper(latency_s=0.01)
    client = zookeeper.client()
    await client.start()
    await create_persistent_paths(client)
    site = ReplicaSite(config=TWO, coordination=client)
    nursery.start_soon(site.isr_updates.run)
    await site.order(site.state(T0), site.state(T1), site.state(T2))
    site.disk.fail("pwritev", "/logs/t-0/*", errno.EIO)
    site.produce((T0, batch()), acks=1)
    await watch(site)
    (name,) = await client.children("/log_dir_event_notification")
    assert name == "log_dir_event_0000000000"
    znode = json.loads((await client.get(f"/log_dir_event_notification/{name}")).data)
    assert znode == {"version": 1, "broker": BROKER, "event": 1}, "two replicas lay there, the controller hears once"


async def test_a_directory_that_failed_in_a_checkpoint_is_given_up_too(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = two_disks
    await site.order(site.state(T0), site.state(T1))
    site.disk.fail("open", "/logs/replication-offset-checkpoint*", errno.EROFS)
    site.logs.checkpoints.write_high_watermarks({})
    await watch(site)
    assert site.partition(T0).failed and not site.partition(T1).failed


async def test_the_last_directory_ends_the_broker(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    site.disk.fail("pwritev", "/logs/t-0/*", errno.EIO)
    site.produce((T0, batch()), acks=1)
    with pytest.RaisesGroup(NoLogDirLeft):
        await watch(site)
    assert site.partition(T0).leadership is None


@pytest.mark.parametrize(
    ("operation", "number", "is_lossy"), [("fsync", errno.EIO, True), ("pwritev", errno.ENOSPC, False)]
)
async def test_the_next_start_counts_as_lossy_if_what_was_written_may_be_lost(
    two_disks: ReplicaSite, autojump_clock: MockClock, operation: str, number: int, is_lossy: bool
) -> None:
    site = two_disks
    site.logs.mark_loss_handled()
    await site.order(site.state(T0))
    site.produce((T0, batch()), acks=1)
    site.disk.fail(operation, "/logs/t-0/*.log", number, times=1)
    if operation == "fsync":
        with pytest.raises(LogStorageError):
            site.partition(T0).log.flush_plan()()
    else:
        site.produce((T0, batch()), acks=1)
    await watch(site)
    site.disk.kill()
    assert ReplicaSite(config=TWO, disk=site.disk).logs.may_have_lost_data is is_lossy


async def test_without_any_descriptor_left_requests_fail_and_no_replica_does(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    site.produce((T0, batch()))
    site.partition(T0).log.segments.active.file.evict()
    fault = site.disk.fail("open", "*", errno.EMFILE)
    assert site.produce((T0, batch())).outcomes[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert site.fetch((T0, 0)).fetched[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    await watch(site)
    fault.cancel()
    assert not site.partition(T0).failed
    assert site.produce((T0, batch())).outcomes[0].error_code == 0


# --- a disk that does not answer -----------------------------------------------------------------------------------


async def test_a_disk_that_does_not_answer_holds_up_its_own_logs_only(autojump_clock: MockClock) -> None:
    site = ReplicaSite(config=TWO, topic={"flush.messages": "1", "min.insync.replicas": "1"})
    site.hang_disk("/logs")
    response = await site.order(site.state(T0), site.state(T1))
    assert [error.error_code for error in response.partition_errors] == [0, 0]
    site.produce((T0, batch()), (T1, batch()), acks=1)
    with trio.move_on_after(70):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(site.housekeeping().run)
            nursery.start_soon(site.data.checkpoints.run_high_watermarks)
    assert (site.partition(T0).log.recovery_point, site.partition(T1).log.recovery_point) == (0, 1)
    assert site.disk.read("/more/recovery-point-offset-checkpoint") == b"0\n1\nt 1 1\n"
    assert site.disk.exists("/more/replication-offset-checkpoint")


async def with_segments_of_an_earlier_life(settings: dict[str, str]) -> ReplicaSite:
    """This broker leads T0 and T1 alone; the times of their ten segments each it has to read from the disk."""

    async def begin(disk: MemoryDisk | None = None) -> ReplicaSite:
        topic = {"min.insync.replicas": "1", "segment.bytes": "100", **settings}
        site = ReplicaSite(config=TWO, topic=topic, disk=disk)
        await site.order(*(site.state(tp, replicas=(1,), isr=(1,)) for tp in (T0, T1)))
        return site

    earlier = await begin()
    for _ in range(10):
        earlier.produce((T0, batch(timestamp_ms=EPOCH_MS)), (T1, batch(timestamp_ms=EPOCH_MS)))
    earlier.logs.flush_all()  # nothing above a recovery point is compacted
    earlier.logs.checkpoints.write_recovery_points()
    earlier.disk.kill()
    return await begin(earlier.disk)


async def test_retention_goes_on_where_another_disk_does_not_answer(autojump_clock: MockClock) -> None:
    site = await with_segments_of_an_earlier_life({"retention.ms": "1000"})
    site.hang_disk("/logs")
    with trio.move_on_after(1000):
        await site.retention_checks().run()
    assert site.partition(T0).log.log_start_offset == 0 and site.partition(T1).log.log_start_offset == 10


async def test_compaction_goes_on_where_another_disk_does_not_answer(autojump_clock: MockClock) -> None:
    site = await with_segments_of_an_earlier_life(
        {"cleanup.policy": "compact", "min.compaction.lag.ms": "1000", "max.compaction.lag.ms": "100000"}
    )
    for tp in (T0, T1):
        site.partition(tp).learn_high_watermark(10)
    site.hang_disk("/logs")
    with trio.move_on_after(60):
        await site.cleaning().run()
    compacted = [site.partition(tp).log.segments.compacted_below for tp in (T0, T1)]
    assert compacted[0] == 0 and compacted[1] > 0
    assert site.event_names().count("nothing is compacted where the disk does not answer") == 1
