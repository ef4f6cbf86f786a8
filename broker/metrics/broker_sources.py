"""Which sources tell of the parts of one broker: built once, when the parts are."""

from __future__ import annotations

from strandline.broker.data_plane import DataPlane
from strandline.broker.groups.coordinator import GroupCoordinator
from strandline.broker.metrics.bounds import Bounds
from strandline.broker.metrics.end_offsets import EndOffsets, EndQuestions
from strandline.broker.metrics.families import Source
from strandline.broker.metrics.of_groups import OfGroups
from strandline.broker.metrics.of_machine import OfProcess, of_machine
from strandline.broker.metrics.of_requests import OfRequests
from strandline.broker.metrics.of_topics import OfTopics
from strandline.broker.metrics.sources import MetricSources
from strandline.broker.network.request_channel import RequestChannel
from strandline.runtime.config.dynamic import CurrentConfig
from strandline.runtime.network import Network


class BrokerSources:
    """`run`, until cancelled, finds out what no scrape may wait for."""

    def __init__(
        self,
        bounds: Bounds,
        config: CurrentConfig,
        channel: RequestChannel,
        data: DataPlane,
        groups: GroupCoordinator,
        of_controller: Source,
        network: Network,
    ) -> None:
        self._ends = EndOffsets(data.replicas, EndQuestions(data.replicas, network).ask_leader)
        self._sources: dict[str, Source] = {
            "requests": OfRequests(channel),
            "topics": OfTopics(data.replicas, bounds, lambda: config.value.metrics_per_partition),
            "controller": of_controller,
            "groups": OfGroups(groups, self._ends, bounds),
            "process": OfProcess(),
            "machine": of_machine,
            "bounds": bounds.left_out,
        }

    def add_to(self, metrics: MetricSources) -> None:
        """Behind all others: what they left out is told last."""
        for name, source in self._sources.items():
            metrics.add(name, source)

    async def run(self) -> None:
        await self._ends.run()
