"""A burst is what happens to partitions in one go, and the one step that ends it.

    some changes (requests of one receive, a role change, a checkpoint that was written)
      ──end──> 1 what was produced is written   2 fetches that waited for it are looked at   3 answers leave

It begins by itself. Whoever changes a partition notes here what its parked fetches should look at, and ends the burst
before it lets others run: the request channel does for inline handlers.
"""

from __future__ import annotations

from collections.abc import Callable

import trio

from strandline.broker.replication.partition import Partition
from strandline.broker.replication.purgatory import ParkedFetch
from strandline.runtime.environment import WallClock


class Changes:
    """Partitions whose parked fetches are to be looked at: a follower's when the log grew, a consumer's when more of it
    was committed, each once per burst."""

    def __init__(self, *, tell_followers: bool = False) -> None:
        """tell_followers: consumers read from followers too, which are to hear at once of what was committed, with
        records or without; else they hear of it with the next records, or when they have waited long enough."""
        self._tell_followers = tell_followers
        self._grown: dict[Partition, None] = {}
        self._committed: dict[Partition, None] = {}
        self._told: dict[ParkedFetch, None] = {}
        """Fetches whose watches were told before the end of the burst."""

    def grew(self, partition: Partition) -> None:
        """Records were appended."""
        if partition.parked_fetches:
            self._grown[partition] = None

    def committed(self, partition: Partition) -> None:
        """The high watermark rose."""
        if partition.parked_fetches or partition.watches or self._tell_followers:
            self._committed[partition] = None

    def wake(self, partition: Partition) -> None:
        """Something else changed that an answer depends on, such as the role."""
        self.grew(partition)
        self.committed(partition)

    def tell_watches(self) -> None:
        """Who watches learns before the end of the burst what was committed; who waits for it is looked at then."""
        for partition in self._committed:
            if partition.watches:
                self._told.update(dict.fromkeys(partition.tell_watches()))

    def serve(self) -> None:
        """Answer who has what it waited for."""
        if not self._grown and not self._committed:
            return
        grown, self._grown = self._grown, {}
        committed, self._committed = self._committed, {}
        served, self._told = self._told, {}
        for partition in grown:
            served.update((fetch, None) for fetch, follower in partition.parked_fetches.items() if follower)
        for partition in committed:
            served.update((fetch, None) for fetch, follower in partition.parked_fetches.items() if not follower)
            if partition.watches:
                served.update(dict.fromkeys(partition.tell_watches()))
        for fetch in served:
            fetch.look()
        for partition in committed if self._tell_followers else ():
            for fetch, follower in list(partition.parked_fetches.items()):
                if follower:
                    fetch.answer()


class Burst:
    """The clock of the burst that is under way, and its end."""

    def __init__(
        self,
        wall_clock: WallClock,
        changes: Changes,
        write_appends: Callable[[], None],
        send_answers: Callable[[], None],
    ) -> None:
        self._wall_clock = wall_clock
        self.changes = changes
        self.write_appends = write_appends
        """Done before the end where something of the same burst is to see it."""
        self._send_answers = send_answers
        self._now: float | None = None
        self._wall_ms: int | None = None

    def now(self) -> float:
        """Monotonic seconds, read once per burst: reading the clock costs as much as checking a small batch."""
        if self._now is None:
            self._now = trio.current_time()
        return self._now

    def wall_ms(self) -> int:
        """Milliseconds since 1970 by this machine, read once per burst: for stamping records and bounding their
        timestamps."""
        if self._wall_ms is None:
            self._wall_ms = self._wall_clock.now_ms()
        return self._wall_ms

    def end(self) -> None:
        """The three steps, in this order. Does nothing where nothing changed."""
        # 1
        self.write_appends()
        self._now = self._wall_ms = None
        # 2
        self.changes.serve()
        # 3
        self._send_answers()
