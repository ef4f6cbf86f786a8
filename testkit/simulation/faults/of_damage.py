"""Disks that alter what they have: bits that flip in records, other files that are cut, gone, or not what they were.

What is damaged is not told to the broker. An operator looks at it in the end: a log that is refused or offline, or that
still has its wrong bytes, is removed, and the broker fetches it anew.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass

import trio

from strandline.protocol.records import HEADER_BYTES, BatchHeader, InvalidBatch, scan
from strandline.protocol.types import TopicPartition
from strandline.testkit.cluster import LOG_DIR
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.simulation.faults.striking import FaultKind, Strikes
from strandline.testkit.simulation.losses import NOWHERE
from strandline.testkit.simulation.script import Fault

FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
BASE_OFFSET_BYTES = 8
"""No checksum covers it, nor is there anything that follows from it: who alters it writes another record."""
DAMAGES_MAX = 3
AWAY_S = (0.3, 3.0)


async def damage(strikes: Strikes, fault: Fault) -> None:
    """Killed, and back with files that are not what they were."""
    (broker,) = brokers = strikes.brokers(fault)
    chance, disk = strikes.chance(fault), strikes.cluster.nodes[broker].disk
    with strikes.losses.by_disaster(brokers):
        strikes.cluster.crash(broker)
        found = [_damage_something(disk, chance) for _ in range(chance.randint(1, DAMAGES_MAX))]
        done = _note(strikes, broker, found)
    await trio.sleep(chance.uniform(*AWAY_S))
    await strikes.start(broker)
    await trio.sleep(fault.seconds)
    await _mend(strikes, broker, done)


async def bit_flip(strikes: Strikes, fault: Fault) -> None:
    """While it runs."""
    (broker,) = brokers = strikes.brokers(fault)
    chance, disk = strikes.chance(fault), strikes.cluster.nodes[broker].disk
    with strikes.losses.by_disaster(brokers):
        logs = _logs(disk)
        done = _note(strikes, broker, [_flip_in_log(disk, chance, chance.choice(logs)) if logs else None])
    await trio.sleep(fault.seconds)
    await _mend(strikes, broker, done)


def _note(strikes: Strikes, broker: int, found: list[Damage | None]) -> list[Damage]:
    """What was really done; until it is mended everybody who judges knows of it."""
    done, damage = [each for each in found if each is not None], strikes.world.damage
    for each in done:
        strikes.world.sometimes[f"damaged: {each.what}"] += 1
        damage[broker, each.tp] = min(each.whole_below, damage.get((broker, each.tp), NOWHERE))
    return done


@dataclass(frozen=True)
class Damage:
    """whole_below: offsets whose records are as they were. path, at, right, wrong: the byte of a log that is not what
    it was."""

    tp: TopicPartition
    what: str
    whole_below: float = NOWHERE
    path: str = ""
    at: int = 0
    right: int = 0
    wrong: int = 0

    def is_seen(self, disk: MemoryDisk) -> bool:
        """Whether it still stands there."""
        return (
            bool(self.path)
            and disk.exists(self.path)
            and disk.read(self.path)[self.at : self.at + 1] == bytes([self.wrong])
        )

    def undo(self, disk: MemoryDisk) -> None:
        content = bytearray(disk.read(self.path))
        content[self.at] = self.right
        disk.write(self.path, bytes(content))


def _damage_something(disk: MemoryDisk, chance: random.Random) -> Damage | None:
    """None: there is nothing yet."""
    logs = _logs(disk)
    if not logs:
        return None
    path, how = chance.choice(logs), chance.random()
    folder = path.rpartition("/")[0]
    beside = [
        f"{folder}/{name}"
        for name in sorted(disk.listdir(folder))
        if name.endswith((".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint"))
    ]
    if how < 0.1 and any(each.startswith(f"{folder}/") for each in logs[: logs.index(path)]):
        disk.unlink(path)  # not the first one, which retention might have removed
        return Damage(_partition_of(path), "segment gone", int(path.rpartition("/")[2].removesuffix(".log")))
    if how < 0.4 and beside:
        return _damage_beside(disk, chance, chance.choice(beside))
    return _flip_in_log(disk, chance, path)


def _logs(disk: MemoryDisk) -> list[str]:
    """The segments that have records."""
    return sorted(
        path
        for entry in disk.scandir(LOG_DIR)
        if entry.is_dir and FOLDER.fullmatch(entry.name)
        for name in disk.listdir(f"{LOG_DIR}/{entry.name}")
        if name.endswith(".log") and disk.read(path := f"{LOG_DIR}/{entry.name}/{name}")
    )


def _partition_of(path: str) -> TopicPartition:
    found = FOLDER.fullmatch(path.split("/")[-2])
    assert found is not None
    return TopicPartition(found["topic"], int(found["partition"]))


def _flip_in_log(disk: MemoryDisk, chance: random.Random, path: str) -> Damage | None:
    """One bit, in the header of a batch as often as behind it. None: there is no batch that is whole."""
    content = bytearray(disk.read(path))
    batches = list(_batches(content))
    if not batches:
        return None
    position, header = chance.choice(batches)
    is_header = header.size_bytes == HEADER_BYTES or chance.random() < 0.5
    borders = (BASE_OFFSET_BYTES, HEADER_BYTES) if is_header else (HEADER_BYTES, header.size_bytes)
    at = position + chance.randrange(*borders)
    right = content[at]
    content[at] = wrong = right ^ 1 << chance.randrange(8)
    disk.write(path, bytes(content))
    what = "header of a batch" if is_header else "records of a batch"
    return Damage(_partition_of(path), what, header.base_offset, path, at, right, wrong)


def _batches(content: bytearray) -> Iterator[tuple[int, BatchHeader]]:
    """Up to the first one that was damaged before."""
    with contextlib.suppress(InvalidBatch):
        yield from scan(content)


def _damage_beside(disk: MemoryDisk, chance: random.Random, path: str) -> Damage:
    """A file from which no record is read: each is built anew, or does without."""
    content = bytearray(disk.read(path))
    how = chance.choice(("gone", "cut", "longer", "flipped")) if content else "gone"
    if how == "gone":
        disk.unlink(path)
    elif how == "cut":
        disk.write(path, bytes(content[: chance.randrange(len(content))]))
    elif how == "longer":
        disk.write(path, bytes(content) + chance.randbytes(chance.randint(1, 40)))
    else:
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        disk.write(path, bytes(content))
    return Damage(_partition_of(path), f"{path.rpartition('.')[2].rpartition('/')[2]} {how}")


async def _mend(strikes: Strikes, broker: int, done: list[Damage]) -> None:
    """Whatever of a log that is removed had come to stand behind the damage goes with it."""
    node, world = strikes.cluster.nodes[broker], strikes.world
    seen = [each for each in done if each.is_seen(node.disk)]
    wrong = {each.tp for each in seen} | {each.tp for each in done if not _is_served(strikes, broker, each.tp)}
    removed = [tp for tp in sorted(wrong) if node.disk.is_dir(_folder(tp))]
    for each in seen:
        each.undo(node.disk)
    for each in done:
        world.damage.pop((broker, each.tp), None)
    if node.is_up and not removed:
        world.sometimes["damage was mended by the broker"] += 1
        return
    with strikes.losses.by_disaster([broker]):
        if node.is_up:
            strikes.cluster.crash(broker)
        for tp in removed:
            _remove(node.disk, _folder(tp))
            world.sometimes["a damaged log was removed"] += 1
    await trio.sleep(AWAY_S[0])
    await strikes.start(broker)


def _is_served(strikes: Strikes, broker: int, tp: TopicPartition) -> bool:
    """Or has been moved away, or deleted."""
    if not strikes.cluster.hosts(broker, tp):
        return False
    return not strikes.cluster.partition(broker, tp).failed


def _folder(tp: TopicPartition) -> str:
    return f"{LOG_DIR}/{tp}"


def _remove(disk: MemoryDisk, folder: str) -> None:
    for name in disk.listdir(folder):
        disk.unlink(f"{folder}/{name}")
    disk.rmdir(folder)
    disk.fsync_dir(LOG_DIR)


KINDS = {
    "damage": FaultKind(damage, ("1",), "killed, and back with files that its disk has altered; seen to in the end"),
    "bit flip": FaultKind(bit_flip, ("1",), "a bit of a log flips while the broker runs; seen to in the end"),
}
