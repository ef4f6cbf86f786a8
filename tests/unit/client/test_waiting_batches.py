"""Batches that cannot be sent for now: who waits behind them, and how their turn comes."""

from __future__ import annotations

import os

import pytest
import trio

from strandline import Producer
from strandline.client import TrioProducer
from strandline.client.errors import ClientClosed, FlushTimedOut, UnknownTopic
from strandline.protocol.types import NO_BROKER, TopicPartition
from unit.client.fake_broker import FakeCluster

BATCH_BYTES = 16_384


async def test_who_waits_for_memory_goes_on_when_batches_are_closed_that_cannot_be_sent(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """An open batch keeps all that it may need; what it does not is free once it is closed, whoever leads."""
    cluster = FakeCluster()
    cluster.add_topic("t", 4)
    for index in range(4):
        cluster.move(TopicPartition("t", index), NO_BROKER)
    settings = {"buffer_memory": 2 * BATCH_BYTES, "batch_size": BATCH_BYTES, "linger_ms": 60_000}
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioProducer(cluster.bootstrap, environment=cluster.environment(), **settings) as producer:
            begun = trio.current_time()
            deliveries = [await producer.send("t", b"small", partition=index) for index in range(4)]
            assert trio.current_time() - begun < producer.settings.max_block_ms / 10_000
            for index in range(4):
                cluster.move(TopicPartition("t", index), 0)
            for delivery in deliveries:
                await delivery
        nursery.cancel_scope.cancel()


async def test_a_topic_that_was_lost_is_asked_about_while_records_wait_for_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Also where a call for it has run into its time meanwhile; and no longer than they wait."""
    cluster, partition = FakeCluster(), TopicPartition("t", 0)
    cluster.add_topic("t")
    settings = {"allow_auto_create_topics": False, "max_block_ms": 500, "linger_ms": 0}
    async with trio.open_nursery() as nursery:
        await cluster.start(nursery)
        async with TrioProducer(cluster.bootstrap, environment=cluster.environment(), **settings) as producer:
            await (await producer.send("t", b"first"))
            cluster.move(partition, NO_BROKER)
            waits = await producer.send("t", b"waits")
            leader, topic = (0, cluster.leaders[partition][1] + 1), cluster.topics.pop("t")
            await trio.sleep(2)
            with pytest.raises(UnknownTopic):
                await producer.partitions_for("t")
            cluster.topics["t"] = topic
            cluster.leaders[partition] = leader
            assert (await waits).offset == 1
            assert producer._accumulator.topics() == set()
        nursery.cancel_scope.cancel()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the interpreter's, about forks of programs with threads
def test_a_fork_of_a_program_whose_memory_is_used_up_is_told_that_it_is_one() -> None:
    producer = Producer("127.0.0.1:1", buffer_full="drop", buffer_memory=1_000, batch_size=500)
    producer.send("t", b"x" * 700)
    child = os.fork()
    if child == 0:  # pragma: no cover  # another process
        try:
            producer.send_many("t", [(None, b"x" * 700)])
        except ClientClosed as error:
            os._exit(0 if "before the process forked" in str(error) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    with pytest.raises(FlushTimedOut):
        producer.close(0)
