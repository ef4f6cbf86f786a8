"""Kafka 3.9's dynamic keys of brokers (DynamicBrokerConfig, DynamicConfig.Broker): each is dynamic here, or who sets it
is told why it has no effect."""

from __future__ import annotations

import pytest

from strandline.runtime.config.broker import BROKER_KEYS
from strandline.runtime.config.dynamic import ONE_BROKERS, Layer, why_not_served
from strandline.runtime.config.listener_keys import broker_key
from strandline.runtime.config.reading import load_broker_config

STATIC = load_broker_config({"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/data"})
OWN, ALL = Layer("/config/brokers/1", {}, True), Layer("/config/brokers/<default>", {}, False)

_CLUSTER_WIDE = """
background.threads compression.type follower.replication.throttled.rate leader.replication.throttled.rate
log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms
log.cleaner.threads log.cleanup.policy log.flush.interval.messages log.flush.interval.ms log.index.interval.bytes
log.index.size.max.bytes log.message.downconversion.enable log.message.timestamp.after.max.ms
log.message.timestamp.before.max.ms log.message.timestamp.difference.max.ms log.message.timestamp.type log.preallocate
log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes log.segment.delete.delay.ms
max.connection.creation.rate max.connections max.connections.per.ip max.connections.per.ip.overrides message.max.bytes
metric.reporters min.insync.replicas num.io.threads num.network.threads num.recovery.threads.per.data.dir
num.replica.fetchers producer.id.expiration.ms transaction.partition.verification.enable
unclean.leader.election.enable
"""
CLUSTER_WIDE = _CLUSTER_WIDE.split()
OF_ONE_BROKER = ["advertised.listeners"]
OURS = ["max.decompressed.message.bytes", "metrics.per.partition"]
"""Which Kafka does not have."""
WITHOUT_EFFECT = {
    "compression.gzip.level": "fixed",
    "compression.lz4.level": "fixed",
    "compression.zstd.level": "fixed",
    "listener.name.plaintext.num.network.threads": "shared by all listeners",
    "listener.name.plaintext.ssl.keystore.location": "not honoured yet",
    "listener.security.protocol.map": "from the broker's file only",
    "listeners": "from the broker's file only",
    "log.local.retention.bytes": "remote tier",
    "log.local.retention.ms": "remote tier",
    "log.message.downconversion.enable": "no record is converted",
    "metric.reporters": "Java classes",
    "principal.builder.class": "not asked who they are",
    "remote.fetch.max.wait.ms": "remote tier",
    "remote.log.index.file.cache.total.size.bytes": "remote tier",
    "remote.log.manager.copy.max.bytes.per.second": "remote tier",
    "remote.log.manager.fetch.max.bytes.per.second": "remote tier",
    "replica.alter.log.dirs.io.max.bytes.per.second": "not moved",
    "sasl.enabled.mechanisms": "not honoured yet",
    "ssl.keystore.location": "not honoured yet",
    "transaction.partition.verification.enable": "transactions",
}


def test_the_same_keys_are_dynamic_as_in_kafka() -> None:
    dynamic = [name for name, key in BROKER_KEYS.items() if key.dynamic]
    assert sorted(dynamic) == sorted(CLUSTER_WIDE + OF_ONE_BROKER + OURS)
    assert [*ONE_BROKERS] == OF_ONE_BROKER


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
def test_who_sets_what_has_no_effect_is_told_why(name: str) -> None:
    for layer in (OWN, ALL):
        assert WITHOUT_EFFECT[name] in (why_not_served(name, layer, STATIC) or "")


def test_what_counts_for_all_brokers_may_be_set_for_one_too() -> None:
    for name in CLUSTER_WIDE:
        if name not in WITHOUT_EFFECT and BROKER_KEYS[name].honoured:
            assert why_not_served(name, OWN, STATIC) is why_not_served(name, ALL, STATIC) is None
    assert why_not_served("advertised.listeners", OWN, STATIC) is None
    assert "for one broker only" in (why_not_served("advertised.listeners", ALL, STATIC) or "")


def test_a_key_of_a_listener_counts_where_there_is_one() -> None:
    name = "listener.name.plaintext.max.connections"
    assert why_not_served(name, OWN, STATIC) is why_not_served(name, ALL, STATIC) is None
    elsewhere = "listener.name.internal.max.connections"
    assert why_not_served(elsewhere, OWN, STATIC) == "this broker has no listener INTERNAL"
    assert why_not_served(elsewhere, ALL, STATIC) is None, "another broker may have it"
    assert broker_key("listener.name.PLAINTEXT.max.connections") is None, "Kafka's names are in lower case"
    file = {"broker.id": "1", "zookeeper.connect": "z:1", "log.dirs": "/data", name: "7", elsewhere: "8"}
    config = load_broker_config(file)
    assert config.of_listeners == {name: 7, elsewhere: 8}
    assert config.warnings == (f"{elsewhere} has no effect: listeners has no INTERNAL",)
