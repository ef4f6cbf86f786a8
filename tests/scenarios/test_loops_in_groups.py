"""Loops over a consumer in a group: what they commit, and that they stay members."""

from __future__ import annotations

from typing import Any

import pytest
import trio

from scenarios.test_subscriptions import ALL, PARTITIONS, a_cluster, produce
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster

ONE = TopicPartition("orders", 0)


async def committed(cluster: MemoryCluster) -> dict[int, int]:
    async with cluster.consumer(group_id="g") as client:
        found = await client.committed(ALL)
    return {each.partition: at.offset for each, at in found.items() if at is not None and at.offset > 0}


def taken_of(seen: list[Any]) -> dict[int, int]:
    """By partition, where a consumer stands that had these."""
    return {record.partition: record.offset + 1 for record in seen}


@pytest.mark.parametrize("ends", ["break", "error"])
async def test_the_end_of_the_block_commits_what_was_handed_out_and_no_more(ends: str, autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 20)
        seen = []
        with pytest.raises(KeyError) if ends == "error" else trio.CancelScope():
            async with cluster.consumer(group_id="g", auto_commit_interval_ms=3_600_000) as client:
                client.subscribe(["orders"])
                async for record in client:
                    seen.append(record)
                    if len(seen) == 33:
                        if ends == "error":
                            raise KeyError
                        break
        assert await committed(cluster) == (taken_of(seen) if ends == "break" else {})


async def test_a_commit_within_a_loop_counts_up_to_the_record_at_hand(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 5)
        seen = []
        async with cluster.consumer(group_id="g", enable_auto_commit=False) as client:
            client.subscribe(["orders"])
            async for record in client:
                seen.append(record)
                await client.commit()
                assert await committed(cluster) == taken_of(seen)
                if len(seen) == 7:
                    break


async def test_a_slow_loop_stays_in_its_group_and_commits_on_its_way(autojump_clock) -> None:
    async with a_cluster() as cluster:
        await produce(cluster, 0, 10)
        settings = {"group_id": "g", "max_poll_interval_ms": 5_000, "auto_commit_interval_ms": 2_000}
        lost: list[Any] = []
        async with cluster.consumer(**settings) as client:
            client.subscribe(["orders"], on_lost=lost.append)
            seen = []
            async for record in client:  # one poll has lent them all
                seen.append(record)
                if len(seen) == 30:
                    break
                await trio.sleep(1)
            told = await committed(cluster)
            assert lost == [] and sorted(each.partition for each in client.assignment) == list(range(PARTITIONS))
            assert 20 < sum(told.values()) <= 30, "the last ones were committed less than two or three seconds ago"
            assert all(told[partition] <= offset for partition, offset in taken_of(seen).items())


async def test_partitions_that_go_to_others_leave_the_loop_and_nothing_comes_twice(autojump_clock) -> None:
    async with a_cluster() as cluster:
        sent = await produce(cluster, 0, 30)
        seen: list[bytes] = []

        async def work(name: str, after_s: float) -> None:
            await trio.sleep(after_s)
            async with cluster.consumer(group_id="g", client_id=name, consumer_timeout_ms=15_000) as client:
                client.subscribe(["orders"])
                async for record in client:
                    seen.append(record.value)
                    await trio.sleep(0.2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(work, "one", 0)
            nursery.start_soon(work, "two", 8)
        assert sorted(seen) == sorted(sent)
