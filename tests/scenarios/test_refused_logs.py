"""A topic with a log that a broker refuses, or cannot look for, is not gone before an operator has dealt with that."""

from __future__ import annotations

import errno
from typing import Any

import pytest

from strandline.client.errors import AnsweredError
from strandline.protocol.errors import ErrorCode
from strandline.testkit.cluster import MemoryCluster
from support.scenario import T0

REFUSES = 2
FOLDER = f"/data/{T0}"


def held_up(cluster: MemoryCluster) -> dict[int, str]:
    """Live broker → what it tells of the topic's deletion."""
    return {
        number: "".join(each.why for each in cluster.broker(number).data.metadata.unfinished_deletions)
        for number, node in cluster.nodes.items()
        if node.is_up
    }


async def test_a_deletion_waits_for_a_refused_log_says_so_and_goes_on_when_it_was_moved_away(
    autojump_clock: Any,
) -> None:
    config = {"log.segment.bytes": "300", "num.partitions": "1"}
    async with MemoryCluster(brokers=2, config=config).running() as cluster:
        async with cluster.admin() as admin, cluster.producer() as producer:
            await admin.create_topic(T0.topic, 1, 2)
            for number in range(30):
                await producer.send(T0.topic, b"%d" % number, partition=0)
                await producer.flush()
        await cluster.stop(REFUSES)
        disk = cluster.nodes[REFUSES].disk
        logs = [name for name in disk.listdir(FOLDER) if name.endswith(".log")]
        assert len(logs) > 3
        disk.unlink(f"{FOLDER}/{logs[1]}")
        await cluster.start_broker(REFUSES)
        await cluster.until(lambda: T0 in cluster.broker(REFUSES).log_manager.refused, "it is refused")
        await cluster.until(
            lambda: any("broker refused a role" in line and "was not loaded" in line for line in cluster.history),
            "the controller is told why",
        )
        left = {name: disk.read(f"{FOLDER}/{name}") for name in disk.listdir(FOLDER)}
        async with cluster.admin() as admin:
            for _ in range(2):
                with pytest.raises(AnsweredError) as caught:
                    await admin.delete_topic(T0.topic, timeout_ms=8000)
                assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
                assert f"broker {REFUSES} cannot delete {T0}: its log is not deleted" in str(caught.value)
                assert f"{FOLDER} was not loaded" in str(caught.value)
            assert {name: disk.read(f"{FOLDER}/{name}") for name in disk.listdir(FOLDER)} == left
            told = [line for line in cluster.history if "broker cannot delete a replica yet" in line]
            assert len(told) == 1, "once, not at every attempt"
            assert all(f"{FOLDER} was not loaded" in what for what in held_up(cluster).values())
            await cluster.stop(REFUSES)
            await cluster.until(lambda: "is not there" in held_up(cluster)[1], "a deletion waits for its broker, too")
            disk.rename(FOLDER, "/data/kept-by-the-operator")
            await cluster.start_broker(REFUSES)
            await cluster.until(lambda: not cluster.zookeeper.tree.children("/brokers/topics"), "the topic is gone")
            await cluster.until(lambda: not any(held_up(cluster).values()), "nothing is held up any more")
            await admin.create_topic(T0.topic, 1, 2)
        await cluster.until(lambda: len(cluster.isr(T0)) == 2, "made anew on both")
        assert disk.listdir("/data/kept-by-the-operator")


async def test_a_deletion_waits_for_a_log_that_may_lie_in_a_directory_that_could_not_be_read(
    autojump_clock: Any,
) -> None:
    config = {"num.partitions": "1", "log.dirs": "/data,/more"}
    async with MemoryCluster(brokers=2, config=config).running() as cluster, cluster.admin() as admin:
        disk = cluster.nodes[REFUSES].disk
        for number in range(4):
            await admin.create_topic(f"topic{number}", 1, 2)
        unread, read = (
            next(name for name in disk.listdir(folder) if name.startswith("topic")) for folder in ("/more", "/data")
        )
        await cluster.stop(REFUSES)
        fault = disk.fail("open", "/more/.lock", errno.EIO)
        await cluster.start_broker(REFUSES)
        await admin.delete_topic(read.rpartition("-")[0])
        with pytest.raises(AnsweredError, match=f"cannot delete {unread}: .* could not be read") as caught:
            await admin.delete_topic(unread.rpartition("-")[0], timeout_ms=8000)
        assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
        assert disk.listdir(f"/more/{unread}")
        fault.cancel()
        await cluster.stop(REFUSES)
        await cluster.start_broker(REFUSES)
        topics = cluster.zookeeper.tree.children
        await cluster.until(lambda: len(topics("/brokers/topics")) == 2, "the topic is gone")
        assert unread not in disk.listdir("/more")
