"""What our broker does not understand of a Kafka's folders is not deleted, cut or vouched for.

Our clean-shutdown marker makes a Kafka skip the recovery of everything in that directory; a partition of which a part
is not understood is neither served nor changed.
"""

from __future__ import annotations

import pytest

from compat.kafka_clients import (
    MOVE_BYTES_PER_SECOND,
    abort_what_is_open,
    configure,
    futures,
    move,
    read_values,
    transact,
)
from compat.real_kafka import BROKER_ID, Site, assert_refused, numbered, wait_until
from strandline.protocol.types import TopicPartition
from strandline.runtime.disk_posix import PosixDisk
from strandline.storage.disk.checkpoints import RECOVERY_POINTS, read_offsets

SMALL = {"segment_bytes": "15000", "index_interval_bytes": "500"}
OLD_FORMATS = {"inter_broker_protocol_version": "2.8"}
"""With a later one Kafka ignores message.format.version."""
PREALLOCATED_BYTES = 10_000_000
"""The indexes of Kafka's active segments are at least so long, zeros at the end, until the segment is closed."""


def values(what: str, count: int = 5) -> list[bytes]:
    return [b"%s %d" % (what.encode(), number) for number in range(count)]


def start_and_stop_ours(site: Site) -> None:
    site.ours.start()
    site.ours.stop()


def test_an_open_transaction_is_recovered_by_kafka_after_a_life_of_ours(new_site) -> None:
    """One log has a single segment, the other several, and so producer snapshots."""
    site: Site = new_site()
    more = {"one": [], "several": [[b"open" * 1000] for _ in range(10)]}
    site.kafka.start()
    for topic, batches in more.items():
        site.kafka.create_topic(topic, **SMALL)
        transact(site.kafka, "first", topic, [values("committed")], "commit")
        transact(site.kafka, "second", topic, [values("aborted")], "abort")
        transact(site.kafka, f"third of {topic}", topic, [values("open"), *batches], "open")
    site.kafka.kill()
    logs = site.files(".log")

    start_and_stop_ours(site)
    assert {name: data for name, data in site.files(".log").items() if name in logs} == logs

    site.kafka.start()
    for topic, batches in more.items():
        assert [value for _, value in read_values(site.kafka, topic, "read_committed")] == values("committed")
        abort_what_is_open(site.kafka, f"third of {topic}")
        assert [value for _, value in read_values(site.kafka, topic, "read_committed")] == values("committed")
        everything = [value for _, value in read_values(site.kafka, topic, "read_uncommitted")]
        sent = [*values("committed"), *values("aborted"), *values("open"), *(value for (value,) in batches)]
        assert everything == sent
    site.kafka.stop()
    assert not site.kafka.complaints()


def test_a_move_that_a_kill_interrupted_is_recovered_by_kafka_after_a_life_of_ours(new_site) -> None:
    """Who believes the zeros of its time index thinks that every record is from 1970, and retention deletes them all
    once the moved log takes the old one's place."""
    site: Site = new_site(directories=2)
    configure(site, f"brokers/{BROKER_ID}", {MOVE_BYTES_PER_SECOND: "2000"})
    site.kafka.start()
    site.kafka.create_topic("t", segment_bytes="30000", retention_ms="3600000")
    site.kafka.produce("t", numbered(1000))
    served = site.kafka.raw("t")
    (source,) = [path for path in site.directories if (path / "t-0").exists()]
    (target,) = [path for path in site.directories if path != source]
    move(site.kafka, "t", target)
    wait_until(lambda: any(path.stat().st_size > 10_000 for path in target.glob("t-0.*-future/*.log")), "it moves")
    site.kafka.kill()
    (future,) = futures(site)
    moved = {path.name: path.read_bytes() for path in future.iterdir()}
    assert any(len(data) > PREALLOCATED_BYTES for name, data in moved.items() if name.endswith(".timeindex"))

    site.ours.start()
    assert site.ours.raw("t") == served
    site.ours.stop()
    assert futures(site) == [future]
    assert {name: (future / name).read_bytes() for name in moved if name.endswith(".log")} == {
        name: data for name, data in moved.items() if name.endswith(".log")
    }

    configure(site, f"brokers/{BROKER_ID}", {})
    site.kafka.start()
    site.kafka.create_topic("swept", **SMALL, retention_bytes="20000")
    wait_until(lambda: not futures(site), "Kafka finished the move")
    site.kafka.produce("swept", numbered(600))
    wait_until(lambda: site.kafka.bounds("swept")[0] > 0, "Kafka's retention went round")
    assert site.kafka.raw("t") == served
    site.kafka.stop()
    assert not site.kafka.complaints()


@pytest.mark.parametrize("stop", ["in order", "killed"])
def test_transactions_far_from_the_end_are_found_when_kafka_had_the_folder_in_between(new_site, stop: str) -> None:
    site: Site = new_site({"log.flush.offset.checkpoint.interval.ms": "300"})
    ends = {"aborted": "abort", "open": "open"}
    site.kafka.start()
    for topic in ends:
        site.kafka.create_topic(topic, segment_bytes="3000000")
        site.kafka.produce(topic, numbered(20))
    site.kafka.stop()
    start_and_stop_ours(site)  # from now on the folder is ours

    site.kafka.start()
    for topic, end in ends.items():
        transact(site.kafka, topic, topic, [values("never committed")], end)
        site.kafka.produce(topic, numbered(400, size=10_000), enable_idempotence=True)
    points = f"{site.data}/{RECOVERY_POINTS}"
    partitions = [TopicPartition(topic, 0) for topic in ends]
    wait_until(
        lambda: all(read_offsets(PosixDisk(), points).get(partition, 0) > 200 for partition in partitions),
        "Kafka vouches for most of the logs",
    )
    site.kafka.stop() if stop == "in order" else site.kafka.kill()
    logs = site.files(".log")

    site.ours.start()
    assert_refused(site.ours, dict.fromkeys(ends, "has a batch of a transaction at offset 20"))
    site.ours.stop()
    assert site.files(".log") == logs


@pytest.mark.parametrize("stop", ["in order", "killed"])
def test_logs_of_formats_0_and_1_are_left_as_they_are(new_site, stop: str) -> None:
    site: Site = new_site()
    site.kafka.start(**OLD_FORMATS)
    versions = ("0.9.0", "0.10.2")
    topics = {f"{codec}-{version}": (codec, version) for codec in ("uncompressed", "gzip") for version in versions}
    for topic, (codec, version) in topics.items():
        site.kafka.create_topic(topic, **SMALL, message_format_version=version, compression_type=codec)
        site.kafka.produce(topic, numbered(200))
    served = {topic: site.kafka.raw(topic) for topic in topics}
    assert {batches[16] for batches in served.values()} == {0, 1}
    site.kafka.stop() if stop == "in order" else site.kafka.kill()
    logs = site.files(".log")

    start_and_stop_ours(site)
    site.ours.start()  # once more, on what the first life left
    why = {topic: rf"has a message of format {batches[16]} at offset \d+" for topic, batches in served.items()}
    assert_refused(site.ours, why)
    site.ours.stop()
    assert site.files(".log") == logs

    site.kafka.start(**OLD_FORMATS)
    assert {topic: site.kafka.raw(topic) for topic in topics} == served
    site.kafka.stop()
    assert not site.kafka.complaints()


def test_a_kafka_takes_an_index_that_we_built_anew_for_a_topic_that_we_did_not_host(new_site) -> None:
    """By limits that only the topic's configuration says. The broker is stopped before a controller tells of it."""
    site: Site = new_site()
    site.kafka.start()
    site.kafka.create_topic("t", segment_index_bytes="240", index_interval_bytes="200000")
    site.kafka.produce("t", numbered(600, size=5000))
    served = site.kafka.raw("t")
    site.kafka.kill()
    topic = "/brokers/topics/t"
    paths = [topic, f"{topic}/partitions", f"{topic}/partitions/0", f"{topic}/partitions/0/state"]
    with site.znodes() as client:
        contents = [client.get(path)[0] for path in paths]
        client.delete(topic, recursive=True)

    start_and_stop_ours(site)
    assert all(0 < len(data) <= 240 for data in site.files("index").values())
    with site.znodes() as client:
        for path, content in zip(paths, contents, strict=True):
            client.create(path, content)
    site.kafka.start()
    assert site.kafka.raw("t") == served
    site.kafka.stop()
    assert not site.kafka.complaints()
