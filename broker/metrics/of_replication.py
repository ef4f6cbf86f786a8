"""Replication by the names of Kafka's ReplicaManager, ReplicaFetcherManager and purgatories, and who waits in these."""

from __future__ import annotations

from collections.abc import Iterator
from operator import itemgetter

from prometheus_client.core import Metric

from strandline.broker.groups.shards import Coordinated
from strandline.broker.groups.states import GroupState
from strandline.broker.handlers.fetch import PendingFetch
from strandline.broker.handlers.session_fetches import PendingSessionFetch
from strandline.broker.metrics.bounds import MAX_SERIES
from strandline.broker.metrics.families import SLICE_SAMPLES, counter, gauges
from strandline.broker.replication.deadlines import Deadlines
from strandline.broker.replication.follower import Followers
from strandline.broker.replication.isr_counts import IsrCounts
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

    def __init__(self, followers: Followers) -> None:
        self._followers = followers

    def __call__(self) -> Iterator[Metric]:
        manager, label = "kafka_server_replicafetchermanager", ("clientId",)
        lags = list(self._followers.lags())
        most = max(map(itemgetter(1), lags), default=0)
        text = "Records that the last one of all replicas lacks"
        yield from gauges(f"{manager}_maxlag", text, label, [((CLIENT,), most)])
        text = "Partitions that are not fetched for a moment, after an error"
        yield from gauges(f"{manager}_failedpartitionscount", text, label, [((CLIENT,), self._followers.failing)])
        name, text = "kafka_server_fetcherlagmetrics_consumerlag", "Records that each replica lacks which is behind"
        rows = (
            ((CLIENT, partition.topic_partition.topic, str(partition.topic_partition.partition)), float(lag))
            for partition, lag in lags
        )
        yield from gauges(name, text, ("clientId", "topic", "partition"), rows, MAX_SERIES)


class OfPurgatories:
    """A source: requests that wait for others to come about, and members of whose sessions somebody takes note. As in
    Kafka who waits for several partitions counts in each."""

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
                sizes["Fetch"] += each.watched_count
            elif isinstance(each, Coordinated):
                sizes["Heartbeat"] += len(each.group.members)
                sizes["Rebalance"] += each.group.state is GroupState.PREPARING
            if number % (SLICE_SAMPLES * 4) == 0:
                yield Metric(name, text, "gauge")
        yield from gauges(name, text, ("delayedOperation",), [((kind,), float(size)) for kind, size in sizes.items()])
