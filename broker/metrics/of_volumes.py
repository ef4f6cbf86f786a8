"""How much room the volumes of the log directories have.

Asking a volume may take as long as a disk that does not answer, so no scrape does: it tells what was found after the
last one, and has a task ask anew, in the thread of each disk. What is older than `GOOD_FOR_S` is left out: it would
look like a disk that does not fill any more.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import trio
from prometheus_client.core import Metric

from strandline.broker.metrics.families import gauges
from strandline.runtime.disk import Disk, DiskSpace
from strandline.runtime.environment import Blocking
from strandline.storage.manager.log_manager import LogManager

PATIENCE_S = 2.0
GOOD_FOR_S = 180.0
"""So who scrapes each minute gets a figure, too."""


class OfVolumes:
    """A source; `run` asks."""

    def __init__(self, logs: LogManager, disk: Disk, blocking: Blocking) -> None:
        self._logs = logs
        self._disk = disk
        self._blocking = blocking
        self._found: dict[str, tuple[DiskSpace, float]] = {}
        """Directory → its room, and when it was so."""
        self._scraped = trio.lowlevel.ParkingLot()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await self._scraped.park()
            async with trio.open_nursery() as nursery:
                for directory in self._logs.directories.online():
                    nursery.start_soon(self._ask, directory.path)

    async def _ask(self, path: str) -> None:
        with trio.move_on_after(PATIENCE_S):
            try:
                space = await self._blocking.run_in(path, self._disk.space, path, abandon=True)
            except OSError:
                return  # whoever writes there finds out
            self._found[path] = space, trio.current_time()

    def known(self) -> dict[str, DiskSpace]:
        """Directory → its room, where that was asked of late; has it asked anew."""
        self._scraped.unpark_all()
        now_s = trio.current_time()
        return {
            directory.path: found[0]
            for directory in self._logs.directories.online()
            if now_s - (found := self._found.get(directory.path, (DiskSpace(0, 0), -math.inf)))[1] < GOOD_FOR_S
        }

    def __call__(self) -> Iterator[Metric]:
        known = self.known()
        name, text = "strandline_log_directory_free_bytes", "Bytes that the volume of this log directory has left"
        yield from _each(name, text, {path: space.free_bytes for path, space in known.items()})
        name, text = "strandline_log_directory_size_bytes", "Bytes of the volume of this log directory"
        yield from _each(name, text, {path: space.total_bytes for path, space in known.items()})


def _each(name: str, text: str, figures: dict[str, int]) -> Iterator[Metric]:
    rows = [((path,), float(figure)) for path, figure in sorted(figures.items())]
    return gauges(name, text, ("logDirectory",), rows)
