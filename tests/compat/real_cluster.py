"""Three brokers of a real Kafka (3.9, ZooKeeper mode) with the folders and the properties that three of ours have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kazoo.client import KazooClient

from compat.jars import KAFKA_3
from compat.real_kafka import LOG4J, START_TIMEOUT_S, wait_until
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.java import find_java


class RealCluster(EmbeddedCluster):
    """A cluster of ours, but for what runs."""

    JVM: tuple[str, ...] = ("-Xmx400m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")

    def broker_command(self, config: Path) -> list[str]:
        log4j = config.with_name("log4j.properties")
        log4j.write_text(LOG4J)
        options = (*self.JVM, *KAFKA_3.from_archive(), f"-Dlog4j.configuration=file:{log4j}")
        return [str(find_java().command), *options, "-cp", KAFKA_3.class_path(), "kafka.Kafka", str(config)]

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S, broker_ids: Sequence[int] | None = None) -> None:
        """Until all of them say so and are registered."""
        for broker_id in broker_ids or self.broker_ids:
            log = self.brokers[broker_id].log_path
            wait_until(lambda log=log: "started (kafka.server.KafkaServer)" in log.read_text(), str(log), timeout_s)
        client = KazooClient(hosts=self.zookeeper.address, timeout=30)
        client.start(timeout=30)
        try:
            ids = list(map(str, self.broker_ids))
            wait_until(lambda: sorted(client.get_children("/brokers/ids")) == ids, "all are registered", timeout_s)
        finally:
            client.stop()
            client.close()
