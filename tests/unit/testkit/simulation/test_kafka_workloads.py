"""Clients of Kafka's dialect in a simulation: they get through changes of leaders, and note what they are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from strandline.broker.groups.shards import OFFSETS_TOPIC, partition_of
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.environment import EPOCH_MS
from strandline.testkit.inspection import log_records, records_on
from strandline.testkit.simulation.anomalies import Excuses, FinalLog, anomalies
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.history import Outcome, Stream
from strandline.testkit.simulation.kafka_access import KafkaAccess, Leader
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.options import TopicPlan, draw_options
from strandline.testkit.simulation.state_rules import StateRules
from strandline.testkit.simulation.workloads.kafka_consuming import consume_by_kafka
from strandline.testkit.simulation.workloads.kafka_groups import read_in_kafka_groups
from strandline.testkit.simulation.workloads.kafka_producing import produce_by_kafka
from strandline.testkit.simulation.workloads.kafka_reader import KafkaReader, Readings, Style
from strandline.testkit.simulation.workloads.kafka_watching import watch_end_offsets
from strandline.testkit.simulation.workloads.table import Workload
from strandline.testkit.simulation.world import TopicLife, World

PLAN = TopicPlan("t", 2, 3, 2, -1, {"min.insync.replicas": "2"})
T0 = TopicPartition("t", 0)
OFFSETS = TopicPartition(OFFSETS_TOPIC, partition_of("kafka", 2))
STREAMS = [Stream(TopicPartition("t", partition), 1) for partition in range(2)]
RUN_S = 6.0


@asynccontextmanager
async def load(seed: int, *workloads: Workload) -> AsyncIterator[World]:
    """The world while it is under that load, which has ended behind the block."""
    options = replace(draw_options(seed, {}, ()), topics=(PLAN,), write_pause_s=0.1)
    config = {
        name: options.config[name] for name in ("offsets.topic.num.partitions", "group.initial.rebalance.delay.ms")
    }
    cluster = MemoryCluster(3, config=config)
    world = World(options, cluster, cluster.admin())
    god_view = GodView(world)
    cluster.zookeeper.tree.on_apply = StateRules(world, god_view, Losses(world, god_view)).applied
    async with cluster.running(), world.admin as admin:
        await admin.create_topic("t", PLAN.partitions, PLAN.replication, configs=PLAN.configs)
        world.topics["t"] = TopicLife(PLAN, partitions=PLAN.partitions)
        async with trio.open_nursery() as nursery:
            for workload in workloads:
                nursery.start_soon(workload, world)
            await trio.sleep(RUN_S)
            yield world
            await trio.sleep(RUN_S)
            world.is_over = True
        await cluster.until(lambda: cluster.isr(T0) == [1, 2, 3], "all in sync")


@pytest.mark.parametrize("seed", range(6))
async def test_what_clients_are_told_is_true_though_the_leader_goes(seed: int, autojump_clock: MockClock) -> None:
    async with load(seed, produce_by_kafka, watch_end_offsets) as world:
        leader = world.cluster.leader(T0)
        if seed % 2:
            world.cluster.crash(leader)
        else:
            await world.cluster.stop(leader)
        await trio.sleep(1)
        await world.cluster.start_broker(leader)
    disk = world.cluster.nodes[1].disk
    logs = {
        stream: FinalLog(0, {offset: value or b"" for offset, value in records_on(disk, stream.tp).items()})
        for stream in world.topics["t"].streams
    }
    weak = Excuses(weak={write.value for write in world.history.writes if write.acks == 1})
    assert anomalies(world.history, logs, weak) == []
    told = {write.outcome for write in world.history.writes if write.ended_s > RUN_S}
    acks = world.history.writes[0].acks
    assert told == {Outcome.UNKNOWN} if acks == 0 else Outcome.OK in told
    assert all(log.records for log in logs.values())


async def test_records_are_of_today_and_have_the_keys_that_the_history_has(autojump_clock: MockClock) -> None:
    async with load(1, produce_by_kafka) as world:
        records = log_records(world.cluster.logs(T0)[1])
        keys = {write.value: write.key for write in world.history.writes}
        assert records and len({record.key for record in records}) > 1
        assert all(record.key == keys[record.value or b""] for record in records)
        assert min(record.timestamp_ms for record in records) >= EPOCH_MS


@pytest.mark.parametrize("seed", range(6))
async def test_a_consumer_reads_everything_once_though_leaders_move(seed: int, autojump_clock: MockClock) -> None:
    async with load(seed, consume_by_kafka, watch_end_offsets) as world:
        async with world.cluster.producer() as producer:
            for number in range(20):
                await (await producer.send("t", b"v%d" % number, partition=number % 2))
                await trio.sleep(0.1)
            await world.cluster.stop(leader := world.cluster.leader(T0))
            for number in range(20, 40):
                await (await producer.send("t", b"v%d" % number, partition=number % 2))
        await world.cluster.start_broker(leader)
    read = [value for poll in world.history.polls for _, value in poll.records]
    assert sorted(read) == sorted(b"v%d" % number for number in range(40))
    assert world.sometimes["kafka: positions validated"]
    assert not world.sometimes["kafka: truncations told"]
    watched = [end.offset for end in world.history.end_offsets if end.stream.tp == T0 and "watcher" in end.process]
    assert watched == sorted(watched) and watched[-1] == 20


class _Begins(KafkaAccess):
    """Who leads, and where the partition begins by him."""

    def __init__(self, cluster: MemoryCluster, leader: Leader, offset: int) -> None:
        super().__init__(cluster, "t")
        self._leaders[0] = leader
        self._offset = offset

    async def ask(self, *_: object, **__: object) -> Any:
        part = SimpleNamespace(error_code=0, offset=self._offset)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[part])])


@pytest.mark.parametrize(("leader", "begins_at", "ends"), [(1, 5, [37]), (1, 39, []), (2, 5, [])])
async def test_what_was_out_of_range_lay_behind_the_end_only_of_the_log_that_began_before(
    leader: int, begins_at: int, ends: list[int], autojump_clock: MockClock
) -> None:
    """The next leader may not know of a deletion that nobody was told is done."""
    async with load(1) as world:
        refused_by, asked = Leader(1, 7), Leader(leader, 6 + leader)
        style = Style(12, has_sessions=False, tells_fetched_epoch=False, min_bytes=1, partition_max_bytes=1)
        readings = Readings(world, "c", style, is_over=lambda: False)
        reader = KafkaReader(readings, world.topics["t"], _Begins(world.cluster, asked, begins_at), starts={0: None})
        position = reader.positions[0]
        position.refused = 38, refused_by
        await reader._begin(position, asked)
        assert position.offset == begins_at
        assert [end.offset for end in world.history.end_offsets if end.is_bound] == ends


@pytest.mark.parametrize("seed", range(4))
async def test_a_group_commits_all_that_there_is_though_its_coordinator_goes(
    seed: int, autojump_clock: MockClock
) -> None:
    async with load(seed, produce_by_kafka, read_in_kafka_groups) as world:
        await world.cluster.until(lambda: any(each.outcome is Outcome.OK for each in world.history.commits), "commits")
        coordinator = world.cluster.leader(OFFSETS)
        world.cluster.crash(coordinator)
        await trio.sleep(1)
        await world.cluster.start_broker(coordinator)
    assert world.violations == []
    history = world.history
    assert len({each.process for each in history.ownerships}) > 1
    last = {each.stream.tp: each.offset for each in history.commits if each.outcome is Outcome.OK}
    assert last == {stream.tp: len(records_on(world.cluster.nodes[1].disk, stream.tp)) for stream in STREAMS}
    logs = {
        each: FinalLog(0, {at: value or b"" for at, value in records_on(world.cluster.nodes[1].disk, each.tp).items()})
        for each in STREAMS
    }
    assert anomalies(history, logs, Excuses(weak={write.value for write in history.writes if write.acks == 1})) == []
