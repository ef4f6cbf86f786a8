"""Real brokers and their real worker processes: topics that recompress, stamp, and need keys."""

from __future__ import annotations

from pathlib import Path

import pytest
import trio

from strandline.cli.cluster import EmbeddedCluster
from strandline.client import TrioAdmin, TrioConsumer, TrioProducer
from strandline.client.delivery import ManyDelivery
from strandline.client.errors import DeliveryFailed
from strandline.protocol.records import decode_records, scan
from strandline.protocol.types import TopicPartition

HANG_S = 120
VALUES = [b"value-%d-" % number * 20 for number in range(500)]


def log_bytes(cluster: EmbeddedCluster, topic: str) -> list[bytes]:
    """What each broker has of partition 0."""
    folders = [Path(cluster.log_dir(broker)) / f"{topic}-0" for broker in cluster.brokers]
    return [(folder / f"{0:020d}.log").read_bytes() for folder in folders]


async def settled(delivery: ManyDelivery) -> None:
    await delivery


async def test_workers_convert_and_look_up_on_real_brokers(cluster: EmbeddedCluster) -> None:
    with trio.fail_after(HANG_S):
        async with TrioAdmin(cluster.bootstrap_servers) as admin:
            await admin.create_topic("t", 1, 3, {"compression.type": "zstd", "message.timestamp.type": "LogAppendTime"})
            await admin.create_topic("compacted", 1, 3, {"cleanup.policy": "compact"})
        async with TrioProducer(cluster.bootstrap_servers, compression_type="gzip", linger_ms=5) as producer:
            async with trio.open_nursery() as nursery:
                for start in range(0, len(VALUES), 100):
                    chunk = [(b"k", value) for value in VALUES[start : start + 100]]
                    nursery.start_soon(settled, await producer.send_many("t", chunk))
            keyless = await producer.send("compacted", b"v" * 300)
            with pytest.raises(DeliveryFailed, match="record 0 has no key"):
                await keyless
            assert (await (await producer.send("compacted", b"v" * 300, key=b"k"))).offset == 0
        tp = TopicPartition("t", 0)
        async with TrioConsumer(cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            await consumer.assign([tp])
            found = []
            while len(found) < len(VALUES):
                found += (await consumer.poll(timeout_ms=1000)).get(tp, [])
            by_time = await consumer.offsets_for_times({tp: found[0].timestamp_ms})
        assert sorted(record.value or b"" for record in found) == sorted(VALUES)
        assert by_time[tp] is not None and by_time[tp].offset == 0
        # A follower that had to leave the ISR for a while is caught up later.
        while len(set(copies := log_bytes(cluster, "t"))) > 1:
            await trio.sleep(0.1)
    assert len(copies) == 3
    assert {(header.compression_type, header.timestamp_type) for _, header in scan(copies[0])} == {("zstd", 1)}
    assert len(decode_records(copies[0])) == len(VALUES)
