"""The controller, by the names of Kafka's and of kafka_exporter. Who is not controller tells 0 for Kafka's gauges, as a
Kafka does, and nothing by the exporter's names: those are series of the cluster, and have one owner.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import trio
from prometheus_client.core import Metric

from strandline.broker.metrics.bounds import MAX_SERIES
from strandline.broker.metrics.families import SLICE_SAMPLES, counter, gauge, gauges, quantiles
from strandline.controller.controller import Controller
from strandline.controller.controller_context import ControllerContext
from strandline.controller.counts import ControllerState
from strandline.controller.planning.preferred_leaders import preferred_replica
from strandline.controller.topics.deletion_tracker import DeletionTracker, ReplicaState
from strandline.protocol.types import TopicPartition

RATES = {
    "autoleaderbalance": ControllerState.AUTO_LEADER_BALANCE,
    "controlledshutdown": ControllerState.CONTROLLED_SHUTDOWN,
    "controllerchange": ControllerState.CONTROLLER_CHANGE,
    "isrchange": ControllerState.ISR_CHANGE,
    "leaderandisrresponsereceived": ControllerState.LEADER_AND_ISR_RESPONSE_RECEIVED,
    "leaderelection": ControllerState.BROKER_CHANGE,
    "listpartitionreassignment": ControllerState.LIST_PARTITION_REASSIGNMENT,
    "logdirchange": ControllerState.LOG_DIR_CHANGE,
    "manualleaderbalance": ControllerState.MANUAL_LEADER_BALANCE,
    "partitionreassignment": ControllerState.ALTER_PARTITION_REASSIGNMENT,
    "topicchange": ControllerState.TOPIC_CHANGE,
    "topicdeletion": ControllerState.TOPIC_DELETION,
    "topicuncleanleaderelectionenable": ControllerState.TOPIC_UNCLEAN_LEADER_ELECTION_ENABLE,
    "uncleanleaderelectionenable": ControllerState.UNCLEAN_LEADER_ELECTION_ENABLE,
}
"""`<name>RateAndTimeMs` → the state that it times. As in Kafka, leader elections are what follows from brokers that
come and go."""
_GAUGES = "kafka_controller_kafkacontroller"
_STATS = "kafka_controller_controllerstats"
_BROKER = "broker_id"
"""Kafka's tag is broker-id, of which jmx_exporter makes this."""
_HEALTH = "redpanda_cluster_health"


class Leaderless(NamedTuple):
    """A partition without a live leader. replicas, in_sync: how many, by its state in ZooKeeper."""

    topic_partition: TopicPartition
    replicas: int
    in_sync: int


class OfController:
    """A source."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self.leaderless: Sequence[Leaderless] = ()
        """As the last scrape found them; nothing where this broker is not the controller."""
        self._under_replicated = self._nodes_down = 0

    def __call__(self) -> Iterator[Metric]:
        term = self._controller.term
        acts = self._controller.is_active and term is not None
        context = term.context if acts and term is not None else ControllerContext()
        yield gauge(f"{_GAUGES}_activecontrollercount", "1 on the acting controller, else 0", int(acts))
        yield gauge(
            f"{_GAUGES}_controllerstate", "What the controller is at, by Kafka's numbers", self._controller.counts.state
        )
        text = "Brokers that live, as the controller sees it"
        yield gauge(f"{_GAUGES}_activebrokercount", text, len(context.brokers))
        yield gauge(f"{_GAUGES}_globaltopiccount", "Topics of the cluster", len(context.topics))
        yield from self._partitions(context)
        yield from _deletions(context, term.duties.deletions if acts and term is not None else DeletionTracker())
        yield from self._stats()
        yield from self._queues()
        if acts:
            yield from self._health()
            yield from self._of_cluster(context)

    def _partitions(self, context: ControllerContext) -> Iterator[Metric]:
        """It looks at each partition: now and then it yields a family without samples, for the loop to turn."""
        count = imbalanced = under_replicated = 0
        down: set[int] = set()
        leaderless: list[Leaderless] = []
        name, text = f"{_GAUGES}_offlinepartitionscount", "Partitions without a live leader"
        for topic in list(context.topics.values()):
            for partition in topic.assignment:
                tp = TopicPartition(topic.name, partition)
                count += 1
                assigned = context.replicas(tp)
                down.update(replica for replica in assigned if replica not in context.brokers)
                if topic.name not in context.deleting:
                    state = context.states.get(tp)
                    if not context.has_live_leader(tp):
                        in_sync = len(state.isr) if state is not None else 0
                        leaderless.append(Leaderless(tp, len(assigned), in_sync))
                    alive = sum(replica in context.brokers for replica in state.isr) if state is not None else 0
                    under_replicated += alive < len(assigned) - len(topic.adding_replicas.get(partition, ()))
                    imbalanced += state is None or state.leader != preferred_replica(context, tp)
                if count % SLICE_SAMPLES == 0:
                    yield Metric(name, text, "gauge")
        self.leaderless, self._under_replicated, self._nodes_down = leaderless, under_replicated, len(down)
        yield gauge(name, text, len(leaderless))
        text = "Partitions that another replica leads than the preferred one"
        yield gauge(f"{_GAUGES}_preferredreplicaimbalancecount", text, imbalanced)
        yield gauge(f"{_GAUGES}_globalpartitioncount", "Partitions of the cluster", count)

    def _stats(self) -> Iterator[Metric]:
        counts, now_s = self._controller.counts, trio.current_time()
        for name, state in RATES.items():
            times = counts.event_times[state]
            text = f"Milliseconds that events took, in state {state.name}"
            rows = [((), times.recent(now_s), times.lifetime().count)]
            yield from quantiles(f"{_STATS}_{name}rateandtimems", text, (), rows)
        text = "Elections by which acknowledged records may have been lost"
        yield counter(f"{_STATS}_uncleanleaderelections", text, counts.unclean_elections)
        text = "Milliseconds that events waited for their turn"
        waits = counts.queue_times
        rows = [((), waits.recent(now_s), waits.lifetime().count)]
        yield from quantiles("kafka_controller_controllereventmanager_eventqueuetimems", text, (), rows)

    def _queues(self) -> Iterator[Metric]:
        term, now_s = self._controller.term, trio.current_time()
        senders = term.tools.outbox.senders if term is not None else []
        text = "Events that wait for their turn"
        events = len(term.agenda) if term is not None else 0
        yield gauge("kafka_controller_controllereventmanager_eventqueuesize", text, events)
        manager = "kafka_controller_controllerchannelmanager"
        text = "Orders to all brokers that are not answered yet"
        yield gauge(f"{manager}_totalqueuesize", text, sum(each.queue_size for each in senders))
        text = "Orders to each broker that are not answered yet"
        ids = [(str(each.broker.broker_id),) for each in senders]
        sizes = [(key, float(each.queue_size)) for key, each in zip(ids, senders, strict=True)]
        yield from gauges(f"{manager}_queuesize", text, (_BROKER,), sizes)
        text = "Milliseconds that orders to each broker waited before they were sent"
        times = [
            (key, each.queue_times.recent(now_s), each.queue_times.lifetime().count)
            for key, each in zip(ids, senders, strict=True)
        ]
        if times:
            yield from quantiles(f"{manager}_requestrateandqueuetimems", text, (_BROKER,), times)

    def _health(self) -> Iterator[Metric]:
        """Redpanda's, which say in a few figures whether something is wrong: of the cluster, as the exporter's."""
        reasons = (
            ("leaderless_partitions", "Partitions without a live leader", len(self.leaderless)),
            (
                "under_replicated_partitions",
                "Partitions with fewer live replicas in sync than they have but for those being added",
                self._under_replicated,
            ),
            ("nodes_down", "Brokers that are gone and have replicas", self._nodes_down),
        )
        for name, text, value in reasons:
            yield gauge(f"{_HEALTH}_{name}", text, value)
        text = "How many of leaderless_partitions, under_replicated_partitions and nodes_down are not 0; 0: healthy"
        yield gauge(f"{_HEALTH}_unhealthy_reasons", text, sum(value > 0 for *_, value in reasons))

    def _of_cluster(self, context: ControllerContext) -> Iterator[Metric]:
        """kafka_exporter's, of which each series may exist once in a cluster."""
        yield gauge("kafka_brokers", "Brokers that live", len(context.brokers))
        yield from gauges(
            "kafka_broker_info",
            "1 for each broker that lives; the labels tell where it listens",
            ("id", "address"),
            [
                ((str(broker.broker_id), f"{broker.inter_broker.host}:{broker.inter_broker.port}"), 1)
                for _, broker in sorted(context.brokers.items())
            ],
        )
        rows = (((topic.name,), float(len(topic.assignment))) for topic in list(context.topics.values()))
        yield from gauges("kafka_topic_partitions", "Partitions of each topic", ("topic",), rows, MAX_SERIES)


def _deletions(context: ControllerContext, tracker: DeletionTracker) -> Iterator[Metric]:
    replicas, ineligible = tracker.count(), tracker.count(ReplicaState.DELETION_INELIGIBLE)
    yield from _each(
        [
            ("topicstodeletecount", "Topics that are being deleted", len(context.deleting)),
            ("topicsineligibletodeletecount", "Those whose deletion is held up", len(context.unfinished_deletions)),
            ("replicastodeletecount", "Replicas of topics that are being deleted", replicas),
            ("replicasineligibletodeletecount", "Those that cannot be deleted now", ineligible),
        ]
    )


def _each(rows: Iterable[tuple[str, str, float]]) -> Iterator[Metric]:
    for name, text, value in rows:
        yield gauge(f"{_GAUGES}_{name}", text, value)
