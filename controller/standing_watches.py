"""A controller's watches in ZooKeeper: one of each znode, whatever the term.

A client of ZooKeeper keeps a watch until its znode changes, which some never do. Who is elected again and again within
one session would add those of each term, and each would keep all that its term knew in memory. So the client gets the
same watch in every term, and what that hears goes to who watches the znode in the present one.
"""

from __future__ import annotations

from weakref import WeakSet

from strandline.runtime.coordination import Watch, WatchEvent


class StandingWatches:
    """Of one broker's controller."""

    def __init__(self) -> None:
        self._of_data: dict[str, _StandingWatch] = {}
        self._of_children: dict[str, _StandingWatch] = {}
        self._all = WeakSet[_StandingWatch]()
        """Also those that the client has once more, since they were asked for again when they fired."""

    def of_data(self, path: str, watch: Watch) -> Watch:
        """For the client in place of `watch`, which is on the data of a znode."""
        return self._standing(self._of_data, path, watch)

    def of_children(self, path: str, watch: Watch) -> Watch:
        """For the client in place of `watch`, which is on the names below a znode."""
        return self._standing(self._of_children, path, watch)

    def end_term(self) -> None:
        """Nobody is told any more who watches by now."""
        for standing in self._all:
            standing.watches.clear()

    def _standing(self, known: dict[str, _StandingWatch], path: str, watch: Watch) -> _StandingWatch:
        found = known.get(path)
        if found is None:
            found = known[path] = _StandingWatch(known, path)
            self._all.add(found)
        found.watches[watch] = None
        return found


class _StandingWatch:
    """Equal to itself only, so the client has it once. watches: those that are passed what it hears."""

    def __init__(self, known: dict[str, _StandingWatch], path: str) -> None:
        self.watches: dict[Watch, None] = {}
        self._known = known
        self._path = path

    def __call__(self, event: WatchEvent) -> None:
        """Once: then the client has forgotten it."""
        if self._known.get(self._path) is self:
            del self._known[self._path]
        for watch in list(self.watches):
            watch(event)
