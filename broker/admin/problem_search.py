"""Which problems a broker has, by what its parts know already: one pass over its partitions, and no wait.

Each broker tells of what it leads and of its own disks; of what has no leader tells the broker that is the controller,
so nothing is told once per broker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from strandline.broker.admin.problems import Level, Problem
from strandline.broker.metadata_cache import MetadataCache
from strandline.broker.replication.leadership import Leadership
from strandline.broker.replication.partition import Partition
from strandline.protocol.types import NO_BROKER
from strandline.runtime.coordination import Coordination, SessionState
from strandline.runtime.disk import DiskSpace
from strandline.storage.errors import LogStorageError
from strandline.storage.manager.log_manager import LogManager

MOST_NAMED = 3
"""So many partitions are named in a line; the others are counted."""
MOST_LINES = 10
"""So many logs that do not serve have a line each; the others share one."""
FULL_PART = 0.1
"""Of a volume: so little left is a problem."""


class ProblemSearch:
    """`__call__` yields what is wrong now."""

    def __init__(
        self,
        broker_id: int,
        metadata: MetadataCache,
        partitions: Mapping[tuple[str, int], Partition],
        logs: LogManager,
        coordination: Coordination,
        volumes: Callable[[], Mapping[str, DiskSpace]],
        left_alone: Callable[[], Collection[Partition]],
        failing_sources: Mapping[str, str],
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

    def __call__(self) -> Iterator[Problem]:
        yield from self._of_cluster()
        yield from self._of_directories()
        yield from self._of_logs()
        yield from self._of_led()
        if (left_alone := self._left_alone()) and (names := [str(each.topic_partition) for each in left_alone]):
            what = f"{_counted(names)} not compacted any more from some offset on"
            remedy = "raise max.decompressed.message.bytes or replace this replica, then restart the broker"
            yield Problem(Level.WARNING, "cleaner", what, named(names), remedy)
        for source, why in self._failing_sources.items():
            what, remedy = f"left out of /metrics: {why}", "report it with the traceback of a scrape; all else is told"
            yield Problem(Level.WARNING, "metrics", what, f"metrics of {source}", remedy, source)

    def _of_cluster(self) -> Iterator[Problem]:
        if self._coordination.state != SessionState.CONNECTED:
            what = "the session with ZooKeeper is not connected: nothing can be elected or changed"
            remedy = "start ZooKeeper, or mend the way to it (zookeeper.connect)"
            yield Problem(Level.ERROR, "zookeeper", what, "ZooKeeper", remedy)
        metadata = self._metadata
        if metadata.controller_id == NO_BROKER or not metadata.is_alive(self._broker_id):
            what, remedy = "no controller has told this broker of the cluster", "see controller.log of all brokers"
            yield Problem(Level.ERROR, "controller", what, "controller", remedy)
        if metadata.controller_id != self._broker_id:
            return
        leaderless = [
            f"{topic}-{index}"
            for topic, known in metadata.topics.items()
            for index, state in known.partitions.items()
            if state.leader == NO_BROKER
        ]
        if leaderless:
            remedy = "start the brokers that hold them; else strandline recover TOPIC"
            yield Problem(
                Level.ERROR, "leaderless", f"{_counted(leaderless)} without a leader", named(leaderless), remedy
            )
        for each in metadata.unfinished_deletions[:MOST_LINES]:
            what, remedy = f"its deletion is held up: {each.why}", "it goes as soon as that is mended"
            yield Problem(Level.WARNING, "deletion", what, f"topic {each.topic_name}", remedy, each.topic_name)

    def _of_directories(self) -> Iterator[Problem]:
        for directory in self._logs.directories:
            path, health = directory.path, directory.health
            if health.failure is not None:
                yield _of_error("directory", path, health.failure)
            elif health.full is not None:
                what, remedy = f"its disk is full: {health.full}", "free space, and it goes on by itself"
                yield Problem(Level.ERROR, "full", what, path, remedy, path)
            elif (space := self._volumes().get(path)) is not None and space.free_bytes < FULL_PART * space.total_bytes:
                percent = 100 * space.free_bytes / space.total_bytes
                what = f"its volume has {percent:.0f} % left ({space.free_bytes / 1e9:.1f} GB)"
                remedy = "shorten retention (configs alter), delete records, or add a disk or a broker"
                yield Problem(Level.WARNING, "nearly full", what, path, remedy, path)

    def _of_logs(self) -> Iterator[Problem]:
        """But for those whose directory is out of service: that has a line."""
        offline = set(self._logs.directories.offline_paths)
        errors = {str(tp): error for tp, error in self._logs.refused.items()}
        for partition in self._partitions.values():
            if partition.failed and partition.log_dir not in offline:
                name = str(partition.topic_partition)
                why = partition.log.failure
                errors[name] = why if why is not None else LogStorageError(name, f"{name} failed; see the broker's log")
        names = sorted(errors)
        for name in names[:MOST_LINES]:
            yield _of_error("log", name, errors[name])
        if more := names[MOST_LINES:]:
            what, remedy = f"{_counted(more)} not served by this broker either", "see the broker's log for each"
            yield Problem(Level.ERROR, "more logs", what, named(more), remedy)

    def _of_led(self) -> Iterator[Problem]:
        led = [(each, each.leadership) for each in self._partitions.values() if each.leadership is not None]
        under = [(str(each.topic_partition), leads) for each, leads in led if not leads.has_enough_replicas]
        lacking = [(str(each.topic_partition), leads) for each, leads in led if leads.is_under_replicated]
        if under:
            names = [name for name, _ in under]
            what = f"{_counted(names)} under min.insync.replicas, writes with acks=all wait; {_missing(under)}"
            remedy = "start the missing brokers, or see what slows them down"
            yield Problem(Level.ERROR, "under min ISR", what, named(names), remedy)
        if lacking:
            names = [name for name, _ in lacking]
            what = f"{_counted(names)} under-replicated; {_missing(lacking)}"
            remedy = "start the missing brokers, or see what slows them down"
            yield Problem(Level.WARNING, "under-replicated", what, named(names), remedy)


def named(names: Collection[str]) -> str:
    """The first few, and how many more."""
    first = sorted(names)[:MOST_NAMED]
    more = len(names) - len(first)
    return ", ".join(first) + (f" and {more} more" if more else "")


def _counted(names: Collection[str]) -> str:
    return "1 partition is" if len(names) == 1 else f"{len(names)} partitions are"


def _missing(led: Collection[tuple[str, Leadership]]) -> str:
    ids = sorted({broker for _, leads in led for broker in leads.replicas if broker not in leads.isr})
    return f"not in sync: broker {', '.join(map(str, ids))}"


def _of_error(kind: str, where: str, error: LogStorageError) -> Problem:
    """Its text begins with where it is, and tells the remedy behind the first semicolon."""
    what, _, remedy = str(error).removeprefix(f"{where} ").partition("; ")
    return Problem(Level.ERROR, kind, what, where, remedy or "see the broker's log", where)
