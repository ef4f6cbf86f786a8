"""What must hold of replicas once a run has come to rest: each thing that does not is told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace

import msgspec
import pytest
import trio
from trio.testing import MockClock

from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import ControllerZnode, PartitionStateZnode
from strandline.runtime.coordination import Delete, SetData
from strandline.storage.disk.checkpoints import LOG_START_OFFSETS
from strandline.storage.log.log_start import raise_log_start
from strandline.testkit.agreement import disagreements
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.history import Outcome, Poll, Stream, Write
from strandline.testkit.simulation.losses import Losses
from strandline.testkit.simulation.options import TopicPlan, draw_options
from strandline.testkit.simulation.replicas import differences
from strandline.testkit.simulation.rest import folders_left
from strandline.testkit.simulation.shadows import Copy
from strandline.testkit.simulation.state_rules import StateRules
from strandline.testkit.simulation.workloads.changing_topics import create_topic
from strandline.testkit.simulation.world import Head, World

PLAN = TopicPlan("t", 1, 3, 2, -1, {})
COMPACTED = TopicPlan("c", 1, 3, 2, -1, {"cleanup.policy": "compact"})
STREAM = Stream(TopicPartition("t", 0), 1)
LAYOUT = {TopicPartition(topic, 0): [1, 2, 3] for topic in ("t", "c")}


@pytest.fixture
async def world(autojump_clock: MockClock) -> AsyncIterator[World]:
    """Three brokers, a topic with five records on all of them, another one that is compacted."""
    cluster = MemoryCluster(3)
    made = World(draw_options(1, {}, []), cluster, cluster.admin())
    async with cluster.running(), made.admin, cluster.producer(linger_ms=0) as producer:
        for plan in (PLAN, COMPACTED):
            await create_topic(made, plan)
            for number in range(5):
                await (await producer.send(plan.name, b"%d" % number, key=b"k", partition=0))
            tp = TopicPartition(plan.name, 0)
            await cluster.until(
                lambda tp=tp: {each.log_end_offset for each in cluster.logs(tp).values()} == {5}, "copies"
            )
            await cluster.until(
                lambda tp=tp: all(cluster.partition(n, tp).high_watermark == 5 for n in (1, 2, 3)), "known"
            )
        yield made


def layout_of(world: World) -> dict[TopicPartition, list[int]]:
    """As it is assigned, preferred replicas first."""
    return {tp: world.topic_znode(tp.topic).partitions[tp.partition] for tp in LAYOUT}


async def test_nothing_is_told_where_all_is_well(world: World, autojump_clock: MockClock) -> None:
    assert [
        *differences(world, STREAM),
        *differences(world, world.topics["c"].stream(0)),
        *folders_left(world, LAYOUT),
        *disagreements(world.cluster, layout_of(world)),
    ] == []


async def test_one_broker_is_controller_and_all_know_it_by_zookeeper(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    cluster, layout = world.cluster, layout_of(world)
    cluster.broker(3).data.metadata.controller_id = 2
    assert list(disagreements(cluster, layout)) == ["broker 3 takes 2 for the controller"]
    cluster.broker(3).data.metadata.controller_id = 1
    acts, other = cluster.broker(1).controller, cluster.broker(2).controller
    monkeypatch.setattr(other, "_term", acts.term)
    assert next(disagreements(cluster, layout)) == "controller is 1, and [1, 2] act as that"
    monkeypatch.undo()
    cluster.zookeeper.tree.apply([Delete(ControllerZnode.PATH)], 0)
    assert list(disagreements(cluster, layout)) == ["controller is nobody, and [1] act as that"]


async def test_a_replica_begins_where_records_were_deleted_to_and_nowhere_else(
    world: World, autojump_clock: MockClock
) -> None:
    raise_log_start(world.cluster.logs(STREAM.tp)[2], 3, 5)
    (told,) = differences(world, STREAM)
    assert told == "log-start: t-0: begins on broker 2 at 3, 0 at most; 0 was answered, 0 asked for"
    world.heads[STREAM] = Head(asked=4)
    assert list(differences(world, STREAM)) == []
    world.heads[STREAM].answered = 3
    assert [text.split(",")[0] for text in differences(world, STREAM)] == [
        "log-start: t-0: begins on broker 1 at 0",
        "log-start: t-0: begins on broker 3 at 0",
    ]


async def test_of_what_lies_below_the_start_of_every_log_nobody_has_a_copy_that_counts(
    world: World, autojump_clock: MockClock
) -> None:
    await world.admin.delete_records({STREAM.tp: 3})
    copies = Losses(world, GodView(world))._copies(STREAM)
    assert {copy.offset: is_read for copy, is_read in copies.items()} == {
        **dict.fromkeys((0, 1, 2), False),
        **dict.fromkeys((3, 4), True),
    }
    world.cluster.nodes[2].disk.unlink(f"{LOG_DIR}/{LOG_START_OFFSETS}")
    assert all(Losses(world, GodView(world))._copies(STREAM).values()), "one of them begins at 0"


async def test_what_was_deleted_is_forgotten_with_the_last_disk_that_knew_it(
    world: World, autojump_clock: MockClock
) -> None:
    losses, cluster = Losses(world, GodView(world)), world.cluster
    await world.admin.delete_records({STREAM.tp: 3})
    head = world.heads[STREAM] = Head(asked=3, answered=3)
    for broker, left in ((1, 3), (2, 3), (3, 0)):
        with losses.by_disaster([broker]):
            cluster.crash(broker)
            cluster.replace_disk(broker)
        assert head.answered == left


async def test_who_leads_with_the_last_log_that_is_left_does_not_know_what_was_deleted_while_it_was_away(
    world: World, autojump_clock: MockClock
) -> None:
    losses, cluster = Losses(world, GodView(world)), world.cluster
    cluster.crash(3)
    await world.admin.delete_records({STREAM.tp: 3})
    head = world.heads[STREAM] = Head(asked=3, answered=3)
    losses.note_last_resort(STREAM.tp, 2)
    assert head.answered == 3
    losses.note_last_resort(STREAM.tp, 3)
    assert head.answered == 0


async def test_whatever_stood_where_a_disaster_took_the_end_of_a_log_is_gone_compacted_or_not(
    world: World, autojump_clock: MockClock
) -> None:
    losses, cluster, stream = Losses(world, GodView(world)), world.cluster, world.topics["c"].stream(0)
    cluster.crash(3)
    async with cluster.producer(linger_ms=0) as producer:
        for number in range(5, 8):
            await (await producer.send("c", b"%d" % number, key=b"k", partition=0))
    for offset in (4, 6, 8):
        value = b"compacted away at %d" % offset
        world.history.writes.append(Write("p", stream, value, -1, 0.0, 1.0, Outcome.OK, offset))
    world.history.polls.append(Poll("c", stream, 1, 1.0, [(4, b"read at 4"), (7, b"read at 7")]))
    with losses.by_disaster([1, 2]):
        for broker in (1, 2):
            cluster.crash(broker)
            cluster.replace_disk(broker)
    assert world.excuses.gone == {b"5", b"6", b"7", b"compacted away at 6", b"read at 7"}


async def test_a_log_begins_with_its_first_segment_where_no_checkpoint_tells_of_it_yet(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """What lies below was deleted, and is promised no more once a disaster has taken it from all others."""
    god_view, cluster, starts = GodView(world), world.cluster, dict[TopicPartition, int]()

    def copies_left(tp: TopicPartition, left: object, gone: object, start_offset: int) -> set[Copy]:
        starts[tp] = start_offset
        return set()

    monkeypatch.setattr(god_view, "copies_left", copies_left)
    disk, folder = cluster.nodes[1].disk, f"{LOG_DIR}/{STREAM.tp}"
    disk.rename(f"{folder}/{0:020}.log", f"{folder}/{5:020}.log")
    with Losses(world, god_view).by_disaster([3]):
        cluster.crash(3)
    assert (starts[STREAM.tp], starts[TopicPartition("c", 0)]) == (5, 0)


async def test_what_only_a_former_replica_has_is_gone(world: World, autojump_clock: MockClock) -> None:
    losses, cluster, tp = Losses(world, GodView(world)), world.cluster, STREAM.tp
    cluster.crash(2)
    await world.admin.alter_partition_reassignments({tp: [1]})
    await cluster.until(lambda: world.topic_znode("t").partitions[0] == [1], "moved")
    with losses.by_disaster([1]):
        cluster.crash(1)
        cluster.replace_disk(1)
    assert world.excuses.gone == {b"%d" % number for number in range(5)}


@pytest.mark.parametrize(
    ("died_before_s", "is_replaced", "is_gone"), [(0.1, True, True), (60.0, True, False), (0.1, False, False)]
)
async def test_what_only_those_have_who_go_is_gone_where_who_stays_lost_it_right_before(
    world: World,
    died_before_s: float,
    is_replaced: bool,
    is_gone: bool,
    monkeypatch: pytest.MonkeyPatch,
    autojump_clock: MockClock,
) -> None:
    losses, cluster = Losses(world, GodView(world)), world.cluster
    cluster.crash(1)
    if not is_replaced:
        cluster.nodes[1].disk.unlink(f"{LOG_DIR}/{STREAM.tp}/{0:020}.log")  # for another reason, long ago
    with losses.by_disaster([1]):
        if is_replaced:
            cluster.replace_disk(1)
    assert world.excuses.gone == set()
    await trio.sleep(died_before_s)
    monkeypatch.setattr(losses, "_replicas", lambda tp: [1])  # it is the only one that stays
    losses.note_departed(STREAM.tp, [2, 3])
    assert world.excuses.gone == ({b"%d" % number for number in range(5)} if is_gone else set())


async def test_who_gives_up_its_claim_while_it_is_removed_has_departed(
    world: World, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    god_view, departed = GodView(world), list[int]()
    losses, tp, path = Losses(world, god_view), STREAM.tp, PartitionStateZnode.path("t", 0)
    rules = StateRules(world, god_view, losses)
    topic = world.topic_znode("t")
    assert topic is not None
    monkeypatch.setattr(losses, "note_departed", lambda _, brokers: departed.extend(brokers))
    monkeypatch.setattr(world, "topic_znode", lambda _: msgspec.structs.replace(topic, removing_replicas={0: [2, 3]}))
    monkeypatch.setattr(rules, "_writer", lambda _: 2)
    before = world.states[tp] = PartitionStateZnode.decode(path, world.cluster.zookeeper.tree.get(path).data)
    rules.applied([SetData(path, before.without_claim(2).encode(), version=1)], 0)
    assert departed == [2] and not world.violations


async def test_replicas_that_differ_are_told(world: World, autojump_clock: MockClock) -> None:
    tp = TopicPartition("c", 0)
    for log in (world.cluster.logs(STREAM.tp)[3], world.cluster.logs(tp)[3]):
        log.truncate_to(4)
    assert list(differences(world, STREAM)) == ["replicas-differ: t-0: once all was at rest"]
    (told,) = differences(world, world.topics["c"].stream(0))
    assert told == "replicas-differ: c-0: newest records of keys: {b'k': 3} on broker 3, elsewhere {b'k': 4}"


async def test_a_folder_that_nobody_is_to_hold_is_left_over(world: World, autojump_clock: MockClock) -> None:
    disk = world.cluster.nodes[2].disk
    for name in ("gone-0", "t-0.0123456789abcdef0123456789abcdef-delete", "t-1.0123456789abcdef0123456789abcdef-stray"):
        disk.makedirs(f"{LOG_DIR}/{name}")
    assert len(list(folders_left(world, LAYOUT))) == 3


@pytest.mark.parametrize("strategy", ["none", "balanced"])
async def test_the_log_of_a_former_replica_stays_where_nobody_leads_before_an_operator_decides(
    world: World, strategy: str, autojump_clock: MockClock
) -> None:
    world.options = replace(world.options, config={"unclean.recovery.strategy": strategy})
    world.states[STREAM.tp] = PartitionStateZnode(
        controller_epoch=1, leader=NO_BROKER, leader_epoch=5, isr=[3], lossy=[3]
    )
    left = list(folders_left(world, {**LAYOUT, STREAM.tp: [1, 3]}))
    assert left == ([] if strategy == "none" else [f"a folder is left on broker 2: {STREAM.tp}"])


async def test_what_a_broker_that_was_away_keeps_for_an_operator_is_no_leftover(
    world: World, autojump_clock: MockClock
) -> None:
    name = "t-1.0123456789abcdef0123456789abcdef-stray"
    node = world.cluster.nodes[2]
    node.disk.makedirs(f"{LOG_DIR}/{name}")
    node.lives += 1
    assert list(folders_left(world, LAYOUT)) == [f"a folder is left on broker 2: {name}"]
    world.cluster.history.append(f"it was put aside as {LOG_DIR}/{name}")
    assert list(folders_left(world, LAYOUT)) == []
