"""Whether a broker does its share, and what there is to say of it: from facts to an answer, in steps, without a wait.

A broker is *ready* when (1) it is registered in ZooKeeper, (2) a controller told it who lives and who leads, itself
among the living, (3) every partition that it is to lead is served by it, and (4) it was in sync with all its partitions
once since its start. (4) is remembered: a broker that falls behind later still serves, and a restart would not help.
A log that was refused (damaged, or of another topic id) cannot catch up by itself; it is named apart, for an operator.
Partitions that have no leader do not count: this broker cannot change that.
A registration is taken for gone once ZooKeeper was silent for longer than the session lasts: it has ended the session
by then, and will only say so when it is reached again. A broker that leaves is not ready from its first step on.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from strandline.broker.admin.problem_search import ProblemSearch
from strandline.broker.admin.problem_watch import ProblemWatch
from strandline.broker.admin.walks import hosted_in_steps, known_in_steps
from strandline.broker.membership.registration import Registration
from strandline.broker.metadata_cache import MetadataCache
from strandline.broker.network.listeners import Listeners
from strandline.broker.replication.offline_replicas import not_hosted
from strandline.broker.replication.partition import Partition
from strandline.broker.steps import Steps
from strandline.protocol.types import NO_BROKER
from strandline.runtime.coordination import Coordination
from strandline.runtime.disk import DiskSpace
from strandline.runtime.environment import WallClock
from strandline.runtime.logging import Logger
from strandline.storage.manager.log_manager import LogManager

MOST_NAMED = 5
"""So many partitions are named in a reason; the others are counted."""


class HealthCheck:
    """Asks the parts of a broker; made once, since it remembers that the broker had caught up."""

    def __init__(
        self,
        broker_id: int,
        versions: Mapping[str, str],
        cluster_id: str,
        metadata: MetadataCache,
        partitions: Mapping[tuple[str, int], Partition],
        logs: LogManager,
        registration: Registration,
        coordination: Coordination,
        listeners: Listeners,
        wall_clock: WallClock,
        volumes: Callable[[], Mapping[str, DiskSpace]],
        left_alone: Callable[[], Collection[Partition]],
        failing_sources: Callable[[], Mapping[str, str]],
        log: Logger,
    ) -> None:
        """The last ones: see `ProblemSearch`."""
        self._broker_id = broker_id
        self._versions = versions
        self._cluster_id = cluster_id
        self._metadata = metadata
        self._partitions = partitions
        self._logs = logs
        self._refused = logs.refused
        self._directories = logs.directories
        self._registration = registration
        self._coordination = coordination
        self._listeners = listeners
        self._wall_clock = wall_clock
        search = ProblemSearch(
            broker_id, metadata, partitions, logs, coordination, volumes, left_alone, failing_sources
        )
        self.problems = ProblemWatch(search, wall_clock, log)
        self._caught_up = False
        self._leaving = False

    def leave(self) -> None:
        """The broker begins to shut down."""
        self._leaving = self.problems.is_over = True

    def waits(self) -> Steps[tuple[str, ...]]:
        """Why the broker is not ready, one sentence each; empty when it is. Probes ask every few seconds, so nothing is
        looked at that does not decide it."""
        return self._waits(self._registration.broker_epoch)

    def status(self) -> Steps[Mapping[str, object]]:
        """What `/status` shows, ready for JSON."""
        broker_epoch = self._registration.broker_epoch
        waits = yield from self._waits(broker_epoch)
        partitions = yield from self._counts()
        problems = yield from self.problems.now()
        return {
            "broker_id": self._broker_id,
            "cluster_id": self._cluster_id,
            "versions": dict(self._versions),
            "ready": not waits,
            "waits": list(waits),
            "broker_epoch": broker_epoch,
            "time_ms": self._wall_clock.now_ms(),
            "controller_id": self._metadata.controller_id,
            "live_brokers": sorted(self._metadata.brokers),
            "listeners": {e.listener: f"{e.host}:{e.port}" for e in self._listeners.advertised()},
            "full_log_dirs": self._directories.full_paths,
            "partitions": partitions,
            "problems": problems,
        }

    def _counts(self) -> Steps[dict[str, int]]:
        hosted = led = under_replicated = offline = 0
        for partitions in hosted_in_steps(self._partitions):
            for partition in partitions:
                hosted += 1
                offline += partition.failed
                if partition.leadership is not None:
                    led += 1
                    under_replicated += partition.leadership.is_under_replicated
            yield
        for count in not_hosted(self._broker_id, self._metadata, self._partitions, self._logs):
            offline += count
            yield
        return {"hosted": hosted, "led": led, "under_replicated": under_replicated, "offline": offline}

    def _waits(self, broker_epoch: int) -> Steps[tuple[str, ...]]:
        if self._leaving:
            return ("shutting down",)
        if broker_epoch < 0:
            return ("not registered in ZooKeeper",)
        silent_s = self._coordination.seconds_since_contact()
        if silent_s * 1000 > self._coordination.session_timeout_ms:
            return (f"no contact with ZooKeeper for {int(silent_s)} s",)
        if self._metadata.controller_id == NO_BROKER or not self._metadata.is_alive(self._broker_id):
            return ("no controller has told this broker of the cluster yet",)
        unserved, behind = yield from self._unserved_and_behind()
        self._caught_up = self._caught_up or not behind
        waits = []
        if unserved:
            waits.append(f"does not serve what it is to lead: {_named(unserved)}")
        every_refused = set(map(str, self._refused))
        refused = [name for name in behind if name in every_refused]
        if refused and not self._caught_up:
            waits.append(f"did not load what is damaged, see the log of the start: {_named(refused)}")
        if not self._caught_up and len(behind) > len(refused):
            waits.append(f"has not caught up yet: {_named([name for name in behind if name not in refused])}")
        return tuple(waits)

    def _unserved_and_behind(self) -> Steps[tuple[list[str], list[str]]]:
        unserved: list[str] = []
        behind: list[str] = []
        for known in known_in_steps(self._metadata):
            for topic, index, state in known:
                if self._broker_id not in state.replicas or state.leader == NO_BROKER:
                    continue
                hosted = self._partitions.get((topic, index))
                if state.leader == self._broker_id and (hosted is None or hosted.leadership is None):
                    unserved.append(f"{topic}-{index}")
                if self._broker_id not in state.isr and not (hosted and (hosted.failed or hosted.is_being_added)):
                    behind.append(f"{topic}-{index}")
            yield
        return unserved, behind


def _named(partitions: Collection[str]) -> str:
    names = sorted(partitions)
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
