"""A replica whose log has another topic id than its topic: it is kept aside, and does not pass for one in sync."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import LeaderAndIsrResponse
from support.replica_site import T0, T1, ReplicaSite, batch

NEW_ID = bytes(reversed(range(16)))
STRAY = "log of another topic id put aside"


def codes(response: LeaderAndIsrResponse) -> list[int]:
    return [error.error_code for error in response.partition_errors]


def strays(site: ReplicaSite) -> list[str]:
    return [name for name in site.disk.listdir("/logs") if name.endswith("-stray")]


@pytest.fixture
async def stray(site: ReplicaSite, autojump_clock: MockClock) -> ReplicaSite:
    """Restarted, with five records in a log whose id is another one."""
    site.logs.mark_loss_handled()
    await site.lead(replicas=(1,), isr=(1,))
    site.produce((T0, batch(5)))
    site.disk.kill()
    return ReplicaSite(disk=site.disk)


async def test_out_of_sync_it_begins_anew_fetches_and_keeps_the_folder(
    stray: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = stray
    assert codes(await site.order(site.state(leader=2, epoch=7, isr=(2, 3)), topic_id=NEW_ID)) == [0]
    assert (site.partition().log.log_end_offset, site.partition().topic_id) == (0, NEW_ID)
    assert len(site.followers._fetchers) == 1
    (entry,) = [entry for entry in site.events.entries if entry["event"] == STRAY]
    (kept,) = strays(site)
    assert (
        entry["log_level"] == "error" and f"/logs/{kept}" in entry["why"] and "/logs/t-0 has topic id" in entry["why"]
    )
    assert not site.logs.removals.due(0) and not site.logs.removals.due(10**15)
    assert site.disk.exists(f"/logs/{kept}/{0:020d}.log")
    site.disk.kill()
    assert not ReplicaSite(disk=site.disk).logs.may_have_lost_data


@pytest.mark.parametrize("leader", [1, 2])
async def test_in_sync_it_is_refused_so_that_leadership_moves_and_the_next_life_leaves_the_in_sync_sets(
    stray: ReplicaSite, leader: int, autojump_clock: MockClock
) -> None:
    site = stray
    order = site.state(leader=leader, epoch=7)
    for _ in range(2):  # also when the controller says it again
        assert codes(await site.order(order, topic_id=NEW_ID)) == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert T0 not in site.replicas.partitions and T0 in site.logs.refused
    assert len(strays(site)) == 1 and site.event_names().count(STRAY) == 1
    assert codes(await site.order(site.state(T1), topic_id=NEW_ID)) == [0], "all others serve"
    site.logs.close(clean=True)
    assert ReplicaSite(disk=site.disk).logs.may_have_lost_data


async def test_once_it_has_left_the_in_sync_set_it_begins_anew(stray: ReplicaSite, autojump_clock: MockClock) -> None:
    site = stray
    assert codes(await site.order(site.state(epoch=7), topic_id=NEW_ID)) == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert codes(await site.order(site.state(leader=2, epoch=8, isr=(2, 3)), topic_id=NEW_ID)) == [0]
    assert site.partition().log.log_end_offset == 0 and not site.logs.refused and len(strays(site)) == 1


async def test_a_new_partition_begins_anew_though_it_is_in_sync(stray: ReplicaSite, autojump_clock: MockClock) -> None:
    site = stray
    assert codes(await site.order(site.state(is_new=True), topic_id=NEW_ID)) == [0]
    assert site.partition().leadership is not None and site.partition().log.log_end_offset == 0
    assert len(strays(site)) == 1
    site.disk.kill()
    assert not ReplicaSite(disk=site.disk).logs.may_have_lost_data


async def test_a_log_that_lies_in_two_directories_is_refused_and_all_others_serve(
    two_disks: ReplicaSite, autojump_clock: MockClock
) -> None:
    site = two_disks
    await site.order(site.state(T0), site.state(T1))
    site.logs.close(clean=True)
    site.disk.makedirs("/more/t-0")
    site = ReplicaSite(disk=site.disk, config={"log.dirs": "/logs,/more"})
    response = await site.order(site.state(T0, epoch=1), site.state(T1, epoch=1))
    assert codes(response) == [ErrorCode.KAFKA_STORAGE_ERROR, 0]
    assert list(site.replicas.partitions) == [T1]
