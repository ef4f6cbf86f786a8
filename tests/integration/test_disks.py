"""Full and failing disks under real brokers: a small file system, files that may not grow, too few descriptors.

After every fault the promises of `test_faults` hold: nothing acknowledged is lost, altered or doubled, and the replicas
are equal in the end.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from integration.real_time import PATIENCE_S, off_loop, until
from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin, TrioConsumer
from strandline.protocol.messages.admin import MetadataPartition
from strandline.protocol.types import TopicPartition
from strandline.testkit.verification import VerifyingLoad, proven
from support.small_disk import SmallDisk, WrappedDaemon

TOPIC = "promises"
PARTITIONS = 3
BROKERS = (1, 2, 3)
VICTIM = 1
FREE_BYTES = 192 * 2**10
MAX_FILE_BYTES = 128 * 2**10
MAX_DESCRIPTORS = 100
LONG_SESSION_MS = 60_000
"""Where the victim is to go on leading: a session that ends on a busy machine moves leadership, too."""


class DiskCluster(EmbeddedCluster):
    """A cluster whose first broker can be started with less than the others have."""

    def __init__(self, *arguments: Any, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.victim = WrappedDaemon(f"broker {VICTIM}", self.broker_folder(VICTIM) / "broker.log")
        self.brokers[VICTIM] = self.victim


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    disk = SmallDisk(tmp_path / "small")
    yield disk
    disk.close()


@pytest.fixture
def cluster(new_cluster: Callable[..., EmbeddedCluster]) -> DiskCluster:
    made = new_cluster(3, kind=DiskCluster)
    assert isinstance(made, DiskCluster)
    return made


def partitions(cluster: EmbeddedCluster) -> dict[int, MetadataPartition]:
    found = cluster.metadata([TOPIC])
    if found is None or not found.topics:
        return {}
    return {state.partition_index: state for state in found.topics[0].partitions}


def is_whole(cluster: EmbeddedCluster) -> bool:
    states = partitions(cluster)
    return len(states) == PARTITIONS and all(
        state.leader_id >= 0 and len(state.isr_nodes) == len(BROKERS) for state in states.values()
    )


def is_served_without_victim(cluster: EmbeddedCluster, indexes: Sequence[int]) -> bool:
    states = partitions(cluster)
    return len(states) == PARTITIONS and all(
        states[index].leader_id in BROKERS and VICTIM not in states[index].isr_nodes for index in indexes
    )


def victims_log(cluster: DiskCluster) -> str:
    return cluster.victim.log_path.read_text()


@asynccontextmanager
async def under_load(cluster: DiskCluster, folders: Callable[[int, int], Path]) -> AsyncIterator[VerifyingLoad]:
    """The topic, led by the victim as far as it can, a verifying producer, and at the end the proof."""
    async with TrioAdmin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(
            TOPIC,
            assignments={index: [VICTIM, 2, 3] for index in range(PARTITIONS)},
            configs={"min.insync.replicas": "2"},
        )
    await until(partial(is_whole, cluster), "the topic")
    load = VerifyingLoad(cluster.bootstrap_servers, TOPIC, PARTITIONS, pause_s=0.001)
    async with proven(load, partial(until, partial(is_whole, cluster), "all replicas back in sync")):
        yield load

    def replicas_agree() -> bool:
        for index in range(PARTITIONS):
            contents = [
                b"".join(path.read_bytes() for path in sorted(folders(broker_id, index).glob("*.log")))
                for broker_id in BROKERS
            ]
            assert contents[0]
            if any(content != contents[0] for content in contents[1:]):
                return False
        return True

    await until(replicas_agree, "equal files on all replicas")


async def test_a_full_disk_refuses_appends_and_goes_on_by_itself_once_there_is_room(
    cluster: DiskCluster, small_disk: SmallDisk
) -> None:
    """It leads everything from its only directory; what it has can be read all the while."""
    cluster.victim.prefix = small_disk.enter
    cluster.properties_of[VICTIM] = {"log.dirs": str(small_disk.mount_point)}
    cluster.session_timeout_ms = LONG_SESSION_MS
    await off_loop(cluster.start)

    def folder(broker_id: int, index: int) -> Path:
        data = small_disk.seen_from_outside if broker_id == VICTIM else cluster.log_dir(broker_id)
        return data / f"{TOPIC}-{index}"

    async with under_load(cluster, folder) as load:
        small_disk.fill_but(FREE_BYTES)
        await until(lambda: "log-dir-full" in victims_log(cluster), "the end of the space")
        await trio.sleep(2)
        async with TrioConsumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            tp = TopicPartition(TOPIC, 0)
            await consumer.assign([tp])
            assert (await consumer.poll(timeout_ms=PATIENCE_S * 1000))[tp][0].offset == 0, "reads go on"
        states = await off_loop(partitions, cluster)
        assert all(state.leader_id == VICTIM for state in states.values()), "it goes on leading"
        small_disk.make_room()
        await until(lambda: "log directory has room again" in victims_log(cluster), "room")
        await load.wait_acked(300)
    assert not load.errors
    assert cluster.victim.is_alive and "log-dir-offline" not in victims_log(cluster)
    assert victims_log(cluster).count("log-dir-full") == 1


async def test_a_start_on_a_full_disk_says_so_and_the_next_one_has_everything(
    cluster: DiskCluster, small_disk: SmallDisk
) -> None:
    cluster.victim.prefix = small_disk.enter
    cluster.properties_of[VICTIM] = {"log.dirs": str(small_disk.mount_point)}
    await off_loop(cluster.start)

    def folder(broker_id: int, index: int) -> Path:
        data = small_disk.seen_from_outside if broker_id == VICTIM else cluster.log_dir(broker_id)
        return data / f"{TOPIC}-{index}"

    async with under_load(cluster, folder) as load:
        await load.wait_acked(300)
        await off_loop(cluster.kill_broker, VICTIM)
        small_disk.fill_but(0)
        for _ in range(2):
            await off_loop(cluster.start_broker, VICTIM, wait=False)
            await until(lambda: cluster.victim.exit_code is not None, "the end of the start")
            assert cluster.victim.exit_code == 1
            last_line = victims_log(cluster).rstrip().rpartition("\n")[2]
            assert last_line.startswith("strandline broker: ") and str(small_disk.mount_point) in last_line
            assert "the file system is full" in last_line and "free space" in last_line
        assert "Traceback" not in victims_log(cluster)
        small_disk.make_room()
        await off_loop(cluster.start_broker, VICTIM)
        await load.wait_acked(300)
    assert not load.errors
    assert "may have lost" not in victims_log(cluster) and "possible data loss" not in victims_log(cluster)


async def test_a_broker_whose_only_directory_fails_ends_and_comes_back_with_everything(cluster: DiskCluster) -> None:
    cluster.victim.prefix = ["prlimit", f"--fsize={MAX_FILE_BYTES}"]
    await off_loop(cluster.start)
    async with under_load(cluster, lambda broker_id, index: cluster.log_dir(broker_id) / f"{TOPIC}-{index}") as load:
        await until(lambda: cluster.victim.exit_code is not None, "the end of the broker")
        assert cluster.victim.exit_code == 1
        last_line = victims_log(cluster).rstrip().rpartition("\n")[2]
        assert last_line.startswith("strandline broker: no log directory is left: ") and "File too large" in last_line
        assert "Traceback" not in victims_log(cluster)
        await until(partial(is_served_without_victim, cluster, range(PARTITIONS)), "other leaders")
        await load.wait_acked(300)
        cluster.victim.prefix = ()
        await off_loop(cluster.start_broker, VICTIM)
    assert not load.errors


async def test_a_broker_with_fewer_descriptors_than_segments_serves_them_all(cluster: DiskCluster) -> None:
    cluster.victim.prefix = ["prlimit", f"--nofile={MAX_DESCRIPTORS}"]
    cluster.properties["log.segment.bytes"] = "2048"
    cluster.session_timeout_ms = LONG_SESSION_MS
    await off_loop(cluster.start)
    async with under_load(cluster, lambda broker_id, index: cluster.log_dir(broker_id) / f"{TOPIC}-{index}") as load:
        segments = cluster.log_dir(VICTIM) / f"{TOPIC}-0"
        await until(lambda: len(list(segments.glob("*.log"))) > MAX_DESCRIPTORS, "many segments")
        idle = [await trio.open_tcp_stream(*_address(cluster)) for _ in range(MAX_DESCRIPTORS)]
        # They are held until it has run out of descriptors: on a busy machine it accepts them late.
        await until(lambda: "cannot accept connections" in victims_log(cluster), "no descriptor left")
        await load.wait_acked(300)
        for stream in idle:
            await stream.aclose()
    assert "log-dir-offline" not in victims_log(cluster)
    states = await off_loop(partitions, cluster)
    assert all(state.leader_id == VICTIM for state in states.values()), "it led throughout"
    # A segment is opened first, and then another one closed for it: followers may still be reading.
    await until(lambda: len(open_segments(cluster)) <= MAX_DESCRIPTORS // 2, "descriptors that are for connections")


def open_segments(cluster: DiskCluster) -> list[str]:
    """That the victim has open now."""
    process = cluster.victim.id
    assert process is not None
    opened = [os.readlink(each) for each in Path(f"/proc/{process.pid}/fd").iterdir()]
    return [path for path in opened if f"/{TOPIC}-" in path and path.endswith(".log")]


def _address(cluster: EmbeddedCluster) -> tuple[str, int]:
    address = cluster.address(VICTIM)
    return address.host, address.port
