"""A follower that throttles what it is filled with: what it asks for, in which order, how much, and when again."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
import pytest
from trio.testing import MockClock

from strandline.broker.replication.deadlines import NEVER
from strandline.broker.replication.held_fetches import LEAST_BYTES, FetchPlan, HeldFetches
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replication_quota import ReplicationQuota
from strandline.protocol.types import TopicPartition
from support.replica_site import ReplicaSite

RATE = 1000
MOST = 400
NOW = 100.0


class Held:
    """A fetcher's partitions `t-0` … of broker 2, all of them empty; the odd ones are not throttled."""

    def __init__(self, partitions: list[Partition]) -> None:
        self.quota = ReplicationQuota(RATE, 1, 11)
        self.fetches = HeldFetches(self.quota)
        self.partitions = partitions

    def plan(self, now: float = NOW) -> FetchPlan:
        return self.fetches.plan(self.partitions, MOST, now)

    def asked(self, plan: FetchPlan) -> list[int]:
        return [partition.topic_partition.partition for partition in plan.asked]

    def limits(self, plan: FetchPlan) -> dict[int, int]:
        return {partition.topic_partition.partition: count for partition, count in plan.max_bytes.items()}

    def is_behind(self, *indexes: int) -> None:
        for index in indexes:
            self.fetches.answered(self.partitions[index], 0, 10, 0)

    def is_in_sync(self, *indexes: int) -> None:
        for index in indexes:
            self.fetches.answered(self.partitions[index], 0, 0, 0)


@asynccontextmanager
async def held_of(count: int) -> AsyncIterator[Held]:
    named = ",".join(f"{index}:1" for index in range(0, count, 2))
    site = ReplicaSite(topic={"follower.replication.throttled.replicas": named})
    yield Held([await site.follow_leader(TopicPartition("t", index)) for index in range(count)])


async def test_who_is_behind_asks_for_what_is_free_and_one_of_them_first(autojump_clock: MockClock) -> None:
    async with held_of(8) as held:
        held.is_behind(2, 4, 6)
        held.is_in_sync(0)
        plan = held.plan()
        assert held.asked(plan) == [2, 0, 1, 3, 4, 5, 6, 7]
        assert held.limits(plan) == {2: 400, 4: 400, 6: 200}
        assert (plan.reserved_bytes, plan.resume_at) == (1000, NEVER)


async def test_where_nothing_is_free_who_is_behind_is_left_out_and_nobody_else(autojump_clock: MockClock) -> None:
    async with held_of(8) as held:
        held.is_behind(2, 4)
        held.is_in_sync(0)
        held.quota.take(RATE, NOW)
        plan = held.plan()
        assert held.asked(plan) == [0, 1, 3, 5, 6, 7]
        assert held.limits(plan) == {6: LEAST_BYTES}, "nobody knows yet whether it is behind"
        assert plan.resume_at == held.quota.ready_at(NOW)
        assert held.asked(held.plan(plan.resume_at))[0] == 2


async def test_what_other_fetchers_ask_for_is_not_free(autojump_clock: MockClock) -> None:
    async with held_of(1) as held:
        held.is_behind(0)
        plan = held.plan()
        other = HeldFetches(held.quota)
        other.answered(held.partitions[0], 0, 10, 0)
        assert held.limits(other.plan(held.partitions, 10**6, NOW)) == {0: RATE - MOST}
        held.fetches.settle(plan, NOW)
        assert held.quota.room_bytes("a third one", NOW) == MOST, "nothing came"


async def test_what_came_counts_and_not_what_was_asked_for(autojump_clock: MockClock) -> None:
    async with held_of(1) as held:
        held.is_behind(0)
        plan = held.plan()
        held.fetches.answered(held.partitions[0], 0, 10, 700)
        held.fetches.settle(plan, NOW)
        assert held.quota.room_bytes("somebody", NOW) == RATE - 700


async def test_what_comes_to_who_is_in_sync_does_not_count(autojump_clock: MockClock) -> None:
    async with held_of(1) as held:
        held.fetches.answered(held.partitions[0], 0, 0, 700)
        held.fetches.settle(FetchPlan([]), NOW)
        assert held.quota.room_bytes("somebody", NOW) == RATE


@pytest.mark.parametrize("change", ["a leader's epoch", "a fetch that begins anew"])
async def test_who_has_heard_nothing_of_its_leader_yet_is_asked_for(change: str, autojump_clock: MockClock) -> None:
    async with held_of(1) as held:
        held.is_behind(0)
        held.quota.take(RATE, NOW)
        assert not held.plan().asked
        if change == "a leader's epoch":
            held.partitions[0].leader_epoch += 1
        else:
            held.fetches.forget(held.partitions[0])
        assert held.limits(held.plan()) == {0: LEAST_BYTES}


async def test_who_is_not_throttled_any_more_is_asked_for_as_always(autojump_clock: MockClock) -> None:
    async with held_of(2) as held:
        held.is_behind(0)
        held.quota.take(RATE, NOW)
        assert held.asked(held.plan()) == [1]
        config = held.partitions[0].config
        held.partitions[0].config = msgspec.structs.replace(config, throttled_followers=None)
        plan = held.plan()
        assert (held.asked(plan), held.limits(plan), plan.resume_at) == ([0, 1], {}, NEVER)
