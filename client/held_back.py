"""Records for topics of which the producer knows nothing yet: they wait aside, so that those for other topics go on.

Per topic they keep their order. Each waits for `max_block_ms` from when it was taken out of the mailbox, and is refused
with what hindered it then; once the topic is known all that wait are handed on, and whatever comes meanwhile stands
behind them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import trio

from strandline.client.errors import ClientError
from strandline.client.send_futures import Where


class Mark:
    """Put into the mailbox by `flush`: what was sent before it was accepted, or refused, once it is reached."""

    where = None
    is_reached = False
    waits_for = 0
    """So many topics have letters aside that were sent before."""


class _Entry(NamedTuple):
    where: Where | None
    """Of a run of futures."""
    letters: list[Any]
    since: float


class HeldBack:
    """Of one producer; everything runs in the loop."""

    def __init__(
        self,
        wait_for: Callable[[str, float], Awaitable[object]],
        give: Callable[[Where | None, list[Any]], Awaitable[None]],
        refuse: Callable[[list[Any], Exception], None],
        on_reached: Callable[[], None],
    ) -> None:
        """`wait_for(topic, since)` until it is known, or ClientError. `give` takes some letters out of the list, and
        accepts them; `refuse` tells all of it. `on_reached`: a mark was."""
        self.kept_bytes = 0
        """What waits here takes so much of the memory; who hands letters over counts it."""
        self._wait_for = wait_for
        self._give = give
        self._refuse = refuse
        self._on_reached = on_reached
        self._entries: dict[str, deque[_Entry | Mark]] = {}

    @property
    def is_empty(self) -> bool:
        """Nothing waits, not even records without any bytes."""
        return not self._entries

    def has(self, topic: str) -> bool:
        """What comes for it has to stand behind others."""
        return topic in self._entries

    def add(self, topic: str, where: Where | None, letters: list[Any], size_bytes: int, nursery: trio.Nursery) -> None:
        """Hold these back; a task of the nursery looks after them."""
        self.kept_bytes += size_bytes
        entry = _Entry(where, letters, trio.current_time())
        if (entries := self._entries.get(topic)) is not None:
            entries.append(entry)
            return
        self._entries[topic] = deque([entry])
        nursery.start_soon(self._look_after, topic)

    def pass_mark(self, mark: Mark) -> None:
        """What was sent before it is accepted, but for what waits here."""
        mark.waits_for = len(self._entries)
        for entries in self._entries.values():
            entries.append(mark)
        self._reach(mark)

    def take_all(self) -> list[Any]:
        """The producer ends: the letters that are left."""
        entries = [entry for each in self._entries.values() for entry in each]
        self._entries.clear()
        return [letter for entry in entries if isinstance(entry, _Entry) for letter in entry.letters]

    async def _look_after(self, topic: str) -> None:
        entries = self._entries[topic]
        while entries:
            entry = entries[0]
            if isinstance(entry, Mark):
                entry.waits_for -= 1
                self._reach(entry)
            else:
                try:
                    await self._wait_for(topic, entry.since)
                except ClientError as error:
                    self._refuse(entry.letters, error)
                    entry.letters.clear()
                while entry.letters:
                    await self._give(entry.where, entry.letters)
            entries.popleft()
        del self._entries[topic]

    def _reach(self, mark: Mark) -> None:
        if not mark.waits_for:
            mark.is_reached = True
            self._on_reached()
