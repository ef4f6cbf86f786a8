"""A real Kafka takes over partition folders that our storage wrote: recovered, served and left byte for byte the same.

The folders come to Kafka as after a crash: no clean marker, no checkpoints, so that it checks every batch; and without
our indexes, so that it builds its own, which have to equal ours.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from compat.real_kafka import Site, numbered
from compat.written import LEADER_EPOCH, Written, install, topic_id_of
from strandline.protocol.records import decode_records
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.manager.directory_state import DirectoryState, encode_state
from support.storage_site import SmallLogConfig, StorageSite, wave


def put_in_place(site: Site, written: Written, *, with_indexes: bool) -> None:
    """Give a Kafka that was never started all our folders."""
    for path in written.folders():
        install(site, written.path, path.name.removesuffix("-0"))
    if not with_indexes:
        for path in site.data.glob("*/*index"):
            path.unlink()


def test_kafka_recovers_and_serves_what_we_wrote_and_builds_the_same_indexes(new_site, written: Written) -> None:
    site: Site = new_site()
    put_in_place(site, written, with_indexes=False)
    site.kafka.start()
    for folder in written.folders():
        topic = folder.name.removesuffix("-0")
        served = site.kafka.raw(topic)
        assert served == written.raw[folder.name], topic
        recovered = site.kafka.log_of_this_life().count(f"recovered for {folder.name}.")
        assert recovered == len(list(folder.glob("*.log")))
        assert [tuple(r)[:2] + tuple(r)[3:5] for r in decode_records(memoryview(served))] == written.contents[
            folder.name
        ]
    site.kafka.stop()
    assert not site.kafka.complaints()
    for suffix in (".log", ".index", ".timeindex"):
        assert site.files(suffix) == written.files_by_name(suffix), suffix
    assert len(site.files(".index")) >= 10
    for name, content in site.files("leader-epoch-checkpoint").items():
        ours = (written.path / name).read_text().splitlines()[2:]
        theirs = content.decode().splitlines()[2:]
        assert theirs[:-1] == ours and theirs[-1].startswith(f"{LEADER_EPOCH} "), name


def test_kafka_takes_our_indexes_as_they_are(new_site, written: Written) -> None:
    site: Site = new_site()
    put_in_place(site, written, with_indexes=True)
    ours = site.files(".index", ".timeindex")
    site.kafka.start()
    for folder in written.folders():
        assert site.kafka.raw(folder.name.removesuffix("-0")) == written.raw[folder.name]
    site.kafka.stop()
    assert not site.kafka.complaints()
    assert site.files(".index", ".timeindex") == ours


@pytest.mark.parametrize("clean", [True, False])
def test_kafka_goes_on_with_small_indexes_of_logs_that_many_batches_came_to_at_once(
    new_site, tmp_path: Path, clean: bool
) -> None:
    """Each batch is worth an entry, and a few entries fill an index. With `clean` Kafka takes our indexes as they are,
    otherwise it writes them anew, which has to fit."""
    config = SmallLogConfig(segment_bytes=20_000, index_interval_bytes=1, segment_index_bytes=64)
    storage = StorageSite(disk=PosixDisk(), config=config, dirs=(str(tmp_path / "ours"),))
    (tmp_path / "ours").mkdir()
    manager = storage.start()
    log = manager.create(TopicPartition("t", 0), topic_id_of("t"))
    for _ in range(3):  # each begins in a segment that is not full
        log.append_as_leader(wave(97), 0)
    manager.close(clean=True)
    batches = b"".join(path.read_bytes() for path in sorted(tmp_path.glob("ours/t-0/*.log")))

    site: Site = new_site()
    overrides = {"segment_index_bytes": "64", "index_interval_bytes": "1", "segment_bytes": "20000"}
    install(site, tmp_path / "ours", "t", **overrides)
    if clean:
        (site.data / ".kafka_cleanshutdown").write_bytes(encode_state(DirectoryState({}, None, is_for_all=True)))
    site.kafka.start()
    assert site.kafka.raw("t") == batches
    site.kafka.produce("t", numbered(100))
    assert site.kafka.raw("t").startswith(batches)
    site.kafka.stop()
    assert not site.kafka.complaints()
    assert max(len(index) for index in site.files(".index").values()) <= 64


@pytest.mark.parametrize("version", ["2.8", "3.9"])
def test_producers_of_a_kafka_that_takes_over_our_zookeeper_get_ids(new_site, version: str) -> None:
    """Up to 2.8 the broker asks ZooKeeper itself, at its start; later its controller does, when a producer comes."""
    site: Site = new_site()
    site.ours.start()
    site.ours.stop()
    site.kafka.start(inter_broker_protocol_version=version)
    site.kafka.create_topic("t")
    site.kafka.produce("t", numbered(20), enable_idempotence=True, request_timeout_ms=5000)
    site.kafka.stop()
    assert not site.kafka.complaints()
