"""LeaderAndIsr and StopReplica in any order, log failures, checkpoints: what happens to all replicas of a broker."""

from __future__ import annotations

import errno

import msgspec
import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from strandline.broker.replication.isr_checks import run_isr_checks
from strandline.broker.replication.isr_updates import IsrOutcome, apply_outcome
from strandline.broker.replication.partition import Partition
from strandline.protocol.errors import ErrorCode
from strandline.protocol.history.lines import Kind
from strandline.protocol.messages import LEADER_EPOCH_TOPIC_DELETED, UpdateMetadataPartitionState
from strandline.protocol.reasons import MAX_REASON_CHARS
from strandline.protocol.types import NO_TOPIC_ID, TopicPartition
from strandline.protocol.znodes import encode_uuid
from strandline.storage.disk.checkpoints import read_offsets
from support.change_lines import read_entries
from support.replica_site import T0, T1, TOPIC_ID, ReplicaSite, batch

NEW_ID = b"\x07" * 16


def codes(response) -> list[int]:
    return [error.error_code for error in response.partition_errors]


# --- LeaderAndIsr ----------------------------------------------------------------------------------------------


async def test_an_order_of_a_past_controller_is_refused_whole(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(epoch=1, controller_epoch=5)
    await site.order(site.state(epoch=1), controller_epoch=5)
    response = await site.order(site.state(T0, leader=2, epoch=9), site.state(T1), controller_epoch=4)
    assert (response.error_code, response.partition_errors) == (ErrorCode.STALE_CONTROLLER_EPOCH, [])
    assert site.partition().leadership is not None
    assert T1 not in site.replicas.partitions
    assert site.stop(controller_epoch=4).error_code == ErrorCode.STALE_CONTROLLER_EPOCH


async def test_each_partition_is_answered_for_itself_in_the_order_of_the_request(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(epoch=3)
    response = await site.order(site.state(T1), site.state(T0, leader=2, epoch=2))
    assert [(e.partition_index, e.error_code) for e in response.partition_errors] == [(1, 0), (0, 74)]
    assert site.partition(T0).leadership is not None and site.partition(T1).leadership is not None


async def test_the_same_order_again_changes_nothing(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.lead(epoch=3)
    site.produce((T0, batch()))
    leadership = partition.leadership
    assert codes(await site.order(site.state(epoch=3))) == [0]
    assert partition.leadership is leadership
    assert len(partition.waiters.waiting) == 1


async def test_a_broker_that_is_not_assigned_hosts_nothing(site: ReplicaSite, autojump_clock: MockClock) -> None:
    response = await site.order(site.state(leader=2, replicas=(2, 3), isr=(2, 3)))
    assert codes(response) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert not site.replicas.partitions and not site.logs.logs


async def test_another_topic_of_that_name_is_refused_until_the_metadata_have_it(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    """Of two ids none is the older one by itself: the order may be a late one of a topic that is gone."""
    await site.lead(epoch=7)
    waiting = site.produce((T0, batch()))
    assert codes(await site.order(site.state(epoch=9), topic_id=NEW_ID)) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert site.partition().topic_id == TOPIC_ID and not waiting.is_answered
    site.update_metadata(UpdateMetadataPartitionState(0, 1, 1, 0, [1], 0, [1]), topic_id=NEW_ID)
    assert codes(await site.order(site.state(epoch=0), topic_id=NEW_ID)) == [0]
    assert [outcome.error_code for outcome in waiting.outcomes] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert (site.partition().topic_id, site.partition().log.log_end_offset) == (NEW_ID, 0)
    assert codes(await site.order(site.state(epoch=9))) == [ErrorCode.INCONSISTENT_TOPIC_ID], "the old one, late"
    assert site.partition().topic_id == NEW_ID


async def test_an_order_without_a_topic_id_neither_replaces_a_log_nor_names_it(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    """Another tool wrote the topic's znode without its id."""
    await site.lead(epoch=0)
    site.produce((T0, batch()), acks=1)
    assert codes(await site.order(site.state(epoch=1), topic_id=NO_TOPIC_ID)) == [0]
    site.stop(epoch=1)
    assert codes(await site.order(site.state(epoch=2), topic_id=NO_TOPIC_ID)) == [0]
    assert (site.partition().log.topic_id, site.partition().log.log_end_offset) == (TOPIC_ID, 1)
    assert codes(await site.order(site.state(epoch=3))) == [0]
    assert site.partition().log.log_end_offset == 1


async def test_following_starts_a_fetcher_and_leading_ends_it(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.follow_leader(leader=2)
    (fetcher,) = site.followers._fetchers.values()
    assert list(fetcher.partitions) == [partition]
    await site.follow_leader(leader=3, epoch=1)
    assert [key.leader_id for key in site.followers._fetchers] == [3]
    await site.lead(epoch=2)
    assert not site.followers._fetchers


async def test_a_partition_without_a_leader_is_followed_from_nobody(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.follow_leader(leader=-1)
    assert not site.followers._fetchers


async def test_who_is_to_lead_waits_for_no_disk(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(epoch=4)
    site.hang_disk("/logs")
    site.disk.on_operation = lambda operation, path: pytest.fail(f"{operation} of {path} comes before it leads")
    assert codes(await site.order(site.state(T0, epoch=6))) == [0]
    assert site.partition(T0).log.epochs.entries == ((6, 0),)


async def test_of_many_role_changes_one_line_tells_who_is_led_here(
    site: ReplicaSite, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr("strandline.broker.replication.role_changes.DETAILED_CHANGES", 1)
    await site.order(site.state(T0), site.state(T1, leader=2))
    told = {entry["event"]: entry for entry in site.events.entries}
    assert (told["roles changed"]["leaders"], told["roles changed"]["followers"]) == (1, 1)
    assert told["became leaders"]["leading"] == {T0.topic: [f"{T0.partition} 0"]}
    assert "became leader" not in told and "became follower" not in told
    await site.order(site.state(T0, epoch=1))
    assert site.events.entries[-1]["log_level"] == "info" and site.events.entries[-1]["event"] == "became leader"


async def test_what_replicas_log_of_their_roles_can_be_read_again(
    site: ReplicaSite, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    await site.order(site.state(T0, epoch=2), site.state(T1, leader=2))
    monkeypatch.setattr("strandline.broker.replication.role_changes.DETAILED_CHANGES", 0)
    await site.order(site.state(T0, epoch=3))
    site.replicas.partition_failed(site.partition(T0), OSError("gone"))
    site.replicas.contact_lost(2, OSError("reset"))
    read = [event for line in read_entries(site.events.entries) for event in line.events]
    assert [(event.kind, event.topic_id, event.partition, event.leader, event.leader_epoch) for event in read] == [
        (Kind.LEADS, encode_uuid(TOPIC_ID), T0.partition, 1, 2),
        (Kind.TOLD, encode_uuid(TOPIC_ID), T1.partition, 2, 0),
        (Kind.LEADS, encode_uuid(TOPIC_ID), T0.partition, 1, 3),
        (Kind.FAILED, encode_uuid(TOPIC_ID), T0.partition, -1, -1),
        (Kind.LOST, "", -1, -1, -1),
    ]
    assert read[0].isr and read[0].replicas and read[0].min_isr and read[0].zk_version >= 0 and read[-1].peer == 2


async def test_a_newer_controller_that_speaks_in_the_middle_leaves_what_was_applied_in_working_order(
    site: ReplicaSite, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    monkeypatch.setattr("strandline.broker.replication.role_changes.PARTITIONS_PER_STEP", 1)

    async def newer_controller() -> None:
        site.replicas.controller_epoch = 2

    async with trio.open_nursery() as nursery:
        nursery.start_soon(newer_controller)
        response = await site.order(site.state(T0, leader=2), site.state(T1, leader=2))
    assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
    await site.order(site.state(T0, leader=2), site.state(T1, leader=2), controller_epoch=2)
    (fetcher,) = site.followers._fetchers.values()
    assert list(fetcher.partitions) == [site.partition(T0), site.partition(T1)]


# --- epochs that began anew ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("leader", "helps"),
    [
        (1, "set leader_epoch in the partition's state znode to 5"),
        (-1, "set leader_epoch in the partition's state znode to 5"),
        (
            2,
            "to go on with what broker 2 has, stop this broker and move the folder out of log.dirs; to go on with this",
        ),
    ],
)
async def test_a_log_with_a_later_epoch_than_its_partition_is_left_alone_until_a_late_enough_one_comes(
    leader: int, helps: str, site: ReplicaSite, autojump_clock: MockClock
) -> None:
    """Somebody deleted the partition's state, or ZooKeeper is an old copy."""
    assert codes(await site.order(site.state(epoch=5), topic_id=NO_TOPIC_ID)) == [0]
    site.produce((T0, batch()), acks=1)
    site.stop(epoch=5, topic_id=NO_TOPIC_ID)
    for epoch in (0, 4):
        (answer,) = (await site.order(site.state(T0, leader=leader, epoch=epoch))).partition_errors
        assert (answer.error_code, answer.log_epoch) == (ErrorCode.KAFKA_STORAGE_ERROR, 5)
        assert f"t-0 has records of leader epoch 5, and its partition is at {epoch}: " in str(answer.error_message)
        assert helps in str(answer.error_message) and len(str(answer.error_message)) < MAX_REASON_CHARS
        assert T0 not in site.replicas.partitions and not site.followers._fetchers
        assert site.logs.logs[T0].topic_id is None, "it is not said to be this topic's"
    assert codes(await site.order(site.state(T0, leader=leader, epoch=5))) == [0]
    assert site.partition().log.log_end_offset == 1


# --- half of an order ------------------------------------------------------------------------------------------


async def test_an_order_that_no_descriptor_was_left_for_is_carried_out_when_it_comes_again(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    fault = site.disk.fail("open", "/logs/t-0/*", errno.EMFILE)
    assert codes(await site.order(site.state(T0), site.state(T1))) == [ErrorCode.BROKER_NOT_AVAILABLE, 0]
    fault.cancel()
    assert codes(await site.order(site.state(T0), site.state(T1))) == [0, 0]
    assert site.partition(T0).leadership is not None


async def test_a_disk_that_refuses_a_new_log_takes_its_directory_offline_and_no_other(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = two_disks
    fault = site.disk.fail("makedirs", "/logs/t-0", errno.EROFS)
    for _ in range(2):
        assert codes(await site.order(site.state(T0), site.state(T1))) == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert fault.hits == 1 and site.logs.directories.offline_paths == ["/logs"]


async def test_only_a_new_partition_gets_a_log_while_a_directory_could_not_be_read(autojump_clock: MockClock) -> None:
    first = ReplicaSite(config={"log.dirs": "/logs,/more"})
    await first.order(first.state(T0), first.state(T1))
    first.disk.kill()
    fault = first.disk.fail("open", "/logs/.lock", errno.EIO)
    site = ReplicaSite(config={"log.dirs": "/logs,/more"}, disk=first.disk)
    assert codes(await site.order(site.state(T0, epoch=1), site.state(T1, epoch=1))) == [56, 0]
    new = site.state(TopicPartition("t", 2))
    new = msgspec.structs.replace(new, is_new=True)
    assert codes(await site.order(new)) == [0]
    site.disk.kill()
    fault.cancel()
    again = ReplicaSite(config={"log.dirs": "/logs,/more"}, disk=first.disk)
    assert sorted(again.logs.logs) == [T0, T1, TopicPartition("t", 2)]


async def test_a_log_that_failed_before_it_was_hosted_is_not_led(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    site.stop()
    site.logs.logs[T0].fail("fsync failed", OSError(errno.EIO, "EIO"))
    assert codes(await site.order(site.state(epoch=1))) == [ErrorCode.KAFKA_STORAGE_ERROR]


# --- any order -------------------------------------------------------------------------------------------------


@given(
    orders=st.lists(
        st.tuples(st.integers(0, 6), st.sampled_from([1, 2, 3, -1]), st.integers(1, 3)), min_size=1, max_size=8
    ),
    data=st.data(),
)
@settings(max_examples=60)
def test_lost_doubled_and_reordered_orders_end_at_the_highest_epoch(
    orders: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    """One order per leader epoch, and newer epochs come from newer controllers, as ZooKeeper makes sure."""
    truth: dict[int, tuple[int, int]] = {}
    controller_epoch = 1
    for epoch, (_, leader, step) in enumerate(orders):
        controller_epoch += step - 1
        truth[epoch] = (leader, controller_epoch)
    arriving = data.draw(st.lists(st.sampled_from(sorted(truth)), min_size=1, max_size=12))

    async def run() -> None:
        site = ReplicaSite()
        accepted: int | None = None
        newest_controller = 0
        for epoch in arriving:
            leader, sender = truth[epoch]
            response = await site.order(site.state(leader=leader, epoch=epoch), controller_epoch=sender)
            if sender < newest_controller:
                assert response.error_code == ErrorCode.STALE_CONTROLLER_EPOCH
            else:
                newest_controller = sender
                assert codes(response) == [74 if accepted is not None and epoch < accepted else 0]
                accepted = max(epoch, accepted if accepted is not None else epoch)
            partition = site.partition()
            assert accepted is not None
            assert partition.leader_epoch == accepted
            assert partition.leader_id == truth[accepted][0]
            assert (partition.leadership is not None) == (truth[accepted][0] == 1)
            followed = [key.leader_id for key in site.followers._fetchers]
            assert followed == ([] if truth[accepted][0] in (1, -1) else [truth[accepted][0]])
        assert accepted == max(arriving), "a newer epoch is never refused"

    trio.run(run)


# --- StopReplica -----------------------------------------------------------------------------------------------


async def test_a_stopped_replica_keeps_its_log_and_its_high_watermark(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    site.produce((T0, batch(3)))
    assert codes(site.stop()) == [0]
    assert T0 not in site.replicas.partitions and site.logs.get(T0) is not None
    assert site.data.checkpoints.high_watermarks()[T0] == 3
    assert (await site.follow_leader(epoch=1)).high_watermark == 3


async def test_a_deleted_replica_loses_its_log_and_the_files_go_off_the_loop(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead()
    assert codes(site.stop(delete=True, epoch=LEADER_EPOCH_TOPIC_DELETED)) == [0]
    assert site.logs.get(T0) is None
    (doomed,) = [name for name in site.disk.listdir("/logs") if name.endswith("-delete")]
    site.logs.remove(site.logs.removals.due(0))
    assert site.disk.exists(f"/logs/{doomed}"), "it waits for file.delete.delay.ms"
    site.logs.remove(site.logs.removals.due(60_000))
    assert not site.disk.exists(f"/logs/{doomed}")
    assert T0 not in site.data.checkpoints.high_watermarks()


async def test_an_older_epoch_stops_nothing_and_a_gone_topic_stops_any_epoch(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(epoch=5)
    assert codes(site.stop(epoch=4, delete=True)) == [ErrorCode.FENCED_LEADER_EPOCH]
    assert site.partition().leadership is not None
    assert codes(site.stop(epoch=LEADER_EPOCH_TOPIC_DELETED, delete=True)) == [0]


@pytest.mark.parametrize("hosted", [True, False], ids=["hosted", "on disk only"])
async def test_a_late_deletion_does_not_touch_the_topic_that_was_created_anew(
    hosted: bool, site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.order(site.state(replicas=(1,), isr=(1,)), topic_id=NEW_ID)
    site.produce((T0, batch(2)))
    if not hosted:
        site.stop(topic_id=NEW_ID)
    response = site.stop(epoch=LEADER_EPOCH_TOPIC_DELETED, delete=True, topic_id=TOPIC_ID)
    assert codes(response) == [ErrorCode.INCONSISTENT_TOPIC_ID]
    assert site.logs.logs[T0].log_end_offset == 2


async def test_a_deletion_that_comes_again_succeeds(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    for _ in range(2):
        assert codes(site.stop(epoch=LEADER_EPOCH_TOPIC_DELETED, delete=True)) == [0]


async def test_a_topic_created_anew_starts_with_an_empty_log(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    site.produce((T0, batch(5)))
    site.stop()
    response = await site.order(site.state(epoch=0, is_new=True), topic_id=NEW_ID)
    assert codes(response) == [0]
    partition = site.partition()
    assert (partition.log.log_end_offset, partition.high_watermark, partition.topic_id) == (0, 0, NEW_ID)


async def test_a_folder_that_cannot_be_removed_fails_its_directory_and_no_other(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = two_disks
    await site.order(site.state(T0), site.state(T1))
    site.disk.fail("rename", "/logs/t-0", errno.EIO)
    assert codes(site.stop(T0, delete=True)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert codes(site.stop(T1, delete=True)) == [0]


# --- failures --------------------------------------------------------------------------------------------------


async def test_a_log_failure_takes_that_replica_offline_and_none_of_another_directory(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = two_disks
    await site.order(site.state(T0), site.state(T1))
    waiting = site.produce((T0, batch()))
    parked = site.fetch((T0, 0), wait_ms=500)
    site.disk.fail("pwritev", "/logs/t-0/*", errno.EIO)
    site.produce((T0, batch()), acks=1)
    assert waiting.outcomes[0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert parked.fetched[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert codes(await site.order(site.state(T0, epoch=1), site.state(T1, epoch=1))) == [56, 0]
    assert site.partition(T1).leadership is not None
    assert "replica failed" in site.event_names()


async def test_a_failed_follower_is_not_fetched_for_any_more(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.follow_leader()
    site.replicas.partition_failed(partition, OSError(errno.EIO, "EIO"))
    assert not site.followers._fetchers
    assert codes(await site.order(site.state(leader=3, epoch=1))) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert not site.followers._fetchers


async def test_a_disk_error_of_a_replica_that_was_deleted_meanwhile_is_nobodys(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    deleted = await site.lead()
    site.stop(delete=True, epoch=1)
    heard: list[Partition] = []
    site.replicas.on_role_change(heard.append)
    site.replicas.partition_failed(deleted, deleted.log.failure or OSError(errno.EIO, "EIO"))
    assert not heard and not deleted.failed and "replica failed" not in site.event_names()


# --- background ------------------------------------------------------------------------------------------------


async def test_followers_that_lag_are_found_by_the_periodic_check(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.lead()
    site.produce((T0, batch()), acks=1)
    with trio.move_on_after(29):
        await run_isr_checks(site.replicas, site.data.burst)
    assert not partition.leadership.proposal
    with trio.move_on_after(31):
        await run_isr_checks(site.replicas, site.data.burst)
    assert partition.leadership.proposal.isr == (1,)
    assert list(site.isr_updates._pending) == [partition]


async def test_an_isr_outcome_of_a_role_that_is_over_is_ignored(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.lead(isr=(1, 2))
    site.follow(3, 0)
    proposal = partition.leadership.proposal
    await site.lead(epoch=1, isr=(1, 2), zk_version=8)
    apply_outcome(site.data.burst, partition, proposal, IsrOutcome((1, 2, 3), 1))
    assert (partition.leadership.isr, partition.leadership.zk_version) == ((1, 2), 8)


async def test_a_commit_of_the_isr_serves_the_consumers_that_wait_for_it(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(isr=(1,))
    site.produce((T0, batch()), acks=1)
    hand = site.fetch((T0, 0), wait_ms=500)
    site.follow(2, 1)
    assert not hand.is_answered
    flushes = site.flushes
    site.end_proposal((1, 2))
    assert hand.sent and site.flushes > flushes


async def test_high_watermarks_are_checkpointed_and_found_again(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    site.produce((T0, batch(3)))
    with trio.move_on_after(6):
        await site.data.checkpoints.run_high_watermarks()
    site.disk.kill()
    again = ReplicaSite(disk=site.disk)
    assert again.logs.high_watermarks == {TopicPartition("t", 0): 3}


async def test_a_checkpoint_under_way_says_nothing_of_a_replica_that_was_created_anew(
    site: ReplicaSite, autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.lead(replicas=(1,), isr=(1,))
    site.produce((T0, batch(3)))
    write = site.logs.checkpoints.write_high_watermarks

    def write_late(*args: object) -> None:
        log = site.logs.logs[T0]
        site.logs.delete(T0)
        site.logs.create(T0, b"z" * 16, log.config)
        write(*args)

    monkeypatch.setattr(site.logs.checkpoints, "write_high_watermarks", write_late)
    with trio.move_on_after(6):
        await site.data.checkpoints.run_high_watermarks()
    assert read_offsets(site.disk, "/logs/replication-offset-checkpoint") == {}


async def test_a_checkpoint_that_fails_takes_its_directory_offline_and_the_others_get_theirs(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = two_disks
    alone = {"replicas": (1,), "isr": (1,)}
    await site.order(site.state(T0, **alone), site.state(T1, **alone))
    fault = site.disk.fail("rename", "/logs/replication-offset-checkpoint*", errno.EROFS)
    site.produce((T0, batch(3)), (T1, batch(3)), acks=1)
    with trio.move_on_after(16):
        await site.data.checkpoints.run_high_watermarks()
    assert fault.hits == 1
    assert site.logs.directories.offline_paths == ["/logs"]
    assert site.disk.read("/more/replication-offset-checkpoint").startswith(b"0\n1\nt 1 ")
