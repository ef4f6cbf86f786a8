"""Consumers that leave their group, in good order or not, and that the group lets go."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from scenarios.test_subscriptions import ALL, PARTITIONS, Worker, a_cluster, produce, running, shared
from strandline.client import TrioConsumer
from strandline.client.errors import CommitFailed, SubscriptionConflict
from strandline.client.groups.administration import GroupOffset


async def until_assigned(consumer: TrioConsumer, number: int = PARTITIONS) -> None:
    with trio.fail_after(60):
        while len(consumer.assignment) < number:
            await consumer.poll(timeout_ms=500)


async def others_get_all(cluster: Any) -> None:
    """At once: not only when the session of who was there before has ended."""
    other = Worker(cluster, "other")
    async with running(other):
        with trio.fail_after(8):
            while len(other.owns) < PARTITIONS:
                await trio.sleep(0.1)


@pytest.mark.parametrize("how", ["callback raises", "cancelled"])
async def test_an_unsubscribe_that_is_cut_short_has_left_all_the_same(how: str, autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g", session_timeout_ms=30_000) as consumer:

        async def cut_short(gone: list[Any]) -> None:
            if how == "callback raises":
                raise ZeroDivisionError
            scope.cancel()
            await trio.sleep(1)

        consumer.subscribe(["orders"], on_revoked=cut_short)
        await until_assigned(consumer)
        with trio.CancelScope() as scope:
            try:
                await consumer.unsubscribe()
            except ZeroDivisionError:
                pass
        assert consumer.assignment == []
        assert consumer.subscription == []
        assert consumer.group_metadata.member_id == ""
        await others_get_all(cluster)
        consumer.subscribe(["orders"])
        await until_assigned(consumer)


async def test_a_callback_neither_unsubscribes_nor_ends_the_membership_by_trying(autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g") as consumer:
        await produce(cluster, 0, 1)

        async def on_assigned(given: list[Any]) -> None:
            with pytest.raises(RuntimeError, match="callback"):
                await consumer.unsubscribe()

        consumer.subscribe(["orders"], on_assigned=on_assigned)
        seen = 0
        with trio.fail_after(60):
            while seen < PARTITIONS:
                seen += sum(map(len, (await consumer.poll(timeout_ms=500)).values()))
        assert set(consumer.assignment) == set(ALL)


async def test_who_unsubscribes_cannot_subscribe_until_that_has_ended(autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g", session_timeout_ms=30_000) as consumer:

        def on_revoked(gone: list[Any]) -> None:
            with pytest.raises(SubscriptionConflict, match="unsubscribe"):
                consumer.subscribe(["orders"])

        consumer.subscribe(["orders"], on_revoked=on_revoked)
        await until_assigned(consumer)
        await consumer.unsubscribe()
        await others_get_all(cluster)


async def test_who_was_let_go_commits_nothing_more_and_reads_from_where_the_group_was_reset_to(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 3)
        worker = Worker(cluster, max_poll_interval_ms=8_000)
        reset = {each: GroupOffset(0) for each in ALL}
        async with running(worker), cluster.admin() as admin:
            await cluster.until(lambda: len(worker.seen) == 3 * PARTITIONS, "all is read")
            worker.is_stuck = True
            await trio.sleep(30)
            assert set((await admin.alter_group_offsets("g", reset)).values()) == {None}, "the group is empty"
            with pytest.raises(CommitFailed, match="max_poll_interval_ms"):
                await worker.consumer.commit()
            worker.is_stuck = False
            await cluster.until(lambda: len(worker.seen) == 6 * PARTITIONS, "all is read again")
            await shared(cluster, worker)
