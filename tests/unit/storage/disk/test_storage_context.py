"""The bounds on descriptors and loaded indexes."""

from __future__ import annotations

from strandline.storage.disk.storage_context import PooledFile, SecondChanceCache, StorageContext
from strandline.testkit.disk import MemoryDisk
from support.storage_site import FixedClock


class Holder:
    def __init__(self) -> None:
        self.used = False
        self.evicted = 0

    def evict(self) -> None:
        self.evicted += 1


def test_the_total_weight_is_bounded() -> None:
    cache = SecondChanceCache(100)
    holders = [Holder() for _ in range(10)]
    for holder in holders:
        cache.admit(holder, 30)
    assert cache.weight == 90 and [holder.evicted for holder in holders] == [1] * 7 + [0] * 3


def test_what_was_used_is_spared_once() -> None:
    cache = SecondChanceCache(2)
    first, second, third, fourth = (Holder() for _ in range(4))
    cache.admit(first, 1)
    cache.admit(second, 1)
    first.used = True
    cache.admit(third, 1)
    assert (first.evicted, second.evicted) == (0, 1)
    cache.admit(fourth, 1)
    assert (first.evicted, third.evicted) == (1, 0) or third.evicted == 1


def test_one_that_is_too_heavy_is_admitted_alone() -> None:
    cache = SecondChanceCache(10)
    small, large = Holder(), Holder()
    cache.admit(small, 5)
    cache.admit(large, 50)
    assert (small.evicted, large.evicted, cache.weight) == (1, 0, 50)
    cache.admit(small, 5)
    assert large.evicted == 1 and cache.weight == 5


def test_admitting_again_changes_the_weight_and_removing_ends_it() -> None:
    cache = SecondChanceCache(10)
    holder = Holder()
    cache.admit(holder, 5)
    cache.admit(holder, 7)
    assert cache.weight == 7
    cache.remove(holder)
    cache.remove(holder)
    assert cache.weight == 0 and holder.evicted == 0


def test_a_file_that_somebody_still_reads_is_opened_as_the_same_object() -> None:
    disk = MemoryDisk()
    context = StorageContext(disk, FixedClock(), open_files=SecondChanceCache(1))
    first, second = PooledFile(context, "/a"), PooledFile(context, "/b")
    held = first.create()
    second.create()  # evicts the first
    assert first.get() is held and first.live() is held
    del held
    second.get()
    first.evict()
    assert first.live() is None and disk.open_files() == ["/b"]
