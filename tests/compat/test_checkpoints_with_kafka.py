"""Kafka's checkpoint files and ours are the same files: what one wrote, the other goes by."""

from __future__ import annotations

import re

from compat.real_kafka import Site
from compat.written import Written, install
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.disk.checkpoints import (
    COMPACTED_OFFSETS,
    HIGH_WATERMARKS,
    LEADER_EPOCHS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    encode_offsets,
    read_epochs,
    read_offsets,
    write_atomically,
)

TOPIC, COMPACTED = "reopened", "follower"
TP, COMPACTED_TP = TopicPartition(TOPIC, 0), TopicPartition(COMPACTED, 0)
DISK = PosixDisk()


def offsets(site: Site, name: str) -> dict[TopicPartition, int]:
    found: list[str] = []
    entries = read_offsets(DISK, f"{site.data}/{name}", lambda event, **fields: found.append(event))
    assert not found
    return entries


def test_kafka_goes_by_our_checkpoints_and_we_read_its(new_site, written: Written) -> None:
    site: Site = new_site()
    install(site, written.path, TOPIC)
    install(site, written.path, COMPACTED, cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
    bases = sorted(int(path.stem) for path in (site.data / f"{TOPIC}-0").glob("*.log"))
    assert len(bases) == 3
    log_start, dirty, end = 7, 300, 740
    high_watermark = bases[2] + 3
    write_atomically(DISK, f"{site.data}/{RECOVERY_POINTS}", encode_offsets({TP: bases[1] + 1, COMPACTED_TP: 600}))
    write_atomically(DISK, f"{site.data}/{LOG_START_OFFSETS}", encode_offsets({TP: log_start}))
    write_atomically(DISK, f"{site.data}/{HIGH_WATERMARKS}", encode_offsets({TP: high_watermark, COMPACTED_TP: 600}))
    write_atomically(DISK, f"{site.data}/{COMPACTED_OFFSETS}", encode_offsets({COMPACTED_TP: dirty}))

    site.kafka.start()
    assert site.kafka.bounds(TOPIC) == (log_start, end)
    site.kafka.wait_for_log(r"Building offset map for log follower-0 .*offset range \[300, ")
    log = site.kafka.log_of_this_life()
    recovered = re.findall(r"Recovering unflushed segment (\d+)\. .* recovered for reopened-0", log)
    assert sorted(map(int, recovered)) == bases[1:]
    assert re.search(rf"Log loaded for partition {TP} with initial high watermark {high_watermark}\b", log)
    site.kafka.wait_for_log(r"\[kafka-log-cleaner-thread-0\]:\s+Log cleaner thread 0 cleaned log follower-0")
    site.kafka.stop()
    assert not site.kafka.complaints()

    assert offsets(site, RECOVERY_POINTS) == {TP: end, COMPACTED_TP: 600}
    assert offsets(site, HIGH_WATERMARKS) == {TP: end, COMPACTED_TP: 600}
    assert offsets(site, LOG_START_OFFSETS) == {TP: log_start}
    assert offsets(site, COMPACTED_OFFSETS)[COMPACTED_TP] > dirty
    epochs = read_epochs(DISK, f"{site.data}/{COMPACTED_TP}/{LEADER_EPOCHS}")
    assert [tuple(entry) for entry in epochs][:2] == [(1, 0), (3, 400)]
