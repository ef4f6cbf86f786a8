"""Consumers read from the replica in their rack (KIP-392): whom a leader names, and what a follower serves."""

from __future__ import annotations

import pytest
from trio.testing import MockClock

from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import FetchPartitionData
from strandline.protocol.records import decode_records
from strandline.protocol.types import ANY_REPLICA
from strandline.runtime.config.broker import LEADER_SELECTOR, RACK_AWARE_SELECTOR
from support.replica_site import T0, Hand, ReplicaSite, batch

LEO = 4
"""Of single batches; each broker n lives in rack-n."""


def offsets(hand: Hand) -> list[int]:
    return [record.offset for record in decode_records(memoryview(hand.sent[0]))] if hand.sent else []


def told(hand: Hand) -> FetchPartitionData:
    [data] = hand.fetched
    return data


async def leader(selector: str = RACK_AWARE_SELECTOR) -> ReplicaSite:
    site = ReplicaSite(config={"replica.selector.class": selector, "broker.rack": "rack-1"})
    await site.lead()
    for _ in range(LEO):
        site.produce((T0, batch()), acks=1)
    site.follow(2, LEO)
    site.follow(3, LEO - 1)
    assert site.partition().high_watermark == LEO - 1
    return site


async def follower(epoch: int = 2, selector: str = LEADER_SELECTOR) -> ReplicaSite:
    """Of a log that was led here: HW 2, LEO 4."""
    site = ReplicaSite(config={"replica.selector.class": selector})
    await site.lead(epoch=1)
    for _ in range(LEO):
        site.produce((T0, batch()), acks=1)
    site.follow(2, 2)
    site.follow(3, 2)
    partition = await site.follow_leader(epoch=epoch)
    assert (partition.high_watermark, partition.log.log_end_offset) == (2, LEO)
    return site


# --- the leader ------------------------------------------------------------------------------------------------


async def test_a_consumer_is_sent_to_the_follower_in_its_rack_and_gets_no_records(autojump_clock: MockClock) -> None:
    site = await leader()
    hand = site.fetch((T0, 0), rack_id="rack-2", wait_ms=1000)
    assert (told(hand).preferred_read_replica, told(hand).error_code, hand.sent) == (2, 0, [])
    assert told(hand).high_watermark == LEO - 1


@pytest.mark.parametrize("rack", ["rack-1", "", "nowhere"])
async def test_a_consumer_elsewhere_reads_from_the_leader(rack: str, autojump_clock: MockClock) -> None:
    hand = (await leader()).fetch((T0, 0), rack_id=rack)
    assert (told(hand).preferred_read_replica, offsets(hand)) == (-1, [0, 1, 2])


async def test_nobody_is_sent_away_without_the_selector(autojump_clock: MockClock) -> None:
    assert offsets((await leader(LEADER_SELECTOR)).fetch((T0, 0), rack_id="rack-2")) == [0, 1, 2]


async def test_only_who_is_in_sync_lives_and_has_the_offset_is_named(autojump_clock: MockClock) -> None:
    site = await leader()
    partition = site.partition()
    leadership = partition.leadership

    def nearest() -> int:
        return told(site.fetch((T0, 1), rack_id="rack-3")).preferred_read_replica

    assert nearest() == 3
    progress = leadership.followers[3]
    for field, value, kept in (("log_end_offset", 0, LEO - 1), ("log_start_offset", 2, 0), ("log_start_offset", -1, 0)):
        setattr(progress, field, value)
        assert nearest() == -1, field
        setattr(progress, field, kept)
    assert nearest() == 3
    leadership.isr = (1, 2)
    assert nearest() == -1
    leadership.isr = (1, 2, 3)
    site.update_metadata(alive=(1, 2))
    assert nearest() == -1


async def test_a_follower_is_never_sent_to_another_one(autojump_clock: MockClock) -> None:
    site = await leader()
    assert offsets(site.follow(3, LEO - 1, rack_id="rack-2")) == [LEO - 1]


async def test_followers_hear_at_once_of_what_was_committed(autojump_clock: MockClock) -> None:
    site = await leader()
    waiting = site.follow(2, LEO, wait_ms=500)
    assert not waiting.is_answered
    last = site.follow(3, LEO, wait_ms=500)
    assert [(told(hand).high_watermark, hand.sent) for hand in (waiting, last)] == [(LEO, [])] * 2
    assert not site.follow(3, LEO, wait_ms=500).is_answered, "it knows that"


async def test_followers_wait_for_records_where_nobody_else_reads_from_them(autojump_clock: MockClock) -> None:
    site = await leader(LEADER_SELECTOR)
    waiting, last = site.follow(2, LEO, wait_ms=500), site.follow(3, LEO, wait_ms=500)
    assert site.partition().high_watermark == LEO
    assert not waiting.is_answered and not last.is_answered


async def test_a_session_is_told_of_the_replica_too(autojump_clock: MockClock) -> None:
    site = await leader()
    hand = site.fetch((T0, 0), session=(0, 0))
    hand = site.fetch((T0, 0), session=(hand.answer.session_id, 1), rack_id="rack-2", wait_ms=1000)
    assert told(hand).preferred_read_replica == 2


# --- a follower ------------------------------------------------------------------------------------------------


async def test_a_follower_shows_what_it_knows_to_be_committed(autojump_clock: MockClock) -> None:
    site = await follower()
    hand = site.fetch((T0, 0), rack_id="rack-1")
    assert (offsets(hand), told(hand).high_watermark, told(hand).last_stable_offset) == ([0, 1], 2, 2)
    for offset in (2, 3, LEO):
        hand = site.fetch((T0, offset), rack_id="rack-1")
        assert (told(hand).error_code, hand.sent) == (0, []), "it may wait for that"


async def test_a_follower_does_not_know_whether_an_offset_beyond_its_log_exists(autojump_clock: MockClock) -> None:
    site = await follower()
    assert told(site.fetch((T0, LEO + 1), rack_id="rack-1")).error_code == ErrorCode.OFFSET_NOT_AVAILABLE
    assert told(site.fetch((T0, -1), rack_id="rack-1")).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize(
    ("epoch", "code"),
    [(1, ErrorCode.FENCED_LEADER_EPOCH), (3, ErrorCode.UNKNOWN_LEADER_EPOCH), (2, ErrorCode.NONE)],
)
async def test_a_follower_fences_other_epochs_as_a_leader_does(
    epoch: int, code: ErrorCode, autojump_clock: MockClock
) -> None:
    assert told((await follower()).fetch((T0, 0), rack_id="rack-1", epoch=epoch)).error_code == code


async def test_a_consumer_without_a_rack_takes_a_follower_for_the_leader_and_is_told_who_leads(
    autojump_clock: MockClock,
) -> None:
    data = told((await follower()).fetch((T0, 0)))
    assert (data.error_code, data.current_leader_id) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, 2)


async def test_who_knows_followers_is_served_by_one_where_consumers_read_from_them(autojump_clock: MockClock) -> None:
    site = await follower(selector=RACK_AWARE_SELECTOR)
    assert offsets(site.fetch((T0, 0), knows_followers=True)) == [0, 1]
    assert told(site.fetch((T0, 0), knows_followers=True, epoch=1)).error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert told(site.fetch((T0, 0))).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    without = (await follower()).fetch((T0, 0), knows_followers=True)
    assert told(without).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    other = site.fetch((T0, 0), replica_id=3, epoch=2, knows_followers=True)
    assert told(other).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER, "a follower of its own leader"


async def test_a_tool_that_compares_replicas_reads_from_any(autojump_clock: MockClock) -> None:
    assert offsets((await follower()).fetch((T0, 0), replica_id=ANY_REPLICA)) == [0, 1]
    assert offsets((await leader()).fetch((T0, 0), replica_id=ANY_REPLICA)) == [0, 1, 2], "below HW there, too"


async def test_who_compares_replicas_acknowledges_nothing(autojump_clock: MockClock) -> None:
    site = await leader()
    partition = site.partition()
    before = {each.broker_id: each.log_end_offset for each in partition.leadership.followers.values()}
    for offset in (0, LEO - 1, LEO, 2**40):
        site.fetch((T0, offset), replica_id=ANY_REPLICA)
    assert {each.broker_id: each.log_end_offset for each in partition.leadership.followers.values()} == before
    assert partition.high_watermark == LEO - 1


async def test_who_compares_replicas_is_told_where_a_log_begins_whatever_was_asked(autojump_clock: MockClock) -> None:
    for site, code, high_watermark in (
        (await leader(), ErrorCode.OFFSET_OUT_OF_RANGE, LEO - 1),
        (await follower(), ErrorCode.OFFSET_NOT_AVAILABLE, 2),
    ):
        data = told(site.fetch((T0, LEO + 1), replica_id=ANY_REPLICA))
        assert (data.error_code, data.high_watermark, data.log_start_offset) == (code, high_watermark, 0)


async def test_other_followers_do_not_read_from_a_follower(autojump_clock: MockClock) -> None:
    site = await follower()
    assert told(site.follow(3, 0, rack_id="rack-1")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_replica_that_follows_nobody_serves_nobody(autojump_clock: MockClock) -> None:
    site = await follower()
    site.replicas.resign(site.partition())
    assert told(site.fetch((T0, 0), rack_id="rack-1")).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize("in_session", [True, False])
async def test_a_fetch_at_a_follower_waits_for_its_high_watermark(in_session: bool, autojump_clock: MockClock) -> None:
    site = await follower()
    session = (0, -1)
    if in_session:
        session = (site.fetch((T0, 2), rack_id="rack-1", session=(0, 0)).answer.session_id, 1)
        assert session[0] > 0
    hand = site.fetch((T0, 2), rack_id="rack-1", wait_ms=1000, session=session)
    assert not hand.is_answered
    partition = site.partition()
    partition.learn_high_watermark(3)
    site.data.burst.changes.committed(partition)
    site.data.burst.end()
    assert offsets(hand) == [2]


async def test_a_fetch_that_waits_at_a_follower_ends_with_its_role(autojump_clock: MockClock) -> None:
    site = await follower()
    hand = site.fetch((T0, 2), rack_id="rack-1", wait_ms=1000, epoch=2)
    await site.lead(epoch=3)
    assert told(hand).error_code == ErrorCode.FENCED_LEADER_EPOCH
