"""Three brokers with what an exporter has to tell apart: partitions with and without records, trimmed, of one, two and
three replicas; groups with two members, with none, with members and nothing committed; and then a broker is killed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from compat.metrics_site import VICTIM, cluster_with_admin_ports, until
from strandline import Admin, Consumer, GroupOffset, Producer, TopicPartition
from strandline.cli.cluster import EmbeddedCluster

TOPICS = {
    "clicks": {0: [1, 2, 3], 1: [2, 3, 1], 2: [3, 1, 2]},
    "pairs": {0: [1, 2], 1: [3, 2]},
    "alone": {0: [1], 1: [VICTIM]},
    "empty": {0: [2, 3]},
}
RECORDS = 10
"""In each partition but those of `empty`."""
MEMBERS = (("readers", "clicks"), ("readers", "clicks"), ("watchers", "pairs"))
"""(group, topic) of each."""


@contextmanager
def staged(folder: Path) -> Iterator[EmbeddedCluster]:
    with cluster_with_admin_ports(folder) as cluster, ExitStack() as members:
        servers = cluster.bootstrap_servers
        with Admin(bootstrap_servers=servers) as admin:
            for topic, assignments in TOPICS.items():
                admin.create_topic(topic, assignments=assignments, configs={"min.insync.replicas": "1"})
            _produce(servers)
            admin.delete_records({TopicPartition("clicks", 1): 4, TopicPartition("alone", 1): 2})
            for group, committed in {
                "readers": {("clicks", 0): 4, ("clicks", 1): RECORDS},
                "gone": {("clicks", 0): 0, ("clicks", 1): 7, ("clicks", 2): 1, ("alone", 1): 6, ("empty", 0): 0},
            }.items():
                offsets = {TopicPartition(*place): GroupOffset(at) for place, at in committed.items()}
                failures = [each for each in admin.alter_group_offsets(group, offsets).values() if each]
                assert not failures, failures
        consumers = [
            members.enter_context(Consumer(bootstrap_servers=servers, group_id=group, enable_auto_commit=False))
            for group, _ in MEMBERS
        ]
        for consumer, (_, topic) in zip(consumers, MEMBERS, strict=True):
            consumer.subscribe([topic])

        def all_have_some() -> bool:
            for consumer in consumers:
                consumer.poll(timeout_ms=50)
            return all(consumer.assignment for consumer in consumers)

        until(all_have_some, "not every member gets partitions")
        yield cluster


def kill(cluster: EmbeddedCluster) -> None:
    """The broker that leads `clicks:2`, `pairs:1` and `alone:1`, which only it has. It returns when the others have
    put it out of every in-sync set."""
    cluster.kill_broker(VICTIM)

    def is_noticed() -> bool:
        view = cluster.metadata()
        return view is not None and not any(
            VICTIM in partition.isr_nodes and len(partition.replica_nodes) > 1
            for topic in view.topics
            for partition in topic.partitions
        )

    until(is_noticed, "the killed broker stays in sync")


def _produce(servers: str) -> None:
    with Producer(bootstrap_servers=servers, acks="all") as producer:
        for topic, assignments in TOPICS.items():
            for partition in assignments if topic != "empty" else ():
                for number in range(RECORDS):
                    producer.send(topic, b"%d" % number, partition=partition)
        producer.flush(timeout=20)
