"""What a broker appends itself: it waits for the commit, and ends once, however that goes."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from strandline.protocol.errors import BrokerError, ErrorCode
from support.replica_site import T0, ReplicaSite, batch


async def committing(site: ReplicaSite, outcomes: list[object], timeout_s: float = 5.0) -> None:
    try:
        outcomes.append(await site.data.own_appends.commit(site.partition(), bytearray(batch(2)), timeout_s))
    except BrokerError as error:
        outcomes.append(error.code)


async def test_it_returns_once_all_in_sync_replicas_have_it(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    site.produce((T0, batch()), acks=1)
    outcomes: list[object] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(committing, site, outcomes)
        await wait_all_tasks_blocked()
        site.follow(2, 3)
        await wait_all_tasks_blocked()
        assert not outcomes
        site.follow(3, 3)
    assert outcomes == [1]


async def test_the_loss_of_leadership_and_the_deadline_end_it(site: ReplicaSite, autojump_clock: MockClock) -> None:
    await site.lead()
    outcomes: list[object] = []
    async with trio.open_nursery() as nursery:
        nursery.start_soon(site.data.deadlines.run, site.data.burst.end)
        nursery.start_soon(committing, site, outcomes, 1.0)
        await trio.sleep(2)
        assert outcomes == [ErrorCode.REQUEST_TIMED_OUT]
        nursery.start_soon(committing, site, outcomes)
        await wait_all_tasks_blocked()
        await site.follow_leader(epoch=1)
        await wait_all_tasks_blocked()
        assert outcomes[1:] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]
        nursery.cancel_scope.cancel()


async def test_nothing_is_appended_by_who_does_not_lead_or_has_too_few_in_sync(site: ReplicaSite) -> None:
    await site.follow_leader()
    for code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS):
        with pytest.raises(BrokerError, match=code.name):
            await site.data.own_appends.commit(site.partition(), bytearray(batch()), 1.0)
        await site.lead(epoch=1, isr=(1,))
    assert site.partition().log.log_end_offset == 0


async def test_who_listens_hears_of_each_role_that_begins_or_ends(site: ReplicaSite) -> None:
    heard: list[bool | None] = []
    site.replicas.on_role_change(lambda each: heard.append(None if each.failed else each.leadership is not None))
    await site.lead()
    await site.follow_leader(epoch=1)
    await site.lead(epoch=2)
    site.replicas.partition_failed(site.partition(), OSError("broken"))
    assert heard == [True, False, True, None]
