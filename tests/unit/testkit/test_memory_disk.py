"""What the disk in memory counts and keeps, beside what every disk does (`unit/runtime/test_disk_contract.py`)."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from strandline.testkit.disk import MemoryDisk


@given(st.randoms(use_true_random=False))
def test_free_space_is_what_all_files_with_a_name_leave(draw: random.Random) -> None:
    disk = MemoryDisk(capacity_bytes=10**6)
    places = [f"/{folder}/{name}" for folder in "ab" for name in "xyz"]

    def change() -> None:
        path = draw.choice(places)
        match draw.randrange(8):
            case 0 | 1:
                disk.open(path, create=True).pwritev([bytes(draw.randrange(100))], draw.randrange(50))
            case 2:
                disk.open(path, create=True).reserve(draw.randrange(300))
            case 3:
                disk.open(path, create=True).truncate(draw.randrange(100))
            case 4 if disk.exists(path):
                disk.rename(path, path[:3] + draw.choice("xyz"))
            case 5 if disk.exists(path):
                disk.unlink(path)
            case 6:
                disk.open(path, create=True).fsync()
            case 7:
                disk.fsync_dir(path[:2])

    for _ in range(3):
        for folder in ("/a", "/b"):
            disk.makedirs(folder)
        for _ in range(30):
            change()
            taken = sum(len(content) + disk.reserved(path) for path, content in files(disk).items())
            assert disk.free_bytes == disk.capacity_bytes - taken
        disk.crash(draw.randrange)
        taken = sum(len(content) + disk.reserved(path) for path, content in files(disk).items())
        assert disk.free_bytes == disk.capacity_bytes - taken


def files(disk: MemoryDisk) -> dict[str, bytes]:
    return {path: content for path, content in disk.content().items() if content is not None}


def test_what_a_sync_makes_durable_is_what_was_written_whatever_came_before() -> None:
    disk, draw = MemoryDisk(), random.Random(4)
    disk.makedirs("/a")
    disk.fsync_dir("/")
    file = disk.open("/a/x", create=True)
    disk.fsync_dir("/a")
    for _ in range(200):
        if draw.random() < 0.2:
            file.truncate(draw.randrange(60))
        else:
            file.pwritev([draw.randbytes(draw.randrange(20))], draw.randrange(60))
        if draw.random() < 0.3:
            file.fsync()
            durable = disk.read("/a/x")
    disk.crash()
    assert disk.read("/a/x") == durable
