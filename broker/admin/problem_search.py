"""Which problems a broker has, by what its parts know already: over its partitions in steps, and no wait.

Between two steps (a None among the problems) partitions come, go and change. Each is judged as it is when its turn
comes, and one that was found without a leader is not said to lack replicas as well, though it may be led by then.

Each broker tells of what it leads and of its own disks; of what has no leader tells the broker that is the controller,
so nothing is told once per broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from strandline.broker.admin import remedies
from strandline.broker.admin.problems import (
    LEADERLESS,
    UNDER_MIN_ISR,
    UNDER_REPLICATED,
    Level,
    Problem,
    gone,
    named,
    partitions_are,
)
from strandline.broker.admin.walks import hosted_in_steps, known_in_steps
from strandline.broker.metadata_cache import MetadataCache
from strandline.broker.replication.partition import Partition
from strandline.protocol.types import NO_BROKER
from strandline.runtime.coordination import Coordination, SessionState
from strandline.runtime.disk import DiskSpace
from strandline.storage.errors import LogStorageError
from strandline.storage.manager.log_manager import LogManager

MOST_LINES = 10
"""So many of a kind (logs that do not serve, say) have a line each; the others share one."""
ROOM_AGAIN_PART = 0.12
"""Of a volume that was nearly full: only from so much on it is not any more, so that retention, which swings around the
limit, does not make it one problem after the other."""


class ProblemSearch:
    """`__call__` yields what is wrong now, and None after each step."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        partitions: Mapping[tuple[str, int], Partition],
        logs: LogManager,
        coordination: Coordination,
        volumes: Callable[[], Mapping[str, DiskSpace]],
        left_alone: Callable[[], Collection[Partition]],
        failing_sources: Callable[[], Mapping[str, str]],
    ) -> None:
        """volumes: how much room each log directory has, where that is known. left_alone: what the cleaner does not
        touch any more. failing_sources: of metrics, and why."""
        self._broker_id = broker_id
        self._metadata = metadata
        self._partitions = partitions
        self._logs = logs
        self._coordination = coordination
        self._volumes = volumes
        self._left_alone = left_alone
        self._failing_sources = failing_sources
        self._nearly_full: set[str] = set()
        """Log directories whose volume was, when it was looked at last."""

    def __call__(self) -> Iterator[Problem | None]:
        leaderless: set[str] = set()
        yield from self._of_cluster(leaderless)
        yield from self._of_directories()
        yield from self._of_logs()
        yield from self._of_led(leaderless)
        yield from self._of_cleaner()
        for source, why in self._failing_sources().items():
            what, where = f"left out of /metrics: {why}", f"metrics of {source}"
            yield Problem(Level.WARNING, "metrics", what, where, f"{remedies.REPORT}; all else is told", source)

    def _of_cluster(self, leaderless: set[str]) -> Iterator[Problem | None]:
        if self._coordination.state != SessionState.CONNECTED:
            what = "the session with ZooKeeper is not connected: nothing can be elected or changed"
            remedy = "start ZooKeeper, or mend the way to it (zookeeper.connect)"
            yield Problem(Level.ERROR, "zookeeper", what, "ZooKeeper", remedy)
        metadata = self._metadata
        if metadata.controller_id == NO_BROKER or not metadata.is_alive(self._broker_id):
            what = "no controller has told this broker of the cluster"
            yield Problem(Level.ERROR, "controller", what, "controller", remedies.FIND_CONTROLLER)
        if metadata.controller_id != self._broker_id:
            return
        yield from self._of_leaderless(leaderless)
        for each in metadata.unfinished_deletions[:MOST_LINES]:
            what, remedy = f"its deletion is held up: {each.why}", "it goes as soon as that is mended"
            yield Problem(Level.WARNING, "deletion", what, f"topic {each.topic_name}", remedy, each.topic_name)

    def _of_leaderless(self, leaderless: set[str]) -> Iterator[Problem | None]:
        """A line for each set of brokers that were in sync: any of them would lead. leaderless: gets their names."""
        found: dict[tuple[int, ...], list[str]] = {}
        for topics in known_in_steps(self._metadata):
            for topic, index, state in topics:
                if state.leader == NO_BROKER:
                    found.setdefault(tuple(sorted(state.isr)), []).append(f"{topic}-{index}")
            yield None
        leaderless.update(*found.values())
        wait_for = sorted(found)
        for isr in wait_for[:MOST_LINES]:
            names, ids = found[isr], ", ".join(map(str, isr))
            last = f"last in sync: broker {ids}" if isr else "nobody was in sync"
            what = f"{partitions_are(len(names))} without a leader; {last}"
            yield Problem(Level.ERROR, LEADERLESS, what, named(names), remedies.RECOVER, ids or "nobody")
        if more := [name for isr in wait_for[MOST_LINES:] for name in found[isr]]:
            what = f"{partitions_are(len(more))} without a leader, too"
            yield Problem(Level.ERROR, LEADERLESS, what, named(more), remedies.RECOVER)

    def _of_directories(self) -> Iterator[Problem]:
        volumes = self._volumes()
        for directory in self._logs.directories:
            path, health = directory.path, directory.health
            if health.failure is not None:
                yield _of_error("directory", path, health.failure)
            elif health.full is not None:
                what, remedy = f"its disk is full: {health.full}", "free space, and it goes on by itself"
                yield Problem(Level.ERROR, "full", what, path, remedy, path)
            elif (space := volumes.get(path)) is not None and self._is_nearly_full(path, space):
                percent = 100 * space.free_bytes / space.total_bytes
                what = f"its volume has {percent:.0f} % left ({space.free_bytes / 1e9:.1f} GB)"
                yield Problem(Level.WARNING, "nearly full", what, path, remedies.MAKE_ROOM, path)

    def _is_nearly_full(self, path: str, space: DiskSpace) -> bool:
        limit = ROOM_AGAIN_PART if path in self._nearly_full else remedies.NEARLY_FULL_PART
        if space.free_bytes < limit * space.total_bytes:
            self._nearly_full.add(path)
        else:
            self._nearly_full.discard(path)
        return path in self._nearly_full

    def _of_logs(self) -> Iterator[Problem | None]:
        """But for those whose directory is out of service: that has a line."""
        offline = set(self._logs.directories.offline_paths)
        errors = {str(tp): error for tp, error in self._logs.refused.items()}
        for partitions in hosted_in_steps(self._partitions):
            for partition in partitions:
                if partition.failed and partition.log_dir not in offline:
                    name, why = str(partition.topic_partition), partition.log.failure
                    errors[name] = why or LogStorageError(name, f"{name} failed; see the broker's log")
            yield None
        names = sorted(errors)
        for name in names[:MOST_LINES]:
            yield _of_error("log", name, errors[name])
        if more := names[MOST_LINES:]:
            what, remedy = (
                f"{partitions_are(len(more))} not served by this broker either",
                "see the broker's log for each",
            )
            yield Problem(Level.ERROR, "more logs", what, named(more), remedy)

    def _of_cleaner(self) -> Iterator[Problem]:
        names = sorted(str(each.topic_partition) for each in self._left_alone())
        for name in names[:MOST_LINES]:
            what = "is not compacted any more from some offset on"
            yield Problem(Level.WARNING, "cleaner", what, name, remedies.COMPACT, name)
        if more := names[MOST_LINES:]:
            what = f"{partitions_are(len(more))} not compacted any more either"
            yield Problem(Level.WARNING, "cleaner", what, named(more), remedies.COMPACT)

    def _of_led(self, leaderless: Collection[str]) -> Iterator[Problem | None]:
        """A line for each broker that is missing, since that is what somebody starts or looks at: one that goes later
        has a line of its own. A partition that refuses writes is in no line of those that merely lack a replica."""
        refusing: dict[int, list[str]] = {}
        lacking: dict[int, list[str]] = {}
        for partitions in hosted_in_steps(self._partitions):
            for partition in partitions:
                leads, name = partition.leadership, str(partition.topic_partition)
                if leads is None or not leads.is_under_replicated or name in leaderless:
                    continue
                of_broker = lacking if leads.has_enough_replicas else refusing
                for broker_id in leads.replicas:
                    if broker_id not in leads.isr and broker_id not in partition.adding_replicas:
                        of_broker.setdefault(broker_id, []).append(name)
            yield None
        for broker_id, names in sorted(refusing.items()):
            what = f"{partitions_are(len(names))} under min.insync.replicas, {remedies.REFUSED}"
            yield self._of_missing(Level.ERROR, UNDER_MIN_ISR, what, names, broker_id)
        for broker_id, names in sorted(lacking.items()):
            yield self._of_missing(
                Level.WARNING, UNDER_REPLICATED, f"{partitions_are(len(names))} under-replicated", names, broker_id
            )

    def _of_missing(self, level: Level, kind: str, what: str, names: Collection[str], broker_id: int) -> Problem:
        """That a broker is gone is another problem than that it lags, which may have begun long before."""
        if self._metadata.is_alive(broker_id):
            remedy = remedies.SLOW
            why, subject = "runs and is not in sync", f"broker {broker_id} lags"
        else:
            remedy = f"{remedies.START} {broker_id}"
            why, subject = "does not run", gone(broker_id)
        return Problem(level, kind, f"{what}: broker {broker_id} {why}", named(names), remedy, subject, tuple(names))


def _of_error(kind: str, where: str, error: LogStorageError) -> Problem:
    """Its text begins with where it is, and tells the remedy behind the first semicolon."""
    what, _, remedy = str(error).removeprefix(f"{where} ").partition("; ")
    return Problem(Level.ERROR, kind, what, where, remedy or "see the broker's log", where)
