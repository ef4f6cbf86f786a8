"""A start that has something to repair, ended at every disk operation: the next one comes to the same result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from strandline.protocol.types import TopicPartition
from strandline.storage.removal import delete_folder_name
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.log_audit import states_of
from strandline.testkit.storage_site import FOLDER, TOPIC_ID, TP, Reports, file_names, fill

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


@pytest.mark.parametrize(
    "damage",
    [
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
    ],
)
def test_a_start_over(broker: Any, damage: Damage) -> None:
    broker.site.config = replace(broker.site.config, segment_bytes=500, index_interval_bytes=100)
    log = broker.start().create(TP, TOPIC_ID)
    fill(log, 12, epoch=2)
    log.flushed(log.flush_plan()())
    broker.manager.checkpoint_recovery_points()
    fill(log, 12, epoch=3)
    broker.manager.close(clean=False)
    broker.site.disk.sync_everything()
    damage(broker.site.disk, [f"{FOLDER}/{name.removesuffix('.log')}" for name in file_names(broker.site.disk, ".log")])
    once = replace(broker.site, disk=broker.site.disk.copy(), reports=Reports())
    repaired = states_of(once.start())
    assert repaired[TP].end == 24 or damage is fault_in_a_sealed_segment
    broker.survives(broker.start, before=repaired, short_indexes=damage in (indexes_missing, indexes_damaged))
