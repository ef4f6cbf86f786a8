"""Faults on real processes: brokers killed, paused, stopped; ZooKeeper away; damaged files. Each under load.

After every fault: no acknowledged record lost, none altered, none doubled unless a retry explains it, order kept per
partition, and the replicas' files equal below the high watermark.
"""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, closing
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest
import trio

from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin, TrioProducer
from strandline.protocol.messages import MetadataResponse
from strandline.protocol.records import scan
from strandline.testkit.verification import VerifyingLoad, proven
from support.proxies import BrokerProxies

TOPIC = "promises"
PARTITIONS = 3
BROKERS = (1, 2, 3)
PATIENCE_S = 120
T = TypeVar("T")


async def off_loop(function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
    """Process control blocks; the load goes on meanwhile."""
    return await trio.to_thread.run_sync(partial(function, *args, **kwargs))


async def until(condition: Callable[[], Awaitable[bool]], what: str) -> None:
    with trio.move_on_after(PATIENCE_S):
        while not await condition():
            await trio.sleep(0.1)
        return
    raise AssertionError(f"waited {PATIENCE_S} s for: {what}")


async def metadata(cluster: EmbeddedCluster, topics: Sequence[str] = (TOPIC,)) -> MetadataResponse:
    """Of the first broker that answers; on a busy machine the first question may be too early."""
    with trio.fail_after(PATIENCE_S):
        while (found := await off_loop(cluster.metadata, topics)) is None:
            await trio.sleep(0.1)
    return found


async def is_whole(cluster: EmbeddedCluster) -> bool:
    """Every partition has a leader and all of its replicas in sync."""
    found = await off_loop(cluster.metadata, [TOPIC])
    if found is None or not found.topics or len(found.topics[0].partitions) < PARTITIONS:
        return False
    return all(p.leader_id >= 0 and len(p.isr_nodes) == len(BROKERS) for p in found.topics[0].partitions)


async def leader_of(cluster: EmbeddedCluster, partition: int = 0) -> int:
    await until(partial(is_whole, cluster), "every partition led and whole")
    states = (await metadata(cluster)).topics[0].partitions
    return next(p.leader_id for p in states if p.partition_index == partition)


async def wait_led_without(cluster: EmbeddedCluster, gone: int) -> None:
    async def moved() -> bool:
        found = await off_loop(cluster.metadata, [TOPIC])
        states = found.topics[0].partitions if found is not None and found.topics else []
        return len(states) == PARTITIONS and all(p.leader_id not in (-1, gone) for p in states)

    await until(moved, f"every partition led by another broker than {gone}")


@asynccontextmanager
async def under_load(cluster: EmbeddedCluster, **settings: object) -> AsyncIterator[VerifyingLoad]:
    """The topic, a verifying producer, and at the end the proof."""
    async with TrioAdmin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(
            TOPIC, num_partitions=PARTITIONS, replication_factor=3, configs={"min.insync.replicas": "2"}
        )
    load = VerifyingLoad(cluster.bootstrap_servers, TOPIC, PARTITIONS, **settings)
    async with proven(load, partial(until, partial(is_whole, cluster), "all replicas back in sync")):
        yield load
    await until(partial(replicas_agree, cluster), "equal files on all replicas")


async def replicas_agree(cluster: EmbeddedCluster, topic: str = TOPIC, partitions: int = PARTITIONS) -> bool:
    """The load has ended and the ISR is whole, so HW is the end: the files must be equal byte for byte."""
    for partition in range(partitions):
        contents = [log_bytes(cluster, broker_id, partition, topic) for broker_id in BROKERS]
        if any(content != contents[0] for content in contents[1:]):
            return False
        assert topic != TOPIC or sum(1 for _ in scan(memoryview(contents[0]))) > 0
    return True


def log_bytes(cluster: EmbeddedCluster, broker_id: int, partition: int, topic: str = TOPIC) -> bytes:
    folder = cluster.log_dir(broker_id) / f"{topic}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def active_segment(cluster: EmbeddedCluster, broker_id: int, partition: int) -> Path:
    return sorted((cluster.log_dir(broker_id) / f"{TOPIC}-{partition}").glob("*.log"))[-1]


@pytest.mark.parametrize("role", ["leader", "follower", "controller"])
async def test_a_killed_broker_costs_nothing_that_was_acknowledged(cluster: EmbeddedCluster, role: str) -> None:
    async with under_load(cluster) as load:
        leader = await leader_of(cluster)
        controller = (await metadata(cluster)).controller_id
        victim = {"leader": leader, "follower": next(b for b in BROKERS if b != leader), "controller": controller}[role]
        await off_loop(cluster.kill_broker, victim)
        await wait_led_without(cluster, victim)
        await load.wait_acked(100)
        await off_loop(cluster.start_broker, victim)
    assert not load.errors


@pytest.mark.parametrize("role", ["leader", "controller"])
async def test_a_killed_broker_is_missed_before_its_session_ends(
    new_cluster: Callable[..., EmbeddedCluster], role: str
) -> None:
    cluster = new_cluster(3, session_timeout_ms=60_000)  # it would be waited for, for so long
    await off_loop(cluster.start)
    async with under_load(cluster) as load:
        leader = await leader_of(cluster)
        victim = leader if role == "leader" else (await metadata(cluster)).controller_id
        ended = expiries(cluster)
        await off_loop(cluster.kill_broker, victim)
        await wait_led_without(cluster, victim)
        await load.wait_acked(100)
        assert expiries(cluster) == ended, "the session was over: nothing was tested"
        await off_loop(cluster.start_broker, victim)
    assert not load.errors


async def test_a_broker_that_returns_within_its_old_session_is_taken_back_at_once(
    new_cluster: Callable[..., EmbeddedCluster],
) -> None:
    cluster = new_cluster(3, session_timeout_ms=60_000)  # on a busy machine a start takes longer than a usual session
    await off_loop(cluster.start)
    async with under_load(cluster) as load:
        victim = await leader_of(cluster)
        await off_loop(cluster.kill_broker, victim)
        await off_loop(cluster.start_broker, victim)
        log = cluster.brokers[victim].log_path.read_text()
        assert "replaced own stale registration" in log, "the old session was over: nothing was tested"
    assert not load.errors


async def test_all_brokers_killed_at_once_come_back_with_everything(cluster: EmbeddedCluster) -> None:
    async with under_load(cluster, delivery_timeout_ms=90_000) as load:
        for broker_id in BROKERS:
            await off_loop(cluster.kill_broker, broker_id)
        for broker_id in BROKERS:
            await off_loop(cluster.start_broker, broker_id, wait=False)
        await off_loop(cluster.wait_ready)
        await load.wait_acked(100)
    assert not load.errors


async def test_a_leader_paused_beyond_its_session_steps_down_and_loses_what_it_did_not_commit(
    cluster: EmbeddedCluster,
) -> None:
    async with under_load(cluster) as load:
        leader = await leader_of(cluster)
        followers = [broker_id for broker_id in BROKERS if broker_id != leader]
        async with TrioAdmin(cluster.bootstrap_servers) as admin:
            await admin.create_topic("fleeting", assignments={0: [leader, *followers]})
        async with TrioProducer(cluster.bootstrap_servers, acks=1, linger_ms=0) as producer:
            await (await producer.send("fleeting", b"connected", partition=0))
            for broker_id in followers:
                cluster.pause_broker(broker_id)
            # A fetch that waits at the leader takes one record along, to a follower that reads it when it wakes up; no
            # other fetch comes.
            await (await producer.send("fleeting", b"may be taken along", partition=0))
            await (await producer.send("fleeting", b"copied by nobody", partition=0))
        assert b"copied by nobody" in log_bytes(cluster, leader, 0, "fleeting")
        cluster.pause_broker(leader)
        for broker_id in followers:
            cluster.resume_broker(broker_id)
        await wait_led_without(cluster, leader)
        await load.wait_acked(100)
        cluster.resume_broker(leader)
        await until(partial(is_whole, cluster), "the paused broker back in sync")
        await until(partial(replicas_agree, cluster, "fleeting", 1), "what nobody copied truncated")
        assert b"copied by nobody" not in log_bytes(cluster, leader, 0, "fleeting")


async def test_a_terminated_broker_hands_leadership_over_before_it_goes(cluster: EmbeddedCluster) -> None:
    async with under_load(cluster) as load:
        victim = await leader_of(cluster)
        assert await off_loop(cluster.stop_broker, victim) == 0
        # The controller had moved everything when it said so; the others hear of it a little later.
        assert "controlled shutdown done" in cluster.brokers[victim].log_path.read_text()
        await wait_led_without(cluster, victim)
        await load.wait_acked(100)
        await off_loop(cluster.start_broker, victim)
    assert not load.errors


async def test_a_rolling_restart_under_load_shows_no_error_to_a_producer(cluster: EmbeddedCluster) -> None:
    async with under_load(cluster) as load:
        for broker_id in BROKERS:
            assert await off_loop(cluster.stop_broker, broker_id) == 0
            await off_loop(cluster.start_broker, broker_id)
            await until(partial(is_whole, cluster), f"broker {broker_id} back in sync")
    assert not load.errors


async def test_produce_and_consume_go_on_while_zookeeper_is_away(cluster: EmbeddedCluster) -> None:
    async with under_load(cluster) as load:
        epochs = {p.partition_index: p.leader_epoch for p in (await metadata(cluster)).topics[0].partitions}
        await off_loop(cluster.stop_zookeeper)
        with trio.move_on_after(10):
            while True:
                await load.wait_acked(10)
                await trio.sleep(0.2)
        with trio.fail_after(PATIENCE_S):
            await load.wait_acked(100)
            acked = {partition: len(outcomes.acked) for partition, outcomes in load.outcomes.items()}
            found = await load.read_everything()
        assert all(len(found[partition]) >= count for partition, count in acked.items())
        await off_loop(cluster.start_zookeeper)
        await load.wait_acked(100)
        states = (await metadata(cluster)).topics[0].partitions
        assert {p.partition_index: p.leader_epoch for p in states} == epochs, "nobody had to be elected"
    assert not load.errors


async def test_brokers_whose_sessions_expire_while_they_live_register_again_and_serve(
    new_cluster: Callable[..., EmbeddedCluster],
) -> None:
    cluster = new_cluster(3, session_timeout_ms=4000)
    with closing(BrokerProxies(cluster)) as proxies:
        await off_loop(cluster.start)
        async with under_load(cluster) as load:
            registered, expired = registrations(cluster), expiries(cluster)
            for proxy in proxies.to_zookeeper.values():
                proxy.refuse()  # ZooKeeper lives and hears nothing
            await until(partial(all_expired, cluster, expired), "the end of all sessions")
            for proxy in proxies.to_zookeeper.values():
                proxy.let_through()
            await until(partial(all_registered_again, cluster, registered), "all brokers registered again")
            await load.wait_acked(100)
        assert not load.errors
        await off_loop(cluster.stop)


def registrations(cluster: EmbeddedCluster) -> dict[int, int]:
    """How often each broker has registered."""
    return {
        broker_id: broker.log_path.read_text().count(" registered broker_epoch=")
        for broker_id, broker in cluster.brokers.items()
    }


def expiries(cluster: EmbeddedCluster) -> int:
    """How many sessions ZooKeeper has ended."""
    return cluster.zookeeper.process.log_path.read_text().count("Expiring session ")


async def all_expired(cluster: EmbeddedCluster, before: int) -> bool:
    return expiries(cluster) >= before + len(BROKERS)


async def all_registered_again(cluster: EmbeddedCluster, before: dict[int, int]) -> bool:
    return all(count > before[broker_id] for broker_id, count in registrations(cluster).items())


@pytest.mark.parametrize("damage", ["cut inside a batch", "zeros", "garbage"])
async def test_a_torn_tail_is_cut_back_to_the_last_whole_batch_and_caught_up(
    cluster: EmbeddedCluster, damage: str
) -> None:
    async with under_load(cluster) as load:
        victim = await leader_of(cluster)
        await off_loop(cluster.kill_broker, victim)
        await wait_led_without(cluster, victim)
        segment = active_segment(cluster, victim, 0)
        content = segment.read_bytes()
        if damage == "cut inside a batch":
            segment.write_bytes(content[:-7])
        else:
            segment.write_bytes(content + (bytes(5000) if damage == "zeros" else b"\x07\xff garbage " * 300))
        await off_loop(cluster.start_broker, victim)
    assert not load.errors


async def test_a_second_signal_ends_a_broker_at_once(cluster: EmbeddedCluster) -> None:
    controller = (await metadata(cluster, ())).controller_id
    assert controller in BROKERS
    victim = next(broker_id for broker_id in BROKERS if broker_id != controller)
    others = [broker_id for broker_id in BROKERS if broker_id != victim]
    for broker_id in others:
        cluster.pause_broker(broker_id)  # the first signal alone would wait: the controller does not answer

    async def says(what: str) -> bool:
        return what in cluster.brokers[victim].log_path.read_text()

    async def has_ended() -> bool:
        return not cluster.brokers[victim].is_alive

    cluster.kill_broker(victim, signal.SIGTERM)
    await until(partial(says, "shutting down"), "the first signal's effect: two that wait are one")
    cluster.kill_broker(victim, signal.SIGTERM)
    await until(has_ended, "the end")
    assert await says("stopping at once") and not await says("controlled shutdown done")
    for broker_id in others:
        cluster.resume_broker(broker_id)
