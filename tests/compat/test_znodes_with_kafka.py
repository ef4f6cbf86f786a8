"""Kafka's controller and ours take over each other's ZooKeeper: same znodes, same fields, same types.

The topics that one made are there for the other, with their ids and overrides; requests under `/admin` that one wrote
are carried out by the other.
"""

from __future__ import annotations

import json
from typing import Any

from compat.real_kafka import BROKER_ID, Site, wait_until
from strandline.client.sync import Admin
from strandline.client.sync_producer import Producer
from strandline.protocol.types import TopicPartition
from strandline.protocol.znodes import (
    BrokerIdZnode,
    ClusterIdZnode,
    ConfigChangeZnode,
    ConfigZnode,
    ControllerEpochZnode,
    ControllerZnode,
    DeleteTopicZnode,
    PartitionStateZnode,
    PreferredReplicaElectionZnode,
    ReassignPartitionsZnode,
    TopicIdZnode,
    TopicZnode,
)

OVERRIDES = {"segment.bytes": "15000", "retention.ms": "-1"}
OF_OURS_ONLY = {"lock_id", "lossy_start", "apis", "broker_key"}
"""Fields of a registration that Kafka neither writes nor minds."""
ZNODES: dict[str, Any] = {
    BrokerIdZnode.path(BROKER_ID): BrokerIdZnode,
    TopicZnode.path("t"): TopicZnode,
    PartitionStateZnode.path("t", 0): PartitionStateZnode,
    PartitionStateZnode.path("t", 1): PartitionStateZnode,
    ControllerZnode.PATH: ControllerZnode,
    ControllerEpochZnode.PATH: ControllerEpochZnode,
    ConfigZnode.path("t"): ConfigZnode,
    ClusterIdZnode.PATH: ClusterIdZnode,
}


def stored(site: Site) -> dict[str, bytes]:
    with site.znodes() as client:
        return {path: client.get(path)[0] for path in ZNODES}


def shape(data: bytes) -> Any:
    """Fields and their types."""
    value = json.loads(data)
    return {key: type(item) for key, item in value.items()} if isinstance(value, dict) else type(value)


def append_with_ours(site: Site) -> None:
    with Producer(site.ours.address, acks="all") as producer:
        for start in range(0, 600, 20):
            for place in range(start, start + 20):
                producer.send("t", b"%d" % place * 40, partition=place % 2)
            producer.flush()


def test_both_write_the_same_fields_and_understand_each_others(new_site) -> None:
    theirs, ours = new_site(), new_site()
    theirs.kafka.start()
    theirs.kafka.create_topic("t", partitions=2, **{key.replace(".", "_"): value for key, value in OVERRIDES.items()})
    ours.ours.start()
    with Admin(ours.ours.address) as admin:
        admin.create_topic("t", 2, 1, configs=OVERRIDES)
    from_kafka, from_us = stored(theirs), stored(ours)
    for path, cls in ZNODES.items():
        fields = shape(from_us[path])
        if cls is BrokerIdZnode:
            fields = {key: kind for key, kind in fields.items() if key not in OF_OURS_ONLY}
        assert fields == shape(from_kafka[path]), path
        # What Kafka wrote loses nothing by our reading and writing it.
        again, before = json.loads(cls.decode(path, from_kafka[path]).encode()), json.loads(from_kafka[path])
        if cls is BrokerIdZnode:
            again = {key: value for key, value in again.items() if key not in OF_OURS_ONLY}
        assert again == before, path


def test_kafka_takes_over_a_cluster_of_ours(new_site) -> None:
    site: Site = new_site()
    site.ours.start()
    with Admin(site.ours.address) as admin:
        for topic in ("t", "doomed"):
            admin.create_topic(topic, 2, 1, configs=OVERRIDES)
    append_with_ours(site)
    served = [site.ours.raw("t", partition) for partition in (0, 1)]
    before = stored(site)
    site.ours.stop()
    with site.znodes() as client:  # requests that our tools would have written
        client.ensure_path("/admin")
        client.create(DeleteTopicZnode.path("doomed"))
        client.create(ReassignPartitionsZnode.PATH, ReassignPartitionsZnode({TopicPartition("t", 0): [1]}).encode())
        client.create(
            PreferredReplicaElectionZnode.PATH, PreferredReplicaElectionZnode([TopicPartition("t", 1)]).encode()
        )

    site.kafka.start()
    assert [site.kafka.raw("t", partition) for partition in (0, 1)] == served
    with site.znodes() as client:
        wait_until(lambda: not client.exists(TopicZnode.path("doomed")), "Kafka deleted the topic")
        wait_until(lambda: not client.exists(ReassignPartitionsZnode.PATH), "Kafka carried the reassignment out")
        wait_until(
            lambda: not client.exists(PreferredReplicaElectionZnode.PATH), "Kafka elected the preferred replicas"
        )
        after = stored(site)
        client.set(ConfigZnode.path("t"), ConfigZnode({**OVERRIDES, "max.message.bytes": "77777"}).encode())
        client.create(ConfigChangeZnode.SEQUENCE_PATH, ConfigChangeZnode("topics/t").encode(), sequence=True)
    wait_until(lambda: "max.message.bytes -> 77777" in site.kafka.log(), "Kafka took note of our override")
    site.kafka.produce("t", [(None, b"from an idempotent producer")], enable_idempotence=True)
    for cls, path in ((TopicZnode, TopicZnode.path("t")), (ConfigZnode, ConfigZnode.path("t"))):
        assert cls.decode(path, after[path]) == cls.decode(path, before[path])
    assert after[ClusterIdZnode.PATH] == before[ClusterIdZnode.PATH]
    assert int(after[ControllerEpochZnode.PATH]) > int(before[ControllerEpochZnode.PATH])
    site.kafka.stop()
    assert not site.kafka.complaints()


def test_our_controller_takes_over_a_cluster_of_kafka(new_site) -> None:
    site: Site = new_site()
    site.kafka.start()
    for topic in ("t", "doomed"):
        site.kafka.create_topic(topic, partitions=2, **{key.replace(".", "_"): v for key, v in OVERRIDES.items()})
    before = stored(site)
    site.kafka.stop()
    with site.znodes() as client:
        client.create(DeleteTopicZnode.path("doomed"))

    site.ours.start()
    with site.znodes() as client:
        wait_until(lambda: not client.exists(TopicZnode.path("doomed")), "our controller deleted the topic")
        topic_id = TopicZnode.decode("t", before[TopicZnode.path("t")]).topic_id
        assert topic_id is not None and client.exists(TopicIdZnode.path("t", topic_id)), "ISR changes check it"
    append_with_ours(site)
    assert len(list(site.data.glob("t-0/*.log"))) > 1  # rolled by the override that Kafka had stored
    after = stored(site)
    for cls, path in ((TopicZnode, TopicZnode.path("t")), (ConfigZnode, ConfigZnode.path("t"))):
        assert cls.decode(path, after[path]) == cls.decode(path, before[path])
    site.ours.stop()

    site.kafka.start()
    for partition in (0, 1):
        assert site.kafka.bounds("t", partition) == (0, 300)
    site.kafka.stop()
    assert not site.kafka.complaints()
