"""`.snapshot` files: Kafka's tool prints ours, and a Kafka that rebuilds them from our logs writes the same."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from compat.real_kafka import BROKER_ID, Site, numbered
from compat.written import Written, install
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.disk.checkpoints import RECOVERY_POINTS, encode_offsets, write_atomically
from strandline.storage.manager.directory_state import DirectoryState, encode_state
from strandline.storage.producers.snapshots import decode_snapshot
from strandline.storage.producers.states import ProducerRow
from support.storage_site import StorageSite

MAIN = "kafka.tools.DumpLogSegments"
TOPICS = ("idempotent", "emptied")
ENTRY = re.compile(
    r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) currentTxnFirstOffset: (\S+) "
    r"lastTimestamp: (-?\d+) firstSequence: (-?\d+) lastSequence: (-?\d+) lastOffset: (-?\d+) offsetDelta: (\d+) "
    r"timestamp: (-?\d+)"
)


def rows_of(path: Path) -> list[ProducerRow]:
    return sorted(decode_snapshot(path.read_bytes()), key=lambda row: row.producer_id)


def snapshots(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.snapshot"))


def printed(output: str) -> list[tuple[int, ...]]:
    """Producer, epoch, last sequence, last offset, offset delta, timestamp of each entry."""
    found = sorted(ENTRY.findall(output), key=lambda entry: int(entry[0]))
    assert all(
        coordinator == "-1" and transaction == "OptionalLong.empty" for _, _, coordinator, transaction, *_ in found
    )
    return [tuple(int(entry[place]) for place in (0, 1, 6, 7, 8, 9)) for entry in found]


def as_printed(row: ProducerRow) -> tuple[int, ...]:
    return (row.producer_id, row.epoch, row.last_sequence, row.last_offset, row.offset_delta, row.timestamp_ms)


@pytest.mark.parametrize("topic", TOPICS)
def test_kafka_prints_our_snapshots(written: Written, run_kafka, topic: str) -> None:
    paths = snapshots(written.path / f"{topic}-0")
    assert paths
    newest = paths[-1]
    assert len(rows_of(newest)) >= 2
    for path in {paths[0], newest}:
        assert printed(run_kafka(MAIN, "--files", str(path))) == list(map(as_printed, rows_of(path)))


def test_damage_would_have_been_complained_about(written: Written, run_kafka, tmp_path: Path) -> None:
    source = snapshots(written.path / "idempotent-0")[-1]
    for place in (3, 8, 30, -1):
        data = bytearray(source.read_bytes())
        data[place] ^= 1
        (tmp_path / source.name).write_bytes(data)
        output = run_kafka(MAIN, "--files", str(tmp_path / source.name))
        assert re.search("corrupt|failed schema validation", output) and not ENTRY.search(output), place


def test_kafka_rebuilds_the_snapshots_that_we_wrote(new_site, written: Written) -> None:
    site: Site = new_site()
    for topic in TOPICS:
        install(site, written.path, topic)
        for path in snapshots(site.data / f"{topic}-0"):
            path.unlink()
    site.kafka.start()
    for topic in TOPICS:
        assert site.kafka.raw(topic) == written.raw[f"{topic}-0"]
    site.kafka.stop()
    for topic in TOPICS:
        ours = {path.name: rows_of(path) for path in snapshots(written.path / f"{topic}-0")}
        theirs = {path.name: rows_of(path) for path in snapshots(site.data / f"{topic}-0")}
        both = sorted(ours.keys() & theirs.keys())
        assert len(both) >= 2 and max(both) == max(ours) == max(theirs)
        for name in both:
            assert theirs[name] == ours[name], f"{topic} {name}"


def test_kafka_goes_by_our_snapshots_after_a_clean_stop(new_site, written: Written, tmp_path: Path) -> None:
    """It loads the newest and writes the same again; with another program's it would not have found that name."""
    site: Site = new_site()
    install(site, written.path, "idempotent")
    newest = snapshots(site.data / "idempotent-0")[-1]
    before = shutil.copy(newest, tmp_path)
    offsets = {TopicPartition("idempotent", 0): int(newest.stem)}
    write_atomically(PosixDisk(), f"{site.data}/{RECOVERY_POINTS}", encode_offsets(offsets))
    (site.data / ".kafka_cleanshutdown").write_bytes(encode_state(DirectoryState({}, None, is_for_all=True)))
    site.kafka.start()
    site.kafka.wait_for_log(rf"Loading producer state from snapshot file 'SnapshotFile\(offset={int(newest.stem)}")
    site.kafka.stop()
    assert rows_of(newest) == rows_of(Path(before))
    assert not site.kafka.complaints()


def test_we_know_the_producers_of_kafka_from_its_snapshots_and_from_its_logs(new_site) -> None:
    site: Site = new_site()
    site.kafka.start()
    site.kafka.create_topic("t", segment_bytes="20000")
    for _ in range(3):
        site.kafka.produce("t", numbered(120), enable_idempotence=True)
    site.kafka.stop()
    folder = site.data / "t-0"
    theirs = rows_of(snapshots(folder)[-1])
    assert len(theirs) == 3 and len(snapshots(folder)) > 1
    for first_missing in (None, -1, 0):  # all are there, the newest is not, none is
        for path in snapshots(folder)[first_missing:] if first_missing is not None else []:
            path.unlink()
        dirs = (str(site.data),)
        storage = StorageSite(disk=PosixDisk(), dirs=dirs, broker_id=BROKER_ID, cluster_id="")
        manager = storage.start()
        rows = manager.logs[TopicPartition("t", 0)].producers.states.rows()
        assert sorted(rows, key=lambda row: row.producer_id) == theirs
        manager.close(clean=False)
