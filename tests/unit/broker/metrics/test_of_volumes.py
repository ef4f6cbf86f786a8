"""How full the volumes are: told by each scrape, asked by none."""

from __future__ import annotations

import trio
import trio.testing

from strandline.broker.metrics.of_volumes import GOOD_FOR_S, OfVolumes
from strandline.runtime.disk import DiskSpace
from strandline.testkit.environment import InlineBlocking
from support.replica_site import ReplicaSite


class Volumes:
    """`Disk.space` of volumes that differ."""

    def __init__(self) -> None:
        self.free_bytes = {"/logs": 10, "/more": 20}
        self.asked = 0

    def space(self, path: str) -> DiskSpace:
        self.asked += 1
        if path not in self.free_bytes:
            raise OSError("input/output error")
        return DiskSpace(100, self.free_bytes[path])


def figures(source: OfVolumes) -> dict[tuple[str, str], float]:
    return {
        (sample.name.removeprefix("strandline_log_directory_"), sample.labels["logDirectory"]): sample.value
        for family in source()
        for sample in family.samples
    }


ALL = {
    ("free_bytes", "/logs"): 10,
    ("free_bytes", "/more"): 20,
    ("size_bytes", "/logs"): 100,
    ("size_bytes", "/more"): 100,
}


async def test_a_scrape_tells_what_was_found_after_the_last_one(
    two_disks: ReplicaSite, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    volumes = Volumes()
    source = OfVolumes(two_disks.logs, volumes, InlineBlocking())
    nursery.start_soon(source.run)
    await trio.testing.wait_all_tasks_blocked()
    assert volumes.asked == 0, "nobody scrapes"
    assert figures(source) == {}
    await trio.testing.wait_all_tasks_blocked()
    assert figures(source) == ALL
    volumes.free_bytes["/logs"] = 5
    await trio.testing.wait_all_tasks_blocked()
    assert figures(source) == ALL | {("free_bytes", "/logs"): 5}
    await trio.sleep(GOOD_FOR_S)
    assert figures(source) == {}, "old figures look like a disk that fills no more"


async def test_a_volume_that_fails_or_hangs_is_left_out(
    two_disks: ReplicaSite, nursery: trio.Nursery, autojump_clock: trio.testing.MockClock
) -> None:
    volumes, blocking = Volumes(), InlineBlocking()
    source = OfVolumes(two_disks.logs, volumes, blocking)
    nursery.start_soon(source.run)
    await trio.testing.wait_all_tasks_blocked()
    del volumes.free_bytes["/logs"]
    blocking.stuck_lanes.add("/more")
    for _ in range(2):
        figures(source)
        await trio.sleep(10)
    assert figures(source) == {}
    blocking.stuck_lanes.clear()
    await trio.sleep(10)
    assert figures(source) == {key: value for key, value in ALL.items() if key[1] == "/more"}
