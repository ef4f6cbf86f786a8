"""Consumers that leave their group, in good order or not, and that the group lets go."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from scenarios.test_subscriptions import ALL, PARTITIONS, Worker, a_cluster, produce, running, shared
from strandline.client import TrioConsumer
from strandline.client.errors import AnsweredError, ClientClosed, CommitFailed, SubscriptionConflict, error_for
from strandline.client.groups.administration import GroupOffset
from strandline.client.groups.group import DueCall
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import OffsetFetchRequest, Request
from strandline.protocol.types import TopicPartition


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


def refuse(consumer: TrioConsumer, kind: type[Request], times: int = 1) -> None:
    """Have its first requests of this kind to the coordinator fail for a reason that does not go away by itself."""
    assert consumer._group is not None
    coordinator, left = consumer._group._coordinator, [times]
    ask = coordinator.ask

    async def ask_or_fail(request: Any, *rest: Any, **options: Any) -> Any:
        if isinstance(request, kind) and left[0] > 0:
            left[0] -= 1
            raise error_for(ErrorCode.GROUP_AUTHORIZATION_FAILED, "asking", "a broker")
        return await ask(request, *rest, **options)

    coordinator.ask = ask_or_fail


async def test_what_could_not_be_asked_of_the_group_once_is_asked_again_by_later_polls(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 1)
        async with cluster.consumer(group_id="g", retry_backoff_max_ms=3_600_000) as consumer:
            refuse(consumer, OffsetFetchRequest)
            consumer.subscribe(["orders"])
            seen: set[TopicPartition] = set()
            told = 0
            with trio.fail_after(60):
                while len(seen) < PARTITIONS:
                    try:
                        seen |= set(await consumer.poll(timeout_ms=1000))
                    except AnsweredError:
                        told += 1
            assert told == PARTITIONS


async def test_polls_commit_again_only_when_the_last_commit_is_answered(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 20)
        async with cluster.consumer(group_id="g", auto_commit_interval_ms=0, max_poll_records=1) as consumer:
            consumer.subscribe(["orders"])
            assert consumer._group is not None
            seen = most = 0
            with trio.fail_after(60):
                while seen < 20 * PARTITIONS:
                    seen += sum(map(len, (await consumer.poll(timeout_ms=1000)).values()))
                    most = max(most, len(consumer._group._offsets._waiting))
            assert most == 1
        async with cluster.consumer(group_id="g") as reader:
            assert {at.offset for at in (await reader.committed(ALL)).values() if at is not None} == {20}


async def test_who_assigns_in_a_group_with_members_is_warned_that_nothing_is_committed(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 1)
        worker = Worker(cluster, enable_auto_commit=False)
        async with running(worker):
            await shared(cluster, worker)
            with pytest.warns(RuntimeWarning, match="automatic commit in group 'g' failed: .*who assigns"):
                async with cluster.consumer(group_id="g") as consumer:
                    await consumer.assign(ALL)
                    with trio.fail_after(60):
                        while not await consumer.poll(timeout_ms=1000):
                            pass


async def test_who_loses_its_partitions_is_told_so_and_not_warned_besides(autojump_clock, recwarn) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 1)
        worker = Worker(cluster, max_poll_interval_ms=8_000, auto_commit_interval_ms=20_000)
        async with running(worker):
            await cluster.until(lambda: len(worker.seen) == PARTITIONS, "all is read")
            worker.is_stuck = True
            await trio.sleep(30)
            worker.is_stuck = False
            await cluster.until(lambda: len(worker.told) == 3, "it has joined again")
            assert worker.told[1] == ("lost", list(range(PARTITIONS)))
    assert [str(each.message) for each in recwarn if "commit" in str(each.message)] == []


async def test_what_is_committed_when_partitions_are_revoked_is_committed_before_the_group_goes_on(
    autojump_clock,
) -> None:
    """Also where the callback does not wait for it."""
    async with a_cluster() as cluster:
        sent = await produce(cluster, 0, 5)
        one, two = (Worker(cluster, name, enable_auto_commit=False) for name in ("one", "two"))
        ended: list[Exception | None] = []
        commit = one.consumer.commit_nowait
        one.subscribe = lambda: one.consumer.subscribe(
            ["orders"], on_revoked=lambda gone: commit(on_done=lambda _, error: ended.append(error))
        )
        one.delay_commits(8)
        async with running(one):
            await cluster.until(lambda: len(one.seen) == len(sent), "all is read")
            async with running(two):
                await shared(cluster, one, two)
                await cluster.until(lambda: bool(ended), "it has been told")
                assert ended == [None]
                assert two.seen == []


async def test_a_commit_that_ends_with_the_block_is_told_of(autojump_clock) -> None:
    async with a_cluster() as cluster:
        ended: list[Exception | None] = []
        async with cluster.consumer(group_id="g") as consumer:
            await consumer.assign(ALL[:1])
            consumer.commit_nowait({ALL[0]: 3}, lambda _, error: ended.append(error))
        assert ended == [None]


async def test_whoever_unsubscribes_first_runs_the_callbacks_and_no_poll_does(autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g") as consumer:
        consumer.subscribe(["orders"])
        await until_assigned(consumer)
        call = await consumer._leave_step(timeout_ms=1000)
        assert isinstance(call, DueCall)
        assert await consumer._poll_step(None, timeout_ms=0) == {}
        async with trio.open_nursery() as nursery:
            nursery.start_soon(consumer.unsubscribe)
            await trio.sleep(1)
            call.begin()
            call.finish()
            assert await consumer._leave_step(timeout_ms=1000, after=call) is None
        assert consumer.assignment == []


async def test_a_loop_hands_out_nothing_that_whoever_unsubscribes_meanwhile_does_not_commit(autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g") as consumer:
        await produce(cluster, 0, 3)
        consumer.subscribe(["orders"])
        first = await anext(consumer)
        call = await consumer._leave_step(timeout_ms=1000)
        assert isinstance(call, DueCall)
        with trio.move_on_after(10):
            await anext(consumer)
            raise AssertionError("it is not committed")
        call.begin()
        call.finish()
        assert await consumer._leave_step(timeout_ms=1000, after=call) is None
        committed = await consumer.committed(ALL)
        assert sum(at.offset for at in committed.values() if at is not None) == first.offset + 1


@pytest.mark.parametrize("moment", ["it waits for records", "it runs a callback"])
async def test_who_closes_while_another_task_polls_leaves_in_good_order(moment: str, autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 1)
        consumer = cluster.consumer(group_id="g", auto_commit_interval_ms=60_000)
        told: list[str] = []
        seen: list[int] = []
        is_called = trio.Event()

        async def on_assigned(given: list[Any]) -> None:
            is_called.set()
            await trio.sleep(1)
            told.append("assigned")

        async def read() -> None:
            with pytest.raises(ClientClosed):
                while True:
                    for records in (await consumer.poll(timeout_ms=60_000)).values():
                        seen.extend(record.offset for record in records)

        consumer.subscribe(["orders"], on_assigned=on_assigned, on_revoked=lambda gone: told.append("revoked"))
        async with trio.open_nursery() as nursery, consumer:
            nursery.start_soon(read)
            with trio.fail_after(60):
                await is_called.wait()
                while moment == "it waits for records" and len(seen) < PARTITIONS:
                    await trio.sleep(0.1)
        assert told == ["assigned", "revoked"]
        async with cluster.consumer(group_id="g") as other:
            committed = await other.committed(ALL)
        # Where it stood may be committed although nothing was handed out: then it is where it began.
        assert len([at for at in committed.values() if at is not None and at.offset > 0]) == len(seen)


async def test_who_goes_back_while_a_commit_is_under_way_is_found_there_by_the_next_one(autojump_clock) -> None:
    async with a_cluster() as cluster:
        async with cluster.consumer(group_id="g", auto_commit_interval_ms=60_000) as consumer:
            await consumer.assign(ALL[:1])
            await consumer.commit({ALL[0]: 2})
            consumer.seek(ALL[0], 10)
            consumer.commit_nowait()
            consumer.seek(ALL[0], 2)
        async with cluster.consumer(group_id="g") as other:
            [committed] = (await other.committed(ALL[:1])).values()
        assert committed is not None
        assert committed.offset == 2


async def test_a_callback_of_a_commit_that_an_interrupted_poll_did_not_run_is_run_by_the_next(autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g") as consumer:
        ended: list[Exception | None] = []
        await consumer.assign(ALL[:1])
        consumer.commit_nowait({ALL[0]: 3}, lambda _, error: ended.append(error))
        assert isinstance(await consumer._poll_step(None, timeout_ms=60_000), DueCall)
        await consumer.poll(timeout_ms=60_000)
        await consumer.poll()
        assert ended == [None]


async def test_a_callback_that_two_threads_are_handed_runs_once(autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g") as consumer:
        told: list[int] = []
        consumer.subscribe(["orders"], on_assigned=lambda given: told.append(len(given)))
        with trio.fail_after(60):
            while not isinstance(one := await consumer._poll_step(None, timeout_ms=500), DueCall):
                pass
        same = await consumer._poll_step(None, timeout_ms=0)
        assert isinstance(same, DueCall)
        one.begin()
        for is_over in (False, True):
            with pytest.raises(RuntimeError, match="two threads"):
                same.begin()
            same.finish()
            if not is_over:
                with pytest.raises(RuntimeError, match="callback"):
                    await consumer.poll()
                one.run()
                one.finish()
        assert await consumer.poll() == {}
        assert told == [PARTITIONS]


async def test_who_leaves_while_a_poll_commits_before_a_revocation_runs_its_callback_alone(
    autojump_clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 1)
        told: list[int] = []
        commits, goes_on = trio.Event(), trio.Event()

        async def on_revoked(gone: list[TopicPartition]) -> None:
            told.append(len(gone))
            await trio.sleep(1)

        async def read() -> None:
            while True:
                await consumer.poll(timeout_ms=1_000)

        async with cluster.consumer(group_id="g", partition_assignment_strategy="range") as consumer:
            consumer.subscribe(["orders"], on_revoked=on_revoked)
            await until_assigned(consumer)
            settle = consumer._group._settle

            async def slow(*arguments: Any) -> bool:
                commits.set()
                await goes_on.wait()
                return await settle(*arguments)

            monkeypatch.setattr(consumer._group, "_settle", slow)
            async with trio.open_nursery() as nursery, running(Worker(cluster, "other")):
                nursery.start_soon(read)
                with trio.fail_after(100):
                    await commits.wait()
                    nursery.start_soon(consumer.unsubscribe)
                    await trio.sleep(0.5)
                    goes_on.set()
                    while consumer.subscription:
                        await trio.sleep(0.1)
                nursery.cancel_scope.cancel()
            assert len(told) == 1
            consumer.subscribe(["orders"])
            await until_assigned(consumer)
