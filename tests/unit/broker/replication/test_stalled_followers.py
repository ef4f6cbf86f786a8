"""A damaged batch in the committed middle of a leader's log: found, not served any more, mended by the next start."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.errors import ErrorCode
from strandline.storage.log.leader_epochs import UNDEFINED_EPOCH
from strandline.storage.log.log_start import raise_log_start
from support.replica_site import BROKER, T0, ReplicaSite, batch
from support.storage_site import StorageSite

BATCH = 3
"""The one that is damaged, of ten; each has one record."""
FOLDER = f"/logs/{T0}"


@pytest.fixture
async def leading(site: ReplicaSite) -> ReplicaSite:
    """Leader of t-0 at epoch 2; all is committed and durable, and one batch is damaged below."""
    await site.lead(epoch=2)
    for _ in range(10):
        site.produce((T0, batch()), acks=1)
    site.follow(2, 10)
    site.follow(3, 10)
    partition = site.partition()
    assert partition.high_watermark == 10
    partition.log.flushed(partition.log.flush_plan()())
    site.logs.checkpoints.write_recovery_points()
    site.logs.checkpoints.write_high_watermarks({T0: 10})
    return site


def damage(site: ReplicaSite, byte: int) -> None:
    path = f"{FOLDER}/{0:020d}.log"
    data = bytearray(site.disk.read(path))
    data[len(data) // 10 * BATCH + byte] ^= 0x10
    file = site.disk.open(path)
    file.pwritev([data], 0)


async def ask(site: ReplicaSite, times: int, offset: int = BATCH) -> None:
    for _ in range(times):
        site.follow(2, offset)
        await site.run_submitted()


@pytest.mark.parametrize(("field", "byte"), [("payload", 70), ("crc", 18), ("length", 9), ("epoch", 14), ("magic", 16)])
async def test_what_a_follower_cannot_take_is_looked_at_and_not_served_any_more(
    leading: ReplicaSite, field: str, byte: int, autojump_clock: MockClock
) -> None:
    damage(leading, byte)
    partition = leading.partition()
    await ask(leading, 4)
    assert not partition.failed
    await ask(leading, 1)
    assert partition.failed and partition.leadership is None
    assert "is damaged at byte" in str(partition.log.failure)
    hand = leading.fetch((T0, BATCH))
    assert [data.error_code for data in hand.fetched] == [ErrorCode.KAFKA_STORAGE_ERROR]
    assert partition.log.recovery_point == BATCH


async def test_the_next_start_cuts_it_there_and_counts_as_one_that_lost_data(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    damage(leading, 70)
    await ask(leading, 5)
    assert leading.partition().failed
    leading.logs.mark_loss_handled()
    leading.logs.close(clean=True)
    manager = StorageSite(disk=leading.disk, broker_id=BROKER).start()
    assert manager.logs[T0].log_end_offset == BATCH and manager.may_have_lost_data
    assert [name for name in leading.disk.listdir(FOLDER) if name.endswith(".damaged")]


async def test_a_follower_that_is_only_slow_costs_a_look_and_nothing_else(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    await ask(leading, 40)
    partition = leading.partition()
    assert not partition.failed and partition.log.failure is None and partition.leadership is not None
    assert partition.leadership.followers[2].stalled_fetches == 39
    await ask(leading, 1, offset=BATCH + 1)
    assert partition.leadership.followers[2].stalled_fetches == 0


async def test_a_log_that_begins_within_a_batch_is_sound(site: ReplicaSite, autojump_clock: MockClock) -> None:
    """Records of a batch were deleted. It stays whole, and the epochs of what lies below the log start are gone."""
    await site.lead(epoch=2)
    for count in (3, 1):
        site.produce((T0, batch(count)), acks=1)
    site.follow(2, 4)
    site.follow(3, 4)
    log = site.partition().log
    assert raise_log_start(log, 2, 4)
    assert log.epochs.epoch_at(0) == UNDEFINED_EPOCH
    await ask(site, 40, offset=2)
    assert not site.partition().failed


async def test_a_follower_at_the_end_of_the_log_is_never_suspicious(
    leading: ReplicaSite, autojump_clock: MockClock
) -> None:
    await ask(leading, 40, offset=10)
    assert leading.partition().leadership.followers[2].stalled_fetches == 0


async def test_a_look_takes_no_thread_of_another_disk(leading: ReplicaSite, autojump_clock: MockClock) -> None:
    leading.hang_disk("/logs")
    with trio.move_on_after(10) as waiting:
        await ask(leading, 5)
    assert waiting.cancelled_caught and not leading.partition().failed
