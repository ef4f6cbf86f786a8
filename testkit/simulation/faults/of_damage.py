"""Disks that alter what they have: bits that flip in records, other files that are cut, gone, or not what they were.

What is damaged is not told to the broker. An operator looks at it in the end: a broker with a log that is offline is
started again, and a log that has its wrong bytes even then is removed, so that the broker fetches it anew.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Iterator

import trio

from strandline.protocol.records import HEADER_BYTES, BatchHeader, InvalidBatch, scan
from strandline.protocol.types import TopicPartition
from strandline.storage.segments.segment import LOG_SUFFIX
from strandline.testkit.cluster import LOG_DIR
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.simulation.anomalies import offsets_stream
from strandline.testkit.simulation.damage import Damage
from strandline.testkit.simulation.faults.striking import FaultKind, Strikes
from strandline.testkit.simulation.history import Stream
from strandline.testkit.simulation.script import Fault
from strandline.testkit.simulation.world import World

FOLDER = re.compile(r"(?P<topic>.+)-(?P<partition>\d+)")
COMPANIONS = (".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")
"""No record is read from these: each is built anew, or done without."""
UNCHECKED_BYTES = (*range(8), *range(12, 16))
"""Of a batch: its base offset and its epoch, which no checksum covers and whoever reads believes. What becomes of an
epoch is in R20 (`tests/scenarios/r20_bit_flip_in_an_epoch.txt`)."""
DAMAGES_MAX = 3
SEGMENT_GONE, SEGMENT_TWICE, COMPANION_DAMAGED = 0.1, 0.1, 0.3
"""How often, beside flips in a log."""
AWAY_S = (0.3, 3.0)
MENDED_WITHIN_S = 3.0
"""By the broker itself, once it was started again."""


async def damage(strikes: Strikes, fault: Fault) -> None:
    """The broker is killed, and back with files that are not what they were."""
    (broker,) = brokers = strikes.brokers(fault)
    chance = strikes.chance(fault)
    with strikes.losses.by_disaster(brokers):
        strikes.cluster.crash(broker)
        for _ in range(chance.randint(1, DAMAGES_MAX)):
            _damage_something(strikes.world, broker, chance)
    await trio.sleep(chance.uniform(*AWAY_S))
    await strikes.start(broker)
    await trio.sleep(fault.seconds)
    await _mend(strikes, broker)


async def bit_flip(strikes: Strikes, fault: Fault) -> None:
    """The broker goes on meanwhile."""
    (broker,) = brokers = strikes.brokers(fault)
    chance, logs = strikes.chance(fault), _logs(strikes.cluster.nodes[broker].disk)
    with strikes.losses.by_disaster(brokers):
        if logs:
            _flip_in_log(strikes.world, broker, chance, chance.choice(logs))
    await trio.sleep(fault.seconds)
    await _mend(strikes, broker)


# --- damage ---------------------------------------------------------------------------------------------------------


def _damage_something(world: World, broker: int, chance: random.Random) -> None:
    """If there is anything yet."""
    disk = world.cluster.nodes[broker].disk
    logs = _logs(disk)
    if not logs:
        return
    path, how = chance.choice(logs), chance.random()
    folder = path.rpartition("/")[0]
    companions = [f"{folder}/{name}" for name in sorted(disk.listdir(folder)) if name.endswith(COMPANIONS)]
    is_first = not any(each.startswith(f"{folder}/") for each in logs[: logs.index(path)])
    if how < SEGMENT_GONE and not is_first:  # the first one is gone after retention, too
        disk.unlink(path)
        base_offset = int(path.rpartition("/")[2].removesuffix(LOG_SUFFIX))
        _note(world, broker, Damage(_stream_of(world, path), "segment gone", path, base_offset))
    elif how < SEGMENT_GONE + SEGMENT_TWICE and len(batches := list(_batches(disk.read(path)))) > 1:
        position, header = chance.choice(batches[1:])
        path, content = f"{folder}/{header.base_offset:020}{LOG_SUFFIX}", disk.read(path)[position:]
        disk.write(path, content)
        _note(world, broker, Damage(_stream_of(world, path), "segment twice", path, header.base_offset, added=content))
    elif how < SEGMENT_GONE + SEGMENT_TWICE + COMPANION_DAMAGED and companions:
        _damage_companion(world, disk, chance, chance.choice(companions))
    else:
        _flip_in_log(world, broker, chance, path)


def _flip_in_log(world: World, broker: int, chance: random.Random, path: str) -> None:
    """One bit of a batch, in its header as often as behind it; nothing where no batch is whole."""
    disk = world.cluster.nodes[broker].disk
    content = disk.read(path)
    batches = list(_batches(content))
    if not batches:
        return
    position, header = chance.choice(batches)
    is_header = header.size_bytes == HEADER_BYTES or chance.random() < 0.5
    places = [n for n in range(HEADER_BYTES) if n not in UNCHECKED_BYTES] if is_header else None
    at = position + chance.choice(places or range(HEADER_BYTES, header.size_bytes))
    right, wrong = content[at : at + 1], bytes([content[at] ^ 1 << chance.randrange(8)])
    disk.write(path, content[:at] + wrong + content[at + 1 :])
    what = "header of a batch" if is_header else "records of a batch"
    _note(world, broker, Damage(_stream_of(world, path), what, path, header.base_offset, at, right, wrong))


def _note(world: World, broker: int, done: Damage) -> None:
    """Until it is mended everybody who judges knows of it."""
    world.sometimes[f"damaged: {done.what}"] += 1
    world.damage.setdefault(broker, []).append(done)


def _damage_companion(world: World, disk: MemoryDisk, chance: random.Random, path: str) -> None:
    """Nobody who judges has to know of it: all answers are the same as before."""
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
    kind = next(each for each in COMPANIONS if path.endswith(each))
    world.sometimes[f"damaged: {kind.removeprefix('.')} {how}"] += 1


def _logs(disk: MemoryDisk) -> list[str]:
    """The segments that have records."""
    return sorted(
        path
        for entry in disk.scandir(LOG_DIR)
        if entry.is_dir and FOLDER.fullmatch(entry.name)
        for name in disk.listdir(f"{LOG_DIR}/{entry.name}")
        if name.endswith(LOG_SUFFIX) and disk.read(path := f"{LOG_DIR}/{entry.name}/{name}")
    )


def _batches(content: bytes) -> Iterator[tuple[int, BatchHeader]]:
    """Up to the first one that was damaged before."""
    with contextlib.suppress(InvalidBatch):
        yield from scan(content)


def _stream_of(world: World, path: str) -> Stream:
    found = FOLDER.fullmatch(path.split("/")[-2])
    assert found is not None
    life, partition = world.topics.get(found["topic"]), int(found["partition"])
    return offsets_stream(partition) if life is None else life.stream(partition)


# --- mending --------------------------------------------------------------------------------------------------------


async def _mend(strikes: Strikes, broker: int) -> None:
    """What had come to stand behind the damage may go with it, by the broker's hand or by the operator's."""
    node, world = strikes.cluster.nodes[broker], strikes.world
    damage = world.damage.get(broker, [])
    if not node.is_up or any(_is_offline(strikes, broker, each.stream.tp) for each in damage):
        seen = _undo(damage, node.disk)
        with strikes.losses.by_disaster([broker], {each.stream for each in seen}):
            _end(strikes, broker)
            for each in reversed(seen):
                each.redo(node.disk)
        await trio.sleep(AWAY_S[0])
        await strikes.start(broker)
        await trio.sleep(MENDED_WITHIN_S)
    seen = _undo(damage, node.disk)
    world.damage.pop(broker, None)
    if not seen:
        world.sometimes["damage was mended by the broker"] += bool(damage)
        return
    with strikes.losses.by_disaster([broker], {each.stream for each in seen}):
        _end(strikes, broker)
        for folder in sorted({each.path.rpartition("/")[0] for each in seen}):
            if node.disk.is_dir(folder):
                _remove(node.disk, folder)
                world.sometimes["a damaged log was removed"] += 1
    await trio.sleep(AWAY_S[0])
    await strikes.start(broker)


def _undo(damage: list[Damage], disk: MemoryDisk) -> list[Damage]:
    """Whatever still stands there, the last one first, since two may have met the same byte."""
    seen = []
    for each in reversed(damage):
        if each.is_seen(disk):
            each.undo(disk)
            seen.append(each)
    return seen


def _is_offline(strikes: Strikes, broker: int, tp: TopicPartition) -> bool:
    return strikes.cluster.hosts(broker, tp) and strikes.cluster.partition(broker, tp).failed


def _end(strikes: Strikes, broker: int) -> None:
    if strikes.cluster.nodes[broker].is_up:
        strikes.losses.strike(broker, MENDED_WITHIN_S)
        strikes.cluster.crash(broker)


def _remove(disk: MemoryDisk, folder: str) -> None:
    for name in disk.listdir(folder):
        disk.unlink(f"{folder}/{name}")
    disk.rmdir(folder)
    disk.fsync_dir(LOG_DIR)


KINDS = {
    "damage": FaultKind(damage, ("1",), "killed, and back with files that its disk has altered; seen to in the end"),
    "bit flip": FaultKind(bit_flip, ("1",), "a bit of a log flips while the broker runs; seen to in the end"),
}
