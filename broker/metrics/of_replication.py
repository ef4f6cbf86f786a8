"""Replication by the names of Kafka's ReplicaManager, ReplicaFetcherManager and purgatories, and who waits in these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client.core import Metric

from strandline.broker.groups.shards import Coordinated
from strandline.broker.groups.states import GroupState
from strandline.broker.handlers.fetch import PendingFetch
from strandline.broker.handlers.session_fetches import PendingSessionFetch
from strandline.broker.metrics.bounds import MAX_PARTITIONS, Bounds
from strandline.broker.metrics.families import SLICE_SAMPLES, counter, gauges
from strandline.broker.replication.deadlines import Deadlines
from strandline.broker.replication.follower import Followers
from strandline.broker.replication.isr_counts import IsrCounts
from strandline.broker.replication.leadership import Leadership
from strandline.broker.replication.partition import Partition
from strandline.broker.replication.replicas import Replicas

CLIENT = "Replica"
"""What Kafka's fetchers of replicas are called in its labels."""


class OfIsrs:
    """A source: what became of proposals to change ISRs."""

    def __init__(self, counts: IsrCounts) -> None:
        self._counts = counts

    def __call__(self) -> Iterator[Metric]:
        counts = self._counts
        for name, text, value in (
            ("isrshrinks", "Times that a replica was taken out of an ISR by this broker as leader", counts.shrinks),
            ("isrexpands", "Times that a replica came back into an ISR by this broker as leader", counts.expands),
            ("failedisrupdates", "ISR changes that ZooKeeper did not take", counts.failed),
        ):
            yield counter(f"kafka_server_replicamanager_{name}", text, value)


class OfFollowers:
    """A source: how far this broker is behind the leaders that it follows. Of single partitions only those are told
    that are behind: there would be a series for each replica, and nearly all would say 0."""

    def __init__(self, followers: Followers, bounds: Bounds) -> None:
        self._followers = followers
        self._bounds = bounds

    def __call__(self) -> Iterator[Metric]:
        lags = list(self._followers.lags())
        manager, label = "kafka_server_replicafetchermanager", ("clientId",)
        most = max((lag for _, lag in lags), default=0)
        text = "Records that the last one of all replicas lacks"
        yield from gauges(f"{manager}_maxlag", text, label, [((CLIENT,), most)])
        text = "Partitions that are not fetched for a moment, after an error"
        yield from gauges(f"{manager}_failedpartitionscount", text, label, [((CLIENT,), self._followers.failing)])
        name, text = "kafka_server_fetcherlagmetrics_consumerlag", "Records that each replica lacks which is behind"
        rows = (
            ((CLIENT, partition.topic_partition.topic, str(partition.topic_partition.partition)), float(lag))
            for partition, lag in self._bounds.first(name, lags, MAX_PARTITIONS)
        )
        yield from gauges(name, text, ("clientId", "topic", "partition"), rows)


class OfPurgatories:
    """A source: requests that wait for others to come about, and members of whose sessions somebody takes note."""

    def __init__(self, deadlines: Deadlines, replicas: Replicas) -> None:
        self._deadlines = deadlines
        self._replicas = replicas

    def __call__(self) -> Iterator[Metric]:
        """It looks at each partition: now and then it yields a family without samples, for the loop to turn."""
        name, text = "kafka_server_delayedoperationpurgatory_purgatorysize", "Operations that wait for something"
        sizes = dict.fromkeys(("Produce", "Fetch", "DeleteRecords", "Rebalance", "Heartbeat"), 0)
        for number, partition in enumerate(list(self._replicas.partitions.values()), 1):
            sizes["Produce"] += len(partition.waiters.waiting)
            sizes["DeleteRecords"] += len(partition.deletions.waiting)
            if number % (SLICE_SAMPLES * 4) == 0:
                yield Metric(name, text, "gauge")
        for number, each in enumerate(self._deadlines.waiting(), 1):
            if isinstance(each, PendingFetch | PendingSessionFetch):
                sizes["Fetch"] += 1
            elif isinstance(each, Coordinated):
                sizes["Heartbeat"] += len(each.group.members)
                sizes["Rebalance"] += each.group.state is GroupState.PREPARING
            if number % (SLICE_SAMPLES * 4) == 0:
                yield Metric(name, text, "gauge")
        yield from gauges(name, text, ("delayedOperation",), [((kind,), float(size)) for kind, size in sizes.items()])


class OfLedPartitions:
    """A source: each partition that this broker leads, by the names of kafka_exporter. Of a partition there is one
    leader, so there is one series of each in a cluster. is_per_partition: whether partitions have series of their
    own."""

    def __init__(self, replicas: Replicas, bounds: Bounds, is_per_partition: Callable[[], bool]) -> None:
        self._replicas = replicas
        self._bounds = bounds
        self._is_per_partition = is_per_partition

    def __call__(self) -> Iterator[Metric]:
        if not self._is_per_partition():
            return
        led = [each for each in self._replicas.partitions.values() if each.leadership is not None]
        for name, (text, figure) in _OF_LED.items():
            family = f"kafka_topic_partition_{name}"
            partitions = self._bounds.first(family, led, MAX_PARTITIONS)
            yield from gauges(family, text, ("topic", "partition"), _rows(partitions, figure))


_OF_LED: dict[str, tuple[str, Callable[[Partition, Leadership], float]]] = {
    "current_offset": ("Where the partition ends for consumers", lambda each, _: each.high_watermark),
    "oldest_offset": ("Where the partition begins", lambda each, _: each.log.log_start_offset),
    "replicas": ("Replicas of the partition", lambda _, leads: len(leads.replicas)),
    "in_sync_replica": ("Replicas that are in sync", lambda _, leads: len(leads.isr)),
    "leader": ("The id of the broker that leads", lambda _, leads: leads.broker_id),
    "leader_is_preferred": ("1: the first replica leads", lambda _, leads: leads.replicas[0] == leads.broker_id),
    "under_replicated_partition": ("1: replicas lack in the ISR", lambda _, leads: leads.is_under_replicated),
}


def _rows(
    partitions: Iterable[Partition], figure: Callable[[Partition, Leadership], float]
) -> Iterator[tuple[tuple[str, str], float]]:
    for partition in partitions:
        if (leadership := partition.leadership) is not None:  # else it has gone since the scrape began
            topic, index = partition.topic_partition
            yield (topic, str(index)), float(figure(partition, leadership))
