"""Disks that lose what was acknowledged, on real processes: who still has it is waited for, and leads.

A machine that lost power is played by a killed broker: its log is cut as a torn tail, and its folder says that it was
last used in another boot of the machine.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import trio

from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin, TrioConsumer, TrioProducer
from strandline.protocol.types import TopicPartition
from strandline.testkit.inspection import Ledger, read_all

T0 = TopicPartition("kept", 0)
LAST, *OTHERS = (3, 1, 2)
PATIENCE_S = 120


def lose_folder(cluster: EmbeddedCluster) -> None:
    shutil.rmtree(cluster.log_dir(LAST))


def lose_power(cluster: EmbeddedCluster) -> None:
    folder = cluster.log_dir(LAST)
    log = sorted((folder / f"{T0.topic}-{T0.partition}").glob("*.log"))[-1]
    with log.open("r+b") as file:
        file.truncate(log.stat().st_size // 3)
    properties = folder / "meta.properties"
    text, count = re.subn(r"(?m)^(strandline\.boot\.id=).*$", r"\1another-boot", properties.read_text())
    assert count == 1, text
    properties.write_text(text)


async def led_by(cluster: EmbeddedCluster) -> tuple[int, list[int]]:
    """(leader, ISR) as a broker that answers has it."""
    found = await trio.to_thread.run_sync(cluster.metadata, [T0.topic])
    if found is None or not found.topics or not found.topics[0].partitions:
        return -1, []
    partition = found.topics[0].partitions[0]
    return partition.leader_id, sorted(partition.isr_nodes)


async def until_isr(cluster: EmbeddedCluster, isr: list[int]) -> int:
    with trio.fail_after(PATIENCE_S):
        while (found := await led_by(cluster))[1] != isr or found[0] == -1:
            await trio.sleep(0.1)
    return found[0]


@pytest.mark.parametrize("stop_in_between", [False, True], ids=["", "and stops in order"])
@pytest.mark.parametrize("lose", [lose_folder, lose_power])
async def test_the_last_one_in_sync_loses_its_data_and_returns_first(
    new_cluster: Callable[..., EmbeddedCluster], lose: Callable[[EmbeddedCluster], None], stop_in_between: bool
) -> None:
    cluster = new_cluster(3)
    off_loop = trio.to_thread.run_sync
    await off_loop(cluster.start)
    ledger = Ledger()
    async with TrioAdmin(cluster.bootstrap_servers) as admin:
        await admin.create_topic(T0.topic, assignments={0: [LAST, *OTHERS]}, configs={"min.insync.replicas": "2"})
    async with TrioProducer(cluster.bootstrap_servers, acks="all", linger_ms=0) as producer:
        await ledger.produce(producer, T0, [b"%d" % number for number in range(200)], one_by_one=True)
    assert len(ledger.acked[T0]) == 200
    for broker_id in OTHERS:
        await off_loop(cluster.kill_broker, broker_id)
    assert await until_isr(cluster, [LAST]) == LAST
    await off_loop(cluster.kill_broker, LAST)
    lose(cluster)
    await off_loop(cluster.start_broker, LAST)
    if stop_in_between:
        assert await off_loop(cluster.stop_broker, LAST) == 0
        await off_loop(cluster.start_broker, LAST)
    for broker_id in OTHERS:
        await off_loop(partial(cluster.start_broker, broker_id, wait=False))
    await off_loop(cluster.wait_ready)
    await until_isr(cluster, sorted([LAST, *OTHERS]))
    async with TrioConsumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        ledger.assert_kept(T0, await read_all(consumer, T0))
    images = {log_bytes(cluster.log_dir(broker_id)) for broker_id in (LAST, *OTHERS)}
    assert len(images) == 1


def log_bytes(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((folder / f"{T0.topic}-{T0.partition}").glob("*.log")))
