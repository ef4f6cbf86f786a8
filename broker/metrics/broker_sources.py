"""Which sources tell of the parts of one broker, but for its requests, topics and controller: built when the parts
are."""

from __future__ import annotations

import trio

from strandline.broker.data_plane import DataPlane
from strandline.broker.groups.coordinator import GroupCoordinator
from strandline.broker.metrics.end_offsets import EndOffsets, EndQuestions
from strandline.broker.metrics.families import Source
from strandline.broker.metrics.of_controller import OfController
from strandline.broker.metrics.of_groups import OfGroups
from strandline.broker.metrics.of_logs import OfLogs
from strandline.broker.metrics.of_loop import LoopWatch, OfLoop
from strandline.broker.metrics.of_machine import OfProcess, of_machine
from strandline.broker.metrics.of_partitions import OfPartitions
from strandline.broker.metrics.of_quotas import OfQuotas
from strandline.broker.metrics.of_replication import OfFollowers, OfIsrs, OfPurgatories
from strandline.broker.metrics.of_requests import OfRequests
from strandline.broker.metrics.of_topics import OfTopics
from strandline.broker.metrics.of_volumes import OfVolumes
from strandline.broker.metrics.of_zookeeper import OfZooKeeper
from strandline.broker.metrics.sources import MetricSources
from strandline.broker.network.listeners import Listeners
from strandline.broker.network.request_channel import RequestChannel
from strandline.broker.quotas.quotas import Quotas
from strandline.broker.upkeep.cleaning import Cleaning
from strandline.broker.upkeep.housekeeping import Housekeeping
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.coordination import Coordination
from strandline.runtime.environment import Environment
from strandline.storage.manager.log_manager import LogManager


class BrokerSources:
    """`run`, until cancelled, finds out what no scrape may wait for."""

    def __init__(
        self,
        config: CurrentConfig,
        channel: RequestChannel,
        of_controller: OfController,
        data: DataPlane,
        groups: GroupCoordinator,
        logs: LogManager,
        housekeeping: Housekeeping,
        cleaning: Cleaning,
        listeners: Listeners,
        coordination: Coordination,
        environment: Environment,
        quotas: Quotas,
    ) -> None:
        self._ends = EndOffsets(data.replicas, EndQuestions(data.replicas, environment.network).ask_leader)
        self._loop = LoopWatch()
        self.volumes = OfVolumes(logs, environment.disk, environment.blocking)

        def is_per_partition() -> bool:
            return config.value.metrics_per_partition

        self._sources: dict[str, Source] = {
            "requests": OfRequests(channel, listeners.unsent),
            "topics": OfTopics(data.replicas, logs, data.fetch.sessions.sessions.settle, is_per_partition),
            "controller": of_controller,
            "isrs": OfIsrs(data.isr_updates.counts),
            "followers": OfFollowers(data.followers),
            "partitions": OfPartitions(data.replicas, lambda: of_controller.leaderless, is_per_partition),
            "purgatories": OfPurgatories(data.deadlines, data.replicas),
            "groups": OfGroups(groups, self._ends, data.metadata.partitions_of, is_per_partition),
            "logs": OfLogs(logs, housekeeping, cleaning),
            "volumes": self.volumes,
            "quotas": OfQuotas(quotas.rows, quotas.connection_rows),
            "loop": OfLoop(self._loop, listeners.connections),
            "ZooKeeper": OfZooKeeper(coordination),
            "process": OfProcess(),
            "machine": of_machine,
        }

    def add_to(self, metrics: MetricSources) -> None:
        """In the order in which they are told."""
        for name, source in self._sources.items():
            metrics.add(name, source)

    async def run(self) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._ends.run)
            nursery.start_soon(self._loop.run)
            nursery.start_soon(self.volumes.run)
