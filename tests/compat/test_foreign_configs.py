"""Configurations of a Kafka that our broker does not know, or knows otherwise, delete nothing.

Records are ten days old, older than any default keeps them. `expired` shows that retention went round: what it may
delete is gone while everything else stands.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from compat.kafka_clients import BROKER_DEFAULTS, configure
from compat.real_kafka import BROKER_ID, Site, numbered, wait_until
from strandline.client.sync_producer import Producer

SMALL = {"segment_bytes": "15000", "index_interval_bytes": "500"}
TEN_DAYS_MS = 10 * 86_400_000
KEPT = {
    "zstd": {"compression_type": "zstd", "compression_zstd_level": "7"},
    "gzip": {"compression_type": "gzip", "compression_gzip_level": "9"},
    "lz4": {"compression_type": "lz4", "compression_lz4_level": "3"},
    "remote": {"remote_storage_enable": "false", "local_retention_ms": "1000", "local_retention_bytes": "1000"},
    "remote-copy": {"remote_log_copy_disable": "false", "remote_log_delete_on_disable": "false"},
    "format": {"message_format_version": "2.8"},
    "bytes-too": {"compression_zstd_level": "7", "retention_bytes": "-1"},
    "compacted": {"compression_zstd_level": "7", "cleanup_policy": "compact"},
    "never-dirty": {"min_cleanable_dirty_ratio": "1", "cleanup_policy": "compact"},
    "never-dirty-unknown": {
        "min_cleanable_dirty_ratio": "1.0",
        "cleanup_policy": "compact",
        "remote_storage_enable": "false",
    },
}
"""Topics of which nothing may be deleted, each with retention.ms=-1."""


def produce_old(site: Site, topics: Iterable[str]) -> None:
    for topic in topics:
        site.kafka.produce(topic, numbered(400), age_ms=TEN_DAYS_MS)


def wait_for_two_rounds(site: Site) -> None:
    """Until our retention went round twice: `expired` lost its records, and those that came later, too."""
    wait_until(lambda: site.ours.bounds("expired")[0] >= 300, "our retention went round")
    end = site.ours.bounds("expired")[1]
    with Producer(site.ours.address, acks="all") as producer:
        for _ in range(400):
            producer.send("expired", b"x" * 100, timestamp_ms=1000, partition=0)
        producer.flush()
    wait_until(lambda: site.ours.bounds("expired")[0] >= end, "our retention went round once more")


def test_keys_that_we_do_not_know_take_nothing_from_those_that_we_know(new_site) -> None:
    site: Site = new_site({"log.retention.ms": "1000", "log.retention.bytes": "20000"})
    site.kafka.start()
    for name, config in KEPT.items():
        site.kafka.create_topic(name, **SMALL, **{"retention_bytes": "-1", **config})
    site.kafka.create_topic("expired", **SMALL)
    produce_old(site, [*KEPT, "expired"])
    served = {name: site.kafka.raw(name) for name in KEPT if "compacted" not in name}
    site.kafka.stop()
    configure(site, "topics/expired", {"retention.ms": "1000", "segment.bytes": "15000"})

    site.ours.start()
    wait_for_two_rounds(site)
    assert {name: site.ours.raw(name) for name in served} == served
    site.ours.stop()


@pytest.mark.parametrize("entity", [BROKER_DEFAULTS, f"brokers/{BROKER_ID}"])
def test_dynamic_configurations_of_brokers_hold(new_site, entity: str) -> None:
    site: Site = new_site({"log.retention.ms": "1000"})
    configure(site, entity, {"log.retention.ms": "-1"})
    site.kafka.start()
    for name in ("default", "expired"):
        site.kafka.create_topic(name)
    configure(site, "topics/default", {"segment.bytes": "15000"})
    configure(site, "topics/expired", {"retention.ms": "-1", "segment.bytes": "15000"})
    produce_old(site, ["default", "expired"])
    served = site.kafka.raw("default")
    site.kafka.stop()
    configure(site, "topics/expired", {"retention.ms": "1000", "segment.bytes": "15000"})

    site.ours.start()
    wait_for_two_rounds(site)
    assert site.ours.raw("default") == served
    configure(site, entity, {})
    wait_until(lambda: site.ours.bounds("default")[0] > 0, "what server.properties says holds again")
    site.ours.stop()
