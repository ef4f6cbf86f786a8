"""Consumers that share topics through a group: who gets what, what is committed, and what becomes of both when members
and coordinators come and go."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from strandline.broker.groups.shards import OFFSETS_TOPIC
from strandline.client import TrioConsumer
from strandline.client.errors import ClientClosed, CommitFailed, FencedInstance, OffsetOutOfRange
from strandline.client.groups.offsets import OffsetAndMetadata
from strandline.protocol.errors import ErrorCode
from strandline.protocol.messages import OffsetCommitRequest
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from support.group_client import GroupClient

PARTITIONS = 6
ALL = [TopicPartition("orders", number) for number in range(PARTITIONS)]
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "500",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "4000",
}
COOPERATIVE = {"partition_assignment_strategy": "cooperative-sticky"}


@asynccontextmanager
async def a_cluster(**properties: str) -> AsyncIterator[MemoryCluster]:
    """With the topic `orders`."""
    keys = {key.replace("_", "."): value for key, value in properties.items()}
    async with MemoryCluster(3, config={**PROPERTIES, **keys}).running() as cluster:
        async with cluster.admin() as admin:
            await admin.create_topic("orders", PARTITIONS, 3)
        yield cluster


class Worker:
    """A program that polls, and remembers what it was given and told."""

    def __init__(self, cluster: MemoryCluster, name: str = "", **settings: object) -> None:
        self.cluster = cluster
        self.name = name
        self.settings = {"group_id": "g", "session_timeout_ms": 10_000, "client_id": name, **settings}
        self.consumer: TrioConsumer = cluster.consumer(**self.settings)
        self.seen: list[bytes] = []
        self.told: list[tuple[str, list[int]]] = []
        self.scope = trio.CancelScope()
        self.error: Exception | None = None
        self.is_stuck = False

    def subscribe(self) -> None:
        self.consumer.subscribe(
            ["orders"],
            on_assigned=lambda given: self._tell("assigned", given),
            on_revoked=lambda gone: self._tell("revoked", gone),
            on_lost=lambda gone: self._tell("lost", gone),
        )

    def _tell(self, what: str, partitions: list[TopicPartition]) -> None:
        assert set(partitions) <= set(self.consumer.assignment), "they are there while it is told"
        self.told.append((what, sorted(each.partition for each in partitions)))

    @property
    def owns(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment}

    async def run(self) -> None:
        """Until `stop` or `kill`."""
        try:
            async with self.consumer:
                self.subscribe()
                with self.scope:
                    while True:
                        for records in (await self.consumer.poll(timeout_ms=200)).values():
                            self.seen += [record.value or b"" for record in records]
                        while self.is_stuck:
                            await trio.sleep(0.1)
        except ClientClosed:
            pass
        except Exception as error:
            self.error = error

    def delay_commits(self, seconds: float) -> None:
        """Each reaches the coordinator so much later."""
        assert self.consumer._group is not None
        coordinator = self.consumer._group._coordinator
        ask = coordinator.ask

        async def ask_slowly(request: Any, *rest: Any, **options: Any) -> Any:
            if isinstance(request, OffsetCommitRequest):
                await trio.sleep(seconds)
            return await ask(request, *rest, **options)

        coordinator.ask = ask_slowly

    def stop(self) -> None:
        self.scope.cancel()

    def kill(self) -> None:
        """As SIGKILL does: it says nothing to anybody."""

        async def nothing(*_: object) -> None: ...

        assert self.consumer._group is not None
        self.consumer._group.leave = nothing
        self.consumer._group.next_call_before_leaving = nothing
        self.consumer.close()


@asynccontextmanager
async def running(*workers: Worker) -> AsyncIterator[None]:
    async with trio.open_nursery() as nursery:
        for worker in workers:
            nursery.start_soon(worker.run)
        yield
        for worker in workers:
            worker.stop()


def is_shared(*workers: Worker) -> bool:
    """Each partition has one owner, and each worker something."""
    owned = [number for worker in workers for number in worker.owns]
    return sorted(owned) == list(range(PARTITIONS)) and all(worker.owns for worker in workers)


async def shared(cluster: MemoryCluster, *workers: Worker) -> None:
    await cluster.until(lambda: is_shared(*workers), "the partitions are shared")


async def produce(cluster: MemoryCluster, start: int, count: int) -> list[bytes]:
    """So many records to each partition."""
    values = []
    async with cluster.producer(linger_ms=0) as producer:
        for number in range(start, start + count):
            for partition in range(PARTITIONS):
                values.append(b"%d-%d" % (partition, number))
                await producer.send("orders", values[-1], partition=partition)
        await producer.flush()
    return values


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "sticky", "cooperative-sticky"])
async def test_members_share_the_partitions_as_they_come_and_go(strategy: str, autojump_clock) -> None:
    async with a_cluster() as cluster:
        one, two, three = (Worker(cluster, n, partition_assignment_strategy=strategy) for n in ("one", "two", "three"))
        sent = await produce(cluster, 0, 5)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(one.run)
            await shared(cluster, one)
            nursery.start_soon(two.run)
            nursery.start_soon(three.run)
            await shared(cluster, one, two, three)
            sent += await produce(cluster, 5, 5)
            two.stop()
            await shared(cluster, one, three)
            sent += await produce(cluster, 10, 5)
            await cluster.until(lambda: len({*one.seen, *two.seen, *three.seen}) == len(sent), "all is read")
            for worker in (one, three):
                worker.stop()
        counts = Counter(one.seen + two.seen + three.seen)
        assert set(counts) == set(sent)
        assert set(counts.values()) == {1}, "nobody was killed, so nothing comes twice"
        assert not any(worker.error for worker in (one, two, three))


async def test_a_cooperative_member_goes_on_with_what_it_keeps(autojump_clock) -> None:
    async with a_cluster() as cluster:
        one, two = Worker(cluster, "one", **COOPERATIVE), Worker(cluster, "two", **COOPERATIVE)
        await produce(cluster, 0, 1)
        async with running(one):
            await shared(cluster, one)
            first = one.told[-1]
            assert first == ("assigned", list(range(PARTITIONS)))
            async with running(two):
                await shared(cluster, one, two)
                _, given_up = one.told[1]
                assert one.told[1:] == [("revoked", given_up), ("assigned", []), ("assigned", [])]
                assert two.told == [("assigned", []), ("assigned", given_up)]
                assert len(given_up) == PARTITIONS // 2
                states = {number: one.consumer._assigned[ALL[number]] for number in one.owns}
            await shared(cluster, one)
            assert one.told[-1] == ("assigned", given_up)
            assert all(one.consumer._assigned[ALL[number]] is state for number, state in states.items())
            assert ("revoked", given_up) == two.told[-1], "at its end it gives up what it has"


async def test_an_eager_member_gives_everything_up_before_it_joins_again(autojump_clock) -> None:
    async with a_cluster() as cluster:
        one, two = Worker(cluster, "one"), Worker(cluster, "two")
        async with running(one):
            await shared(cluster, one)
            async with running(two):
                await shared(cluster, one, two)
                kept = sorted(one.owns)
                everything = list(range(PARTITIONS))
                assert one.told == [("assigned", everything), ("revoked", everything), ("assigned", kept)]
            await shared(cluster, one)
            assert one.told[3:] == [("revoked", kept), ("assigned", everything)]


@pytest.mark.parametrize("settings", [{}, COOPERATIVE], ids=["eager", "cooperative"])
async def test_no_record_is_passed_over_when_members_are_killed(settings: dict[str, object], autojump_clock) -> None:
    async with a_cluster() as cluster:
        workers = [Worker(cluster, str(number), auto_commit_interval_ms=300, **settings) for number in range(3)]
        sent: list[bytes] = []
        async with trio.open_nursery() as nursery:
            for worker in workers:
                nursery.start_soon(worker.run)
            await shared(cluster, *workers)
            for life in range(4):
                sent += await produce(cluster, life * 10, 10)
                await trio.sleep(0.7)
                killed = workers.pop(0)
                killed.kill()
                workers.append(Worker(cluster, f"next {life}", auto_commit_interval_ms=300, **settings))
                workers[-1].seen = killed.seen  # what was worked on
                nursery.start_soon(workers[-1].run)
                await shared(cluster, *workers)
            await cluster.until(lambda: {each for w in workers for each in w.seen} == set(sent), "all is read")
            for worker in workers:
                worker.stop()
        async with cluster.consumer(group_id="g") as reader:
            committed = await reader.committed(ALL)
            assert {at.offset for at in committed.values() if at is not None} == {40}


async def test_what_is_committed_was_handed_out_not_only_fetched(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 10)
        first = TopicPartition("orders", 0)
        async with cluster.consumer(group_id="g", max_poll_records=1, auto_commit_interval_ms=0) as consumer:
            consumer.subscribe(["orders"])
            given = 0
            while given < 3:
                for partition, records in (await consumer.poll(timeout_ms=1000)).items():
                    given += len(records) if partition == first else 0
                await trio.sleep(5)  # the commit that this poll began is through, and its own record is not in it
            assert (await consumer.committed([first]))[first].offset == 2


async def test_when_partitions_are_revoked_what_was_read_of_them_is_committed(autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g") as reader:
        sent = await produce(cluster, 0, 5)
        one, two = (Worker(cluster, name, auto_commit_interval_ms=3_600_000) for name in ("one", "two"))
        committed: list[set[int | None]] = []

        async def revoked(gone: list[TopicPartition]) -> None:
            found = await reader.committed(gone)
            committed.append({None if at is None else at.offset for at in found.values()})

        one.subscribe = lambda: one.consumer.subscribe(["orders"], on_revoked=revoked)
        one.delay_commits(2)
        async with running(one):
            await cluster.until(lambda: len(one.seen) == len(sent), "all is read")
            async with running(two):
                await shared(cluster, one, two)
                assert committed == [{5}]


async def test_what_a_block_that_ends_by_an_error_was_given_last_comes_again(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 3)
        for is_well in (False, True):
            with trio.fail_after(60):
                try:
                    async with cluster.consumer(group_id="g", max_poll_records=100) as consumer:
                        consumer.subscribe(["orders"])
                        given = 0
                        while given < 3 * PARTITIONS:
                            given += sum(map(len, (await consumer.poll(timeout_ms=1000)).values()))
                        if not is_well:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    pass
            async with cluster.consumer(group_id="g") as reader:
                committed = set((await reader.committed(ALL)).values())
                assert (committed == {OffsetAndMetadata(3, "", 0)}) is is_well


async def test_commits_survive_their_coordinator(autojump_clock) -> None:
    async with a_cluster() as cluster:
        worker = Worker(cluster, enable_auto_commit=False)
        coordinator = GroupClient(cluster)
        acked = -1
        async with running(worker):
            await shared(cluster, worker)
            for life in range(3):
                await coordinator.find()
                down = coordinator.coordinator_id

                async def commit(number: int) -> None:
                    nonlocal acked
                    await worker.consumer.commit({ALL[0]: number})
                    acked = number

                async with trio.open_nursery() as nursery:
                    nursery.start_soon(commit, life)
                    await trio.lowlevel.checkpoint()
                    cluster.crash(down)
                    cluster.expire_session(down)
                assert acked == life
                assert (await worker.consumer.committed([ALL[0]]))[ALL[0]] == OffsetAndMetadata(life)
                await cluster.start_broker(down)
                partition = TopicPartition(OFFSETS_TOPIC, 0)
                await cluster.until(lambda at=partition: len(cluster.isr(at)) == 3, "it is in sync again")
            assert worker.told == [("assigned", list(range(PARTITIONS)))], "the group went on"


async def test_a_join_does_not_wait_for_a_coordinator_that_has_stopped(autojump_clock) -> None:
    async with a_cluster(group_initial_rebalance_delay_ms="20000") as cluster:
        worker, coordinator = Worker(cluster), GroupClient(cluster)
        await coordinator.find()
        async with running(worker):
            await trio.sleep(5)
            cluster.pause(coordinator.coordinator_id)
            cluster.expire_session(coordinator.coordinator_id)
            await cluster.until(lambda: is_shared(worker), "the next one has let it join", within_s=120)
        cluster.resume(coordinator.coordinator_id)


async def test_a_static_member_finds_its_place_again(autojump_clock) -> None:
    async with a_cluster() as cluster:
        one = Worker(cluster, "one", group_instance_id="1")
        two = Worker(cluster, "two", group_instance_id="2")
        async with running(two):
            async with running(one):
                await shared(cluster, one, two)
                generation = one.consumer.group_metadata.generation_id
                owned, told = one.owns, list(two.told)
            again = Worker(cluster, "one", group_instance_id="1")
            async with running(again):
                await shared(cluster, again, two)
                assert again.owns == owned
                assert again.consumer.group_metadata.generation_id == generation
                assert two.told == told, "nobody else noticed"
                assert again.consumer.group_metadata.member_id != one.consumer.group_metadata.member_id
            await cluster.until(lambda: len(two.owns) == PARTITIONS, "its session ended")


async def test_who_takes_the_place_of_a_static_member_fences_it(autojump_clock) -> None:
    async with a_cluster() as cluster:
        one, same = (Worker(cluster, name, group_instance_id="1") for name in ("one", "same"))
        async with running(one):
            await shared(cluster, one)
            async with running(same):
                await cluster.until(lambda: one.error is not None, "it is fenced")
                assert isinstance(one.error, FencedInstance)
                assert one.told[-1] == ("lost", list(range(PARTITIONS)))
                await cluster.until(lambda: len(same.owns) == PARTITIONS, "the other one has all")
                assert same.error is None


async def test_who_does_not_poll_leaves_and_comes_back(autojump_clock) -> None:
    async with a_cluster() as cluster:
        one, two = (Worker(cluster, name, max_poll_interval_ms=8_000) for name in ("one", "two"))
        async with running(one, two):
            await shared(cluster, one, two)
            owned = sorted(one.owns)
            await produce(cluster, 0, 1)
            await cluster.until(lambda: len(one.seen + two.seen) == PARTITIONS, "all is read")
            one.is_stuck = True
            await cluster.until(lambda: len(two.owns) == PARTITIONS, "the other one has its partitions")
            assert sorted(one.owns) == owned, "it was not told yet"
            with pytest.raises(CommitFailed, match="max_poll_interval_ms"):
                await one.consumer.commit()
            one.is_stuck = False
            await shared(cluster, one, two)
            assert one.told[-2] == ("lost", owned)
            assert one.error is None


async def test_a_member_that_the_group_let_go_cannot_commit(autojump_clock) -> None:
    async with a_cluster() as cluster:
        worker = Worker(cluster, enable_auto_commit=False, heartbeat_interval_ms=9_000)
        coordinator = GroupClient(cluster)
        async with running(worker):
            await shared(cluster, worker)
            metadata = worker.consumer.group_metadata
            coordinator.member_id = metadata.member_id
            await coordinator.leave()
            with pytest.raises(CommitFailed, match="to their next owner") as failed:
                await worker.consumer.commit({ALL[0]: 1})
            assert failed.value.code is ErrorCode.UNKNOWN_MEMBER_ID
            await cluster.until(lambda: ("lost", list(range(PARTITIONS))) in worker.told, "it notices")
            await shared(cluster, worker)
            await worker.consumer.commit({ALL[0]: 1})


async def test_a_pattern_takes_in_topics_that_come_and_lets_those_go_that_go(autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g", metadata_max_age_ms=1_000) as consumer:
        consumer.subscribe(pattern="orders.*|other")

        async def until_assigned(*topics: str) -> None:
            with trio.fail_after(60):
                while {each.topic for each in consumer.assignment} != set(topics):
                    await consumer.poll(timeout_ms=500)

        await until_assigned("orders")
        async with cluster.admin() as admin:
            await admin.create_topic("orders-late", 2, 3)
            await admin.create_topic("my-orders", 2, 3)
            await until_assigned("orders", "orders-late")
            assert consumer.subscription == ["orders", "orders-late"]
            await admin.delete_topic("orders-late")
            await until_assigned("orders")


async def test_more_partitions_are_assigned_as_they_come(autojump_clock) -> None:
    async with a_cluster() as cluster:
        workers = [Worker(cluster, str(number), metadata_max_age_ms=2_000) for number in range(2)]
        async with running(*workers):
            await shared(cluster, *workers)
            async with cluster.admin() as admin:
                await admin.create_partitions("orders", PARTITIONS + 2)
            owned = set(range(PARTITIONS + 2))
            await cluster.until(lambda: workers[0].owns | workers[1].owns == owned, "the new ones have owners")


async def test_commits_go_in_the_order_of_the_calls_and_keep_the_leader_epoch(autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g", enable_auto_commit=False) as consumer:
        await consumer.assign([ALL[0]])
        await produce(cluster, 0, 2)
        told = []
        for offset in range(5):
            consumer.commit_nowait(
                {ALL[0]: offset}, lambda offsets, error: told.append((offsets[ALL[0]].offset, error))
            )
        await consumer.commit({ALL[0]: OffsetAndMetadata(1, "here", 0)})
        assert told == [], "callbacks wait for a poll"
        assert await consumer.committed(ALL[:2]) == {ALL[0]: OffsetAndMetadata(1, "here", 0), ALL[1]: None}
        cluster.crash(leader := cluster.leader(ALL[0]))
        cluster.expire_session(leader)
        await cluster.until(lambda: cluster.leader(ALL[0]) not in (leader, -1), "another one leads")
        await produce(cluster, 2, 1)
        records = 0
        with trio.fail_after(60):
            while records < 3:
                records += sum(map(len, (await consumer.poll(timeout_ms=1000)).values()))
        assert told == [(offset, None) for offset in range(5)]
        assert records == 3
        await consumer.commit()
        assert await consumer.committed([ALL[0]]) == {ALL[0]: OffsetAndMetadata(3, "", 1)}


async def test_without_a_committed_offset_and_a_policy_the_program_decides(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 1)
        async with cluster.consumer(group_id="g", auto_offset_reset="none") as consumer:
            consumer.subscribe(["orders"])
            with trio.fail_after(60):
                with pytest.raises(OffsetOutOfRange, match=r"group 'g' has committed nothing for orders-0.*seek"):
                    while True:
                        await consumer.poll(timeout_ms=1000)
                consumer.seek_to_beginning()
                seen = 0
                while seen < PARTITIONS:
                    seen += sum(map(len, (await consumer.poll(timeout_ms=1000)).values()))


async def test_a_seek_within_the_callback_counts(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 4)
        async with cluster.consumer(group_id="g") as consumer:

            async def on_assigned(given: list[TopicPartition]) -> None:
                assert await consumer.position(given[0]) == 0
                for each in given:
                    consumer.seek(each, 3)

            consumer.subscribe(["orders"], on_assigned=on_assigned)
            seen: list[int] = []
            with trio.fail_after(60):
                while len(seen) < PARTITIONS:
                    for records in (await consumer.poll(timeout_ms=1000)).values():
                        seen += [record.offset for record in records]
            assert set(seen) == {3}


async def test_a_callback_that_fails_ends_the_poll_and_not_the_membership(autojump_clock) -> None:
    async with a_cluster() as cluster, cluster.consumer(group_id="g") as consumer:

        async def on_assigned(given: list[TopicPartition]) -> None:
            with pytest.raises(RuntimeError, match="callback"):
                await consumer.poll()
            raise ZeroDivisionError

        consumer.subscribe(["orders"], on_assigned=on_assigned)
        with trio.fail_after(60):
            with pytest.raises(ZeroDivisionError):
                while True:
                    await consumer.poll(timeout_ms=1000)
            assert set(consumer.assignment) == set(ALL)
            assert await consumer.poll(timeout_ms=1000) == {}
            await consumer.unsubscribe()
            assert consumer.assignment == []
            await consumer.assign(ALL[:1])
