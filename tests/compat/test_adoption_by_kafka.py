"""A real Kafka takes over partition folders that our storage wrote: recovered, served and left byte for byte the same.

The folders come to Kafka as after a crash: no clean marker, no checkpoints, so that it checks every batch; and without
our indexes, so that it builds its own, which have to equal ours.
"""

from __future__ import annotations

import pytest
from real_kafka import Site, numbered
from written import LEADER_EPOCH, Written, install

from strandline.protocol.records import decode_records


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
