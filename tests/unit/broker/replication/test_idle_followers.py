"""Followers of idle partitions wait long at their leader, and are in sync all that time."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from strandline.broker.replication.held_fetches import FetchPlan
from strandline.broker.replication.leadership import NEVER
from strandline.broker.replication.partition import Partition
from strandline.protocol.messages import FetchRequest
from support.replica_site import T0, FakeConnection, Hand, ReplicaSite, batch
from support.replicas import ScriptedReplicas

USUAL_MS, LONG_MS = 500, 10_000


async def caught_up(site: ReplicaSite) -> Partition:
    """This broker leads one committed record, with both followers in sync."""
    partition = await site.lead()
    site.produce((T0, batch()), acks=1)
    for follower in (2, 3):
        site.follow(follower, 1)
    assert partition.high_watermark == 1
    return partition


def parked(site: ReplicaSite, follower: int = 2, offset: int = 1) -> Hand:
    connection = FakeConnection(is_inter_broker=True)
    hand = site.follow(follower, offset, wait_ms=LONG_MS, is_idle=True, connection=connection)
    assert not hand.is_answered
    return hand


async def test_a_fetch_that_waited_long_does_not_make_a_follower_lag_when_the_log_grows(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    partition = await caught_up(site)
    waits = [parked(site, follower) for follower in (2, 3)]
    await trio.sleep(100)  # far more than replica.lag.time.max.ms
    site.produce((T0, batch()), acks=1)
    assert all(hand.is_answered for hand in waits)
    partition.check_in_sync(trio.current_time())
    assert not partition.leadership.proposal
    await trio.sleep(31)
    partition.check_in_sync(trio.current_time())
    assert partition.leadership.proposal.isr == (1,), "who does not come for it lags from then on"


async def test_a_connection_that_ended_vouches_for_nobody(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await caught_up(site)
    parked(site).connection.close("gone")
    parked(site, 3)
    await trio.sleep(100)
    site.produce((T0, batch()), acks=1)
    partition.check_in_sync(trio.current_time())
    assert partition.leadership.proposal.isr == (1, 3)


async def test_nor_does_its_fetch_when_its_time_is_over(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await caught_up(site)
    before = partition.leadership.followers[2].caught_up_at
    hand = parked(site)
    hand.connection.close("gone")
    await trio.sleep(LONG_MS / 1000)
    site.data.deadlines.expire(trio.current_time())
    assert partition.leadership.followers[2].caught_up_at == before
    assert not partition.parked_fetches


async def test_a_fetch_that_waited_in_vain_counts_as_any_other(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await caught_up(site)
    row = site.replicas.traffic.rows[T0.topic]
    before = row.fetch_requests
    hand = parked(site)
    await trio.sleep(LONG_MS / 1000)
    site.data.deadlines.expire(trio.current_time())
    assert hand.is_answered and row.fetch_requests == before + 1


async def test_a_fetch_of_an_earlier_epoch_vouches_for_nobody(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await caught_up(site)
    parked(site)
    await trio.sleep(5)
    partition = await site.lead(epoch=1, isr=(1, 3))
    site.data.burst.end()
    assert not partition.parked_fetches
    assert partition.leadership.followers[2].caught_up_at == NEVER


async def test_who_leaves_the_isr_meanwhile_is_answered_soon(site: ReplicaSite, autojump_clock: MockClock) -> None:
    partition = await caught_up(site)
    site.produce((T0, batch()), acks=1)
    site.follow(3, 2)
    await trio.sleep(31)
    site.follow(3, 2)
    partition.check_in_sync(trio.current_time())
    assert partition.leadership.proposal.isr == (1, 3)
    hand = parked(site, 2, 2)
    site.end_proposal((1, 3))
    site.data.deadlines.expire(trio.current_time() + USUAL_MS / 1000 + 0.1)
    assert hand.is_answered


async def test_who_does_not_know_where_the_log_begins_is_answered_soon(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await caught_up(site)
    site.delete_records((T0, 1))
    hand = parked(site)
    connection = FakeConnection(is_inter_broker=True)
    knows = site.follow(3, 1, wait_ms=LONG_MS, is_idle=True, log_start=1, connection=connection)
    site.data.deadlines.expire(trio.current_time() + USUAL_MS / 1000 + 0.1)
    assert hand.is_answered and not knows.is_answered


async def test_who_was_behind_when_its_fetch_was_parked_was_not_caught_up_meanwhile(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    partition = await caught_up(site)
    progress = partition.leadership.followers[2]
    progress.record_fetch(0, 1, 1, trio.current_time())
    before = progress.caught_up_at
    progress.waited_until(trio.current_time() + 100)
    assert progress.caught_up_at == before


async def test_who_is_not_in_sync_is_answered_soon_since_each_fetch_may_let_it_join(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await site.lead(isr=(1, 2))
    site.produce((T0, batch()), acks=1)
    site.update_metadata(alive=(1, 2))  # 3 counts as dead: it may not join
    site.follow(2, 1)
    hands = {follower: parked(site, follower) for follower in (2, 3)}
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        await trio.sleep(USUAL_MS / 1000 + 0.2)
        assert hands[3].is_answered and not hands[2].is_answered
        await trio.sleep(LONG_MS / 1000)
        assert hands[2].is_answered
        nursery.cancel_scope.cancel()


async def test_an_idle_follower_for_which_nothing_changed_is_answered_without_partitions(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await caught_up(site)
    hand = parked(site)
    await trio.sleep(LONG_MS / 1000 + 0.1)
    site.data.deadlines.expire(trio.current_time())
    assert hand.fetched == []


async def test_a_follower_that_does_not_know_of_a_commit_yet_is_told_when_its_wait_is_over(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    """However long it is ready to wait: brokers may be configured differently."""
    partition = await caught_up(site)
    hand = site.follow(2, 1, wait_ms=LONG_MS)
    site.data.deadlines.expire(trio.current_time() + USUAL_MS / 1000 + 0.1)
    assert [data.high_watermark for data in hand.fetched] == [partition.high_watermark]


async def test_a_follower_that_waits_for_more_bytes_gets_what_there_is_in_the_end(
    site: ReplicaSite, autojump_clock: MockClock
) -> None:
    await caught_up(site)
    hand = site.follow(2, 1, wait_ms=LONG_MS, is_idle=True, min_bytes=10**6)
    site.produce((T0, batch()), acks=1)
    assert not hand.is_answered
    site.data.deadlines.expire(trio.current_time() + USUAL_MS / 1000 + 0.1)
    assert hand.sent


async def test_a_deletion_that_moves_nothing_wakes_nobody(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await caught_up(site)
    hand = parked(site)
    site.delete_records((T0, 0))
    assert not hand.is_answered


async def test_a_raised_log_start_is_told_at_once(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await caught_up(site)
    hand = parked(site)
    site.delete_records((T0, 1))
    assert [data.log_start_offset for data in hand.fetched] == [1]


async def test_a_follower_waits_long_once_it_knows_that_all_it_has_is_committed(autojump_clock: MockClock) -> None:
    cluster = await ScriptedReplicas.start("AB")
    await cluster.lead("A", epoch=0)

    partition = cluster.partition("B")
    [fetcher] = cluster._brokers["B"].data.followers._fetchers.values()

    def wait_ms() -> int:
        request, _ = fetcher._request(FetchPlan([partition]), trio.current_time())
        assert isinstance(request, FetchRequest)
        assert request.is_idle == (request.max_wait_ms == LONG_MS)
        return request.max_wait_ms

    assert wait_ms() == LONG_MS
    cluster.produce("A", b"one")
    cluster.fetch("B")
    assert wait_ms() == USUAL_MS, "it does not know of the commit yet"
    cluster.fetch("B")
    assert wait_ms() == LONG_MS
    fetcher._back_off(partition)
    assert wait_ms() == USUAL_MS, "the next answer is to say whether the error is over"
