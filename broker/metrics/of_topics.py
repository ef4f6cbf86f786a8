"""Topics and partitions of this broker, by the names of Kafka's BrokerTopicMetrics, ReplicaManager, Partition and Log.

Partitions are gone through family by family, in slices, while the broker goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter

from prometheus_client.core import Metric

from strandline.broker.metrics.bounds import MAX_SERIES
from strandline.broker.metrics.families import counter, counters, gauge, gauges
from strandline.broker.replication.leadership import Leadership
from strandline.broker.replication.offline_replicas import not_hosted
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas
from strandline.broker.replication.topic_counts import TopicTraffic
from strandline.storage.manager.log_manager import LogManager

PARTITIONS_PER_STEP = 1000
_TRAFFIC = {
    "messagesin": ("messages_in", "Records appended here as the leader"),
    "bytesin": ("bytes_in", "Bytes appended here as the leader"),
    "bytesout": ("bytes_out", "Bytes sent to consumers"),
    "bytesrejected": ("bytes_rejected", "Bytes of batches that were too large"),
    "totalproducerequests": ("produce_requests", "Partitions that produce requests named"),
    "totalfetchrequests": ("fetch_requests", "Partitions that fetches read"),
    "failedproducerequests": ("failed_produce_requests", "Partitions for which a produce request failed"),
    "failedfetchrequests": ("failed_fetch_requests", "Partitions for which a fetch failed"),
}
_OF_LEADERS: dict[str, tuple[str, Callable[[Partition], float]]] = {
    "underreplicated": ("1 where replicas are missing from the ISR", lambda p: _led(p).is_under_replicated),
    "insyncreplicascount": ("Replicas in the ISR", lambda p: len(_led(p).isr)),
    "replicascount": ("Replicas, without those that are being added", lambda p: _led(p).replication_factor),
    "underminisr": ("1 where the ISR is below min.insync.replicas", lambda p: not _led(p).has_enough_replicas),
    "atminisr": ("1 where one more that is lost stops acks=all", lambda p: _led(p).is_at_minimum),
    "laststableoffsetlag": ("Records between HW and LSO", lambda p: 0),
}
_OF_LOGS: dict[str, tuple[str, Callable[[Partition], float]]] = {
    "size": ("Bytes of the log", lambda p: p.log.segments.size_bytes),
    "numlogsegments": ("Segments of the log", lambda p: len(p.log.segments)),
    "logstartoffset": ("First offset of the log", lambda p: p.log.log_start_offset),
    "logendoffset": ("Offset of the next record", lambda p: p.log.log_end_offset),
}


def _of_traffic(traffic: TopicTraffic, topics: Iterable[str]) -> Iterator[Metric]:
    """For each figure a series without a topic, which counts all there ever were, and one for each topic here. One that
    goes meanwhile, which another scrape may have noticed, has none from then on."""
    traffic.keep(topics)
    in_order = sorted(traffic.rows)
    for name, (counted, help_text) in _TRAFFIC.items():
        family = f"kafka_server_brokertopicmetrics_{name}"
        yield counter(family, help_text, traffic.total(counted))
        rows = (
            ((topic,), getattr(row, counted)) if (row := traffic.rows.get(topic)) is not None else None
            for topic in in_order
        )
        yield from counters(family, help_text, ("topic",), rows, MAX_SERIES)
    for direction, count in (("in", traffic.replication_bytes_in), ("out", traffic.replication_bytes_out)):
        help_text = "Bytes appended as a follower" if direction == "in" else "Bytes sent to followers"
        yield counter(f"kafka_server_brokertopicmetrics_replicationbytes{direction}", help_text, count)


def _led(partition: Partition) -> Leadership:
    assert partition.leadership is not None
    return partition.leadership


def _is_led(partition: Partition) -> bool:
    return partition.leadership is not None


def _has_log(partition: Partition) -> bool:
    return not partition.failed


class OfTopics:
    """A source. is_per_partition: whether partitions have series of their own (`metrics.per.partition`)."""

    def __init__(
        self,
        replicas: Replicas,
        logs: LogManager,
        settle: Callable[[], Iterable[None]],
        is_per_partition: Callable[[], bool],
    ) -> None:
        """settle: see `FetchSessions`."""
        self._replicas = replicas
        self._settle = settle
        self._logs = logs
        self._is_per_partition = is_per_partition

    def __call__(self) -> Iterator[Metric]:
        for _ in self._settle():
            yield Metric("kafka_server_brokertopicmetrics_messagesin", _TRAFFIC["messagesin"][1], "counter")
        yield from _of_traffic(self._replicas.traffic, map(itemgetter(0), self._replicas.partitions))
        yield from self._of_replica_manager()
        if self._is_per_partition():
            for name, (help_text, figure) in _OF_LEADERS.items():
                yield from self._of_each(f"kafka_cluster_partition_{name}", help_text, figure, _is_led)
            for name, (help_text, figure) in _OF_LOGS.items():
                yield from self._of_each(f"kafka_log_log_{name}", help_text, figure, _has_log)

    def _of_each(
        self,
        name: str,
        help_text: str,
        figure: Callable[[Partition], float],
        is_told: Callable[[Partition], bool],
    ) -> Iterator[Metric]:
        rows = (
            ((partition.topic_partition.topic, str(partition.topic_partition.partition)), float(figure(partition)))
            if is_told(partition)
            else None
            for partition in list(self._replicas.partitions.values())
        )
        return gauges(name, help_text, ("topic", "partition"), rows, MAX_SERIES)

    def _of_replica_manager(self) -> Iterator[Metric]:
        led = under_replicated = under_minimum = at_minimum = offline = moving = 0
        partitions = self._replicas.partitions
        name, text = "kafka_server_replicamanager_partitioncount", "Replicas on this broker, offline ones too"
        for number, partition in enumerate(list(partitions.values()), 1):
            if number % PARTITIONS_PER_STEP == 0:
                yield Metric(name, text, "gauge")  # without a sample: for the loop to turn
            leadership = partition.leadership
            offline += partition.failed
            if leadership is not None:
                led += 1
                under_replicated += leadership.is_under_replicated
                under_minimum += not leadership.has_enough_replicas
                at_minimum += leadership.is_at_minimum
                moving += leadership.is_reassigned
        missing = 0
        for some in not_hosted(self._replicas.broker_id, self._replicas.metadata, partitions, self._logs):
            missing += some
            yield Metric(name, text, "gauge")
        for name, help_text, value in (
            ("partitioncount", text, len(partitions) + missing),
            ("leadercount", "Partitions that this broker leads", led),
            ("underreplicatedpartitions", "Led here, with replicas that are not in the ISR", under_replicated),
            ("underminisrpartitioncount", "Led here, with fewer in sync than min.insync.replicas", under_minimum),
            ("atminisrpartitioncount", "Led here, with as many in sync as min.insync.replicas", at_minimum),
            ("offlinereplicacount", "Replicas whose log failed, was refused or cannot be read", offline + missing),
            ("reassigningpartitions", "Led here, with replicas that are being added or removed", moving),
        ):
            yield gauge(f"kafka_server_replicamanager_{name}", help_text, value)
