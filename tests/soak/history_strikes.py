"""What all kinds of faults of `make soak-history` share: how they are found by name, and the cluster they strike."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import Any

from soak.history_site import HistoryCluster
from strandline.protocol.types import TopicPartition
from strandline.testkit.simulation.script import Fault

Strike = Callable[[Any, Fault, list[int]], Awaitable[str | None]]
"""A method of who strikes. It returns what else is told of it."""
STRIKES: dict[str, Strike] = {}


def kind(name: str) -> Callable[[Strike], Strike]:
    def register(strike: Strike) -> Strike:
        STRIKES[name] = strike
        return strike

    return register


class Striker:
    """partitions: which are moved, and read."""

    def __init__(self, cluster: HistoryCluster, partitions: list[TopicPartition], seed: int) -> None:
        self.cluster = cluster
        self.partitions = partitions
        self.findings: list[str] = []
        """What must not be."""
        self._random = random.Random(f"storms {seed}")
        self._now: set[str] = set()
        """What is struck just now."""

    def _is_alive(self, broker: int) -> bool:
        return self.cluster.brokers[broker].is_alive

    def _pid(self, broker: int) -> int:
        process = self.cluster.brokers[broker].id
        assert process is not None
        return process.pid

    def _how_it_ended(self, broker: int) -> str:
        daemon = self.cluster.brokers[broker]
        return f"exit code {daemon.exit_code}: {daemon.last_log_line()}"
