"""One replica: roles as values, where a follower cuts, and what never moves back."""

from __future__ import annotations

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st
from trio.testing import MockClock

from strandline.broker.replication.partition import Partition
from strandline.protocol.messages import EpochEndOffset, LeaderAndIsrPartitionState
from strandline.protocol.records import InvalidBatch, assign_offset, decode_records
from strandline.protocol.records.validation import validate_produced
from strandline.runtime.config.topic import topic_config
from strandline.storage.disk.checkpoints import LOG_START_OFFSETS, read_offsets
from strandline.storage.log.truncation_guard import CheckpointFirst
from support.replica_site import T0, ReplicaSite, batch

LAG_S = 30.0


def fetched(offset: int, epoch: int, count: int = 1) -> memoryview:
    """A batch as a leader sends it."""
    data = memoryview(bytearray(batch(count)))
    assign_offset(data, offset, epoch)
    return data


def fill(partition: Partition, epochs: list[int]) -> None:
    """As a follower: one record per entry, of that epoch."""
    for epoch in epochs:
        partition.append_fetched(fetched(partition.log.log_end_offset, epoch), 0)


# --- leading ---------------------------------------------------------------------------------------------------


async def test_a_new_leader_notes_its_epoch_before_it_serves(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.follow_leader(epoch=1)
    fill(partition, [0, 1])
    await site.lead(epoch=4)
    assert [tuple(entry) for entry in partition.log.epochs.entries] == [(0, 0), (1, 1), (4, 2)]
    assert partition.leadership.epoch_start_offset == 2


async def test_a_new_leader_keeps_the_high_watermark_that_it_knew_as_a_follower(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    partition = await site.follow_leader(epoch=1)
    partition.append_fetched(fetched(0, 1, 5), 3)
    assert partition.high_watermark == 3
    await site.lead(epoch=2)
    assert partition.high_watermark == 3
    await site.follow_leader(epoch=3)
    assert partition.high_watermark == 3


async def test_the_leaders_batches_carry_its_epoch(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.lead(epoch=6)
    partition.append(validate_produced(memoryview(bytearray(batch(2))), max_batch_bytes=10**6))
    assert partition.log.last_epoch == 6
    region = partition.log.read(0, 10**6, 2)
    assert region is not None
    data = region.file.pread(region.length, region.position)
    assert [record.offset for record in decode_records(memoryview(data))] == [0, 1]
    assert int.from_bytes(data[12:16], "big") == 6


async def test_an_epoch_without_records_is_replaced_by_the_next(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.lead(epoch=1)
    await site.lead(epoch=2)
    assert [tuple(entry) for entry in partition.log.epochs.entries] == [(2, 0)]


async def test_a_smaller_minimum_lets_the_high_watermark_move(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.lead(isr=(1,))
    hand = site.produce((T0, batch()), acks=1)
    assert hand.is_answered and partition.high_watermark == 0
    assert partition.set_config(topic_config(site.config, {"min.insync.replicas": "1"}))
    assert partition.high_watermark == 1


async def test_a_follower_that_lags_is_proposed_for_removal_and_the_high_watermark_waits_for_zookeeper(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    partition = await site.lead()
    hand = site.produce((T0, batch()))
    site.follow(2, 1)
    await trio.sleep(LAG_S + 1)
    site.follow(2, 1)
    assert not partition.check_in_sync(trio.current_time())
    assert partition.leadership.proposal.isr == (1, 2)
    assert not hand.is_answered
    site.end_proposal((1, 2))
    assert hand.outcomes[0].error_code == 0


async def test_a_caught_up_follower_is_proposed_only_while_its_broker_lives(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    site.update_metadata(alive=(1, 2))
    partition = await site.lead(isr=(1, 2))
    site.follow(3, 0)
    assert not partition.leadership.proposal
    site.update_metadata(alive=(1, 2, 3))
    site.follow(3, 0, replica_epoch=7)
    assert partition.leadership.proposal.added == {3: 7}


# --- following -------------------------------------------------------------------------------------------------


async def test_the_high_watermark_of_a_follower_is_the_leaders_but_never_above_its_own_end(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    partition = await site.follow_leader()
    partition.append_fetched(fetched(0, 0, 2), 10)
    assert partition.high_watermark == 2
    partition.append_fetched(fetched(2, 0, 2), 3)
    assert partition.high_watermark == 3
    partition.append_fetched(memoryview(b""), 1)
    assert partition.high_watermark == 3, "it never goes back"


@pytest.mark.parametrize(
    ("offset", "epoch"), [(0, 2), (1, 3), (1, -1)], ids=["what it has", "above the leader's epoch", "no epoch"]
)
async def test_a_fetched_batch_that_does_not_continue_the_log_is_refused(
    offset: int, epoch: int, site: ReplicaSite, autojump_clock: MockClock
) -> None:
    partition = await site.follow_leader(epoch=2)
    fill(partition, [1])
    with pytest.raises(InvalidBatch):
        partition.append_fetched(fetched(offset, epoch), 5)
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 0)


@pytest.mark.parametrize(
    ("epochs", "diverging", "end"),
    [
        ([1, 1, 1], (1, 2), 2),
        ([1, 1, 3, 3], (1, 2), 2),
        ([1, 1, 3, 3], (1, 1), 1),
        ([1, 1, 3, 3], (2, 4), 2),
        ([1, 1, 1, 1], (3, 2), 2),
        ([2, 2, 2], (1, 0), 0),
    ],
    ids=[
        "ahead in the same epoch",
        "ahead in a newer epoch",
        "fork inside the older epoch",
        "the leader's epoch is unknown here",
        "cut where the leader's epoch ends",
        "nothing in common",
    ],
)
async def test_a_follower_cuts_where_its_log_leaves_the_leaders(
    epochs: list[int], diverging: tuple[int, int], end: int, site: ReplicaSite, autojump_clock: MockClock
) -> None:
    partition = await site.follow_leader(epoch=5)
    fill(partition, epochs)
    assert partition.truncate_to_divergence(EpochEndOffset(*diverging), 0) == end
    assert partition.log.log_end_offset == end


async def test_without_any_epoch_in_common_the_high_watermark_is_where_a_follower_cuts(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    partition = await site.follow_leader(epoch=5)
    fill(partition, [1, 1, 3])
    partition.learn_high_watermark(2)
    assert partition.truncate_to_divergence(EpochEndOffset(-1, -1), 0) == 2


@pytest.mark.parametrize(("end_of_epoch", "ends_at"), [(3, 3), (2, 1)])
async def test_where_the_logs_part_below_the_followers_start_it_begins_anew_where_the_leader_does(
    end_of_epoch: int, ends_at: int, site: ReplicaSite, autojump_clock: MockClock
) -> None:
    partition = await site.follow_leader(epoch=5)
    fill(partition, [1, 1, 1, 3])
    partition.learn_high_watermark(3)
    partition.learn_log_start(3)
    if end_of_epoch < 3:
        with pytest.raises(CheckpointFirst):
            partition.truncate_to_divergence(EpochEndOffset(1, end_of_epoch), 1)
        site.logs.checkpoints.write_cuts("/logs")
    assert partition.truncate_to_divergence(EpochEndOffset(1, end_of_epoch), 1) == ends_at
    log = partition.log
    assert (log.log_start_offset, partition.high_watermark, log.log_end_offset) == (ends_at, ends_at, ends_at)


async def test_cutting_below_the_high_watermark_takes_it_along(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.follow_leader(epoch=5)
    fill(partition, [1, 1, 1])
    partition.learn_high_watermark(3)
    partition.truncate_to(1)
    assert (partition.log.log_end_offset, partition.high_watermark) == (1, 1)


async def test_what_another_leader_wanted_cut_leaves_no_trace(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.follow_leader(epoch=5)
    fill(partition, [1, 1, 1, 3])
    partition.learn_high_watermark(3)
    partition.learn_log_start(3)
    with pytest.raises(CheckpointFirst):
        partition.restart_at(1)
    site.logs.checkpoints.write_cuts("/logs")
    await site.lead(epoch=6)
    site.logs.checkpoints.write_log_starts()
    assert read_offsets(site.disk, f"/logs/{LOG_START_OFFSETS}") == {T0: 3}


async def test_a_restart_at_the_leaders_start_moves_everything(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await site.follow_leader()
    fill(partition, [0, 0])
    partition.restart_at(40)
    assert (partition.log.log_start_offset, partition.high_watermark, partition.log.log_end_offset) == (40, 40, 40)
    assert partition.log.last_epoch == -1


# --- two replicas ----------------------------------------------------------------------------------------------


class Pair:
    """Two replicas that lead in turns, with real logs; beside each, its records as a plain list of their epochs."""

    def __init__(self, one: Partition, other: Partition) -> None:
        self.partitions = (one, other)
        self.models: tuple[list[int], list[int]] = ([], [])

    def lead(self, leader: int, epoch: int, records: int) -> None:
        partition = self.partitions[leader]
        partition.become_leader(role(epoch, 1), 30.0, 0.0)
        for _ in range(records):
            partition.append(validate_produced(memoryview(bytearray(batch())), max_batch_bytes=10**6))
        self.models[leader].extend([epoch] * records)

    def follow(self, leader: int, epoch: int, copies: int) -> None:
        """The other one finds out where the logs part, cuts, and takes over `copies` records."""
        ahead, behind = self.partitions[leader], self.partitions[1 - leader]
        behind.become_follower(role(epoch, 2))
        rounds = len(self.models[1 - leader]) + 2
        while (diverging := ahead.diverging_epoch(behind.log.last_epoch, behind.log.log_end_offset)) is not None:
            behind.truncate_to_divergence(diverging, 0)
            rounds -= 1
            assert rounds, "it never ends"
        mine, theirs = self.models[1 - leader], self.models[leader]
        common = 0
        while common < min(len(mine), len(theirs)) and mine[common] == theirs[common]:
            common += 1
        assert behind.log.log_end_offset == common, "all that differs is cut, and nothing else"
        del mine[common:]
        end = min(common + copies, len(theirs))
        region = ahead.log.read(common, 10**6, end)
        if region is not None:
            data = bytearray(region.file.pread(region.length, region.position))
            behind.append_fetched(memoryview(data), common)
            mine.extend(theirs[common:end])


def role(epoch: int, leader: int) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(0, 1, leader, epoch, [1, 2], 0, [1, 2])


terms = st.lists(st.tuples(st.integers(0, 1), st.integers(0, 3), st.one_of(st.none(), st.integers(0, 4))), max_size=10)


@given(terms=terms)
def test_whatever_the_past_a_follower_cuts_exactly_what_the_leader_does_not_have(
    terms: list[tuple[int, int, int | None]],
) -> None:
    """A term: who leads, how much it appends, how much of its log the other copies (None: it hears nothing)."""

    async def run() -> None:
        pair = Pair(await ReplicaSite().follow_leader(), await ReplicaSite().follow_leader())
        for epoch, (leader, records, copies) in enumerate(terms, 1):
            pair.lead(leader, epoch, records)
            if copies is not None:
                pair.follow(leader, epoch, copies)
        pair.lead(0, len(terms) + 1, 0)
        pair.follow(0, len(terms) + 1, 0)

    trio.run(run)
