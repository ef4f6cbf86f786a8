"""What a real Kafka keeps in ZooKeeper of its configurations, and our broker on top of it: nothing more is deleted."""

from __future__ import annotations

from collections.abc import Callable

from compat.real_kafka import Site, numbered, wait_until
from strandline.client.sync_producer import Producer
from strandline.protocol.znodes import ConfigChangeZnode, ConfigZnode

NewSite = Callable[..., Site]
RunKafka = Callable[..., str]
SMALL = {"segment_bytes": "15000", "index_interval_bytes": "500"}
BESIDE = {"compression_gzip_level": "3", "remote_storage_enable": "false", "message_format_version": "2.8"}
"""Keys that Kafka 3.9 takes and ours does not know."""
BOUND = {"log.retention.bytes": "20000"}
RECORDS = 600


def append(site: Site, topic: str) -> None:
    with Producer(bootstrap_servers=site.ours.address, acks="all", linger_ms=0) as producer:
        for _, value in numbered(RECORDS):
            producer.send(topic, value, partition=0).result(timeout=30)


def configure(run_kafka: RunKafka, site: Site, *entity: str, add: str) -> None:
    command = ["--bootstrap-server", site.kafka.address, "--alter", "--entity-type", *entity, "--add-config", add]
    run_kafka("kafka.admin.ConfigCommand", *command)


def test_topics_keep_what_kafka_keeps_by_keys_and_defaults_that_stand_in_zookeeper(
    new_site: NewSite, run_kafka: RunKafka
) -> None:
    site = new_site()
    site.kafka.start()
    site.kafka.create_topic("own", **SMALL, **BESIDE, retention_bytes="-1")
    site.kafka.create_topic("default", **SMALL)
    site.kafka.create_topic("bounded", **SMALL, **BESIDE, retention_bytes="20000", file_delete_delay_ms="100")
    configure(run_kafka, site, "brokers", "--entity-default", add="log.retention.bytes=-1,log.cleaner.backoff.ms=300")
    for topic in ("own", "default", "bounded"):
        site.kafka.produce(topic, numbered(RECORDS))
    wait_until(lambda: site.kafka.bounds("bounded")[0] > 0, "Kafka deletes what is bounded")
    before = {topic: site.kafka.bounds(topic) for topic in ("own", "default", "bounded")}
    assert before["own"] == before["default"] == (0, RECORDS)
    site.kafka.stop()
    with site.znodes() as client:
        secret = ConfigZnode({"listener.name.x.ssl.key.password": "s3cret"})
        client.create(ConfigZnode.path("1", "brokers"), secret.encode())
    site.ours.start(**{key.replace(".", "_"): value for key, value in BOUND.items()})
    for _ in range(2):  # our retention has looked at all of them once it has taken something twice
        start = site.ours.bounds("bounded")[0]
        append(site, "bounded")
        wait_until(lambda start=start: site.ours.bounds("bounded")[0] > start, "ours deletes what is bounded")
    assert {topic: site.ours.bounds(topic) for topic in ("own", "default")} == {
        topic: before[topic] for topic in ("own", "default")
    }
    log = site.ours.log_of_this_life()
    assert "compression.gzip.level" in log
    assert "listener.name.x.ssl.key.password" in log
    assert "s3cret" not in log
    # While it runs: the cluster's default goes, as Kafka's tools write and announce it.
    with site.znodes() as client:
        client.set(ConfigZnode.path("<default>", "brokers"), ConfigZnode({}).encode())
        client.create(ConfigChangeZnode.SEQUENCE_PATH, ConfigChangeZnode("brokers/<default>").encode(), sequence=True)
    wait_until(lambda: site.ours.bounds("default")[0] > 0, "the file's word counts again")
    assert site.ours.bounds("own") == (0, RECORDS)
