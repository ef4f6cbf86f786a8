"""A start that has something to repair, ended at every disk operation, or without room for it on the disk: the next one
comes to the same result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import pytest

from strandline.protocol.records.batch import scan
from strandline.protocol.types import TopicPartition
from strandline.storage.disk.removal import delete_folder_name
from strandline.storage.errors import StorageError
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.disk.model import NoRoom
from support.log_audit import states_of
from support.storage_site import FOLDER, TOPIC_ID, TP, Reports, StorageSite, file_names, fill

Damage = Callable[[MemoryDisk, list[str]], None]
"""Told the paths of the log's segments, oldest first, without suffix."""


def torn_tail(disk: MemoryDisk, paths: list[str]) -> None:
    disk.write(f"{paths[-1]}.log", disk.read(f"{paths[-1]}.log") + b"\xa7garbage" * 9)


def zeros_behind(disk: MemoryDisk, paths: list[str]) -> None:
    disk.write(f"{paths[-1]}.log", disk.read(f"{paths[-1]}.log") + bytes(4096))


def fault_in_a_sealed_segment(disk: MemoryDisk, paths: list[str]) -> None:
    data = bytearray(disk.read(f"{paths[-2]}.log"))
    data[-1] ^= 1
    disk.write(f"{paths[-2]}.log", bytes(data))


def indexes_missing(disk: MemoryDisk, paths: list[str]) -> None:
    for path in paths[:3]:
        disk.unlink(f"{path}.index")
    disk.unlink(f"{paths[1]}.timeindex")


def indexes_damaged(disk: MemoryDisk, paths: list[str]) -> None:
    disk.write(f"{paths[0]}.index", disk.read(f"{paths[0]}.index")[:-3])
    disk.write(f"{paths[1]}.timeindex", disk.read(f"{paths[1]}.timeindex") + b"\xff" * 5)
    disk.write(f"{paths[-1]}.index", b"\xff" * 16)


def epochs_missing(disk: MemoryDisk, paths: list[str]) -> None:
    disk.unlink(f"{FOLDER}/leader-epoch-checkpoint")


def epochs_wrong(disk: MemoryDisk, paths: list[str]) -> None:
    disk.write(f"{FOLDER}/leader-epoch-checkpoint", b"0\n2\n0 3\n9 11\n")


def leftovers(disk: MemoryDisk, paths: list[str]) -> None:
    disk.write(f"{paths[0]}.log.deleted", b"old")
    disk.write(f"{FOLDER}/leader-epoch-checkpoint.7.tmp", b"half")
    disk.write(f"{FOLDER}/{900:020d}.index", bytes(8))
    disk.write("/logs/recovery-point-offset-checkpoint.9.tmp", b"0\n")


def folder_to_be_removed(disk: MemoryDisk, paths: list[str]) -> None:
    folder = f"/logs/{delete_folder_name(TopicPartition('gone', 1), 'ab' * 16)}"
    disk.makedirs(folder)
    disk.write(f"{folder}/{0:020d}.log", b"x" * 100)


def checkpoints_missing(disk: MemoryDisk, paths: list[str]) -> None:
    for name in disk.listdir("/logs"):
        if name.endswith("-checkpoint"):
            disk.unlink(f"/logs/{name}")


def finished_swap(disk: MemoryDisk, paths: list[str]) -> None:
    """Two segments were copied into one, which is complete."""
    disk.write(f"{paths[0]}.log.swap", disk.read(f"{paths[0]}.log") + disk.read(f"{paths[1]}.log"))
    disk.write(f"{paths[0]}.index.swap", b"")
    disk.write(f"{paths[0]}.timeindex.swap", b"")


def unfinished_swap(disk: MemoryDisk, paths: list[str]) -> None:
    disk.write(f"{paths[0]}.log.cleaned", disk.read(f"{paths[0]}.log")[:200])
    disk.write(f"{paths[1]}.log.swap", disk.read(f"{paths[1]}.log"))


def unfinished_split(disk: MemoryDisk, paths: list[str]) -> None:
    """A segment was to become two, of which the second is complete."""
    data = disk.read(f"{paths[0]}.log")
    position, header = list(scan(memoryview(data)))[2]
    disk.write(f"{paths[0]}.log.cleaned", data[:position])
    disk.write(f"{FOLDER}/{header.base_offset:020d}.log.swap", data[position:])


DAMAGES = [
    torn_tail,
    zeros_behind,
    fault_in_a_sealed_segment,
    indexes_missing,
    indexes_damaged,
    epochs_missing,
    epochs_wrong,
    leftovers,
    folder_to_be_removed,
    checkpoints_missing,
    finished_swap,
    unfinished_swap,
    unfinished_split,
]


def prepare(site: StorageSite, manager: LogManager, damage: Damage, *, in_order: bool = False) -> None:
    """A log whose first half is flushed and checkpointed, and damage done to it while nobody had it open."""
    log = manager.create(TP, TOPIC_ID)
    fill(log, 12, epoch=2)
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    fill(log, 12, epoch=3)
    manager.close(clean=in_order)
    site.disk.sync_everything()
    damage(site.disk, [f"{FOLDER}/{name.removesuffix('.log')}" for name in file_names(site.disk, ".log")])


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_start_over(broker: Any, damage: Damage) -> None:
    broker.site.config = replace(broker.site.config, segment_bytes=500, index_interval_bytes=100)
    prepare(broker.site, broker.start(), damage)
    once = replace(broker.site, disk=broker.site.disk.copy(), reports=Reports())
    repaired = states_of(once.start())
    assert repaired[TP].end == 24 or damage is fault_in_a_sealed_segment
    broker.survives(broker.start, before=repaired, short_indexes=damage in (indexes_missing, indexes_damaged))


# --- on a full disk ---------------------------------------------------------------------------------------------------


@dataclass
class Machine:
    """A broker's storage as a start of the broker uses it (`broker/server`), and what ZooKeeper knows of its starts."""

    site: StorageSite
    lives: int = 1

    def copy(self) -> Machine:
        return Machine(replace(self.site, disk=self.site.disk.copy(), reports=Reports()), self.lives)

    def start(self) -> LogManager:
        """Up to where others may be told of it. StorageError."""
        manager = self.site.start()
        clean = manager.was_clean
        try:
            manager.directories.begin_life(self.lives, True)
            self.lives += 1
        except StorageError:
            manager.close(clean=clean and not manager.directories.is_loss_open)
            raise
        return manager


@pytest.mark.parametrize("times", [1, 10**6], ids=["once", "for long"])
@pytest.mark.parametrize(
    ("damage", "past"),
    [
        (damage, past)
        for damage in [*DAMAGES, None]
        for past in ("killed", "killed, old backup", "stopped, another boot", "power lost")
        if damage is not finished_swap or not past.startswith("stopped")  # there is none after an orderly stop
    ],
)
def test_a_start_on_a_full_disk(broker: Any, damage: Damage | None, past: str, times: int) -> None:
    """It is refused in one line that names the folder, or it goes on with what there is. Either way nothing is lost,
    and a loss that it found is not forgotten."""
    site = broker.site
    site.config = replace(site.config, segment_bytes=500, index_interval_bytes=100)
    manager = site.start()
    manager.directories.begin_life(0, True)
    manager.mark_loss_handled()
    prepare(site, manager, damage or (lambda disk, paths: None), in_order=past.startswith("stopped"))
    site.disk.crash() if past in ("power lost", "stopped, another boot") else site.disk.kill()
    before = Machine(site, lives=5 if "old backup" in past else 1)
    usual = before.copy().start()
    repaired, is_lossy = states_of(usual), usual.may_have_lost_data
    assert is_lossy or past not in ("power lost", "killed, old backup")
    for number in count():
        machine = before.copy()
        full = machine.site.disk.on_growth = NoRoom(number, times)
        is_handled = False
        try:
            manager = machine.start()
        except StorageError as error:
            assert "/logs" in str(error) and "space" in str(error) and "\n" not in str(error)
        else:
            assert states_of(manager) == repaired
            assert manager.may_have_lost_data == is_lossy
            manager.checkpoints.write_recovery_points()
            manager.checkpoints.write_log_starts()
            manager.checkpoints.write_high_watermarks({tp: state.end for tp, state in repaired.items()})
            is_handled = bool(number % 2)
            if is_handled:
                manager.mark_loss_handled()
            manager.close(clean=not manager.directories.is_loss_open)
        full.end()
        machine.site.disk.kill()
        found = machine.start()
        assert states_of(found) == repaired, full.refused
        assert found.may_have_lost_data == is_lossy or is_handled, full.refused
        for log in found.logs.values():
            fill(log, 1, epoch=4)
        if not full.refused:
            return
