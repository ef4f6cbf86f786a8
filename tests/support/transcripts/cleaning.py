"""Compactions of one log, whole or cut short.

A log is written as `a:1 b:- / a:2 / c:1`: keys with values, `-` for a tombstone, segments between `/`, the last one
active. `delete.retention.ms` is 1000.

| stimulus | what happens |
|---|---|
| clean a:1 / a:2 hw=2 at=0,2000 | it is cleaned at these times; only below the high watermark (by default the end) |
| kill a:1 / a:2 / b:1 | the process dies before each disk operation of a cleaning, and after the last one |
"""

from __future__ import annotations

from collections.abc import Sequence

from strandline.protocol.records import build_batch, decode_records
from strandline.protocol.records.validation import validate_produced
from strandline.storage.disk.removal import remove
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.inspection import log_bytes
from support.cleaning import clean as clean_log
from support.crash_points import record
from support.storage_site import TOPIC_ID, TP, SmallLogConfig, StorageSite
from support.transcripts.stage import Table, Verb

CONFIG = SmallLogConfig(cleanup_policy=("compact",), segment_bytes=100_000)
TOLD = ("rename", "fsync_dir", "unlink", "the")
"""Operations that are named; what comes in between is the same for a start as what comes before it."""


def a_log(words: Sequence[str], site: StorageSite) -> tuple[LogManager, Log]:
    """All of it is durable."""
    site.config = CONFIG
    manager = site.start()
    log = manager.create(TP, TOPIC_ID)
    for word in words:
        if word == "/":
            log.roll()
            continue
        key, value = word.split(":")
        batch = build_batch([(1000, key.encode(), None if value == "-" else value.encode())])
        log.append_as_leader(validate_produced(memoryview(bytearray(batch)), max_batch_bytes=10**6), 0)
    log.flushed(log.flush_plan()())
    manager.checkpoints.write_recovery_points()
    return manager, log


def log_text(log: Log) -> str:
    """With the offset of each record."""
    records = decode_records(memoryview(log_bytes(log)))
    return " ".join(
        f"{record.offset}={record.key.decode()}:{record.value.decode() if record.value is not None else '-'}"
        for record in records
        if record.key is not None
    )


async def clean(stage: Table, words: list[str], options: dict[str, str]) -> None:
    site = StorageSite()
    _, log = a_log(words, site)
    high_watermark = int(options.get("hw", log.log_end_offset))
    for now_ms in map(int, options.get("at", "0").split(",")):
        clean_log(log, site.disk, end_offset=high_watermark, now_ms=now_ms)
        stage.tell(f"at {now_ms} ms: {log_text(log)}")


async def kill(stage: Table, words: list[str], options: dict[str, str]) -> None:
    site = StorageSite()
    manager, log = a_log(words, site)
    before = log_text(log)

    def operate() -> None:
        clean_log(log, site.disk)
        manager.removals.due(0)
        remove(site.disk, manager.removals.due(10**9))

    points = record(site.disk, operate, dict)
    stage.tell(f"old: {before}")
    stage.tell(f"new: {log_text(log)}")
    names = {before: "old", log_text(log): "new"}
    found = [(_found(point.disk), point.following) for point in points if point.following.split()[0] in TOLD]
    for text, following in found:
        stage.tell(f"killed before {_short(following)}: {names.get(text, text)}")


def _found(disk: MemoryDisk) -> str:
    """What a start makes of it."""
    twin = disk.copy()
    twin.kill()
    return log_text(StorageSite(disk=twin, config=CONFIG).start().logs[TP])


def _short(operation: str) -> str:
    """`rename /logs/t-0/00000000000000000000.log.cleaned` is `rename 0.log.cleaned`."""
    verb, _, path = operation.partition(" ")
    number, dot, endings = path.rpartition("/")[2].partition(".")
    name = f"{int(number)}.{endings}" if number.isdecimal() else number + dot + endings
    return f"{verb} {name}"


VERBS: dict[str, Verb] = {verb.__name__: verb for verb in (clean, kill)}
