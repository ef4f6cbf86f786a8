"""What must hold when the load has ended, each with a name; a broken one does not keep the others from being looked at.

Files are read from stopped brokers, so that nothing moves while they are compared.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from soak.soak_load import LATEST, NUMBERS, PARTITIONS, Load
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.process import ProcessId
from strandline.testkit.verification import PromiseBroken
from support.lasting import (
    check_compacted,
    check_retained,
    newest_numbers,
    same_bytes,
    same_values,
    unpadded,
)

ERROR_LINE = re.compile(r"\[error *\] (.*?)(?: \w+=|$)")
Records = dict[int, list[tuple[int, bytes | None, bytes | None]]]


@dataclass(frozen=True, slots=True)
class Verdict:
    promise: str
    holds: bool
    text: str

    def as_json(self) -> dict[str, object]:
        return asdict(self)


async def judge(verdicts: list[Verdict], promise: str, proof: Callable[[], Awaitable[str]]) -> None:
    """`proof` returns what was found, or raises what is wrong."""
    try:
        verdicts.append(Verdict(promise, True, await proof()))
    except* Exception as errors:
        error: BaseException = errors
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        verdicts.append(Verdict(promise, False, f"{type(error).__name__}: {error}"[:600]))


def numbers_kept(load: Load, found: Records) -> str:
    """Retention: acknowledged records stand at their offset or lie below the log start."""
    standing = seen = unseen = 0
    for partition, records in found.items():
        values = [(offset, unpadded(value or b"")) for offset, _, value in records]
        begin = values[0][0] if values else 0
        kept = check_retained(partition, load.outcomes[partition], load.readings[partition], values, begin)
        standing, seen, unseen = standing + kept.standing, seen + kept.expired_seen, unseen + kept.expired_unseen
    return f"{standing:,} stand, {seen:,} expired after they were read, {unseen:,} before"


def latest_kept(load: Load, found: Records) -> str:
    """Compaction: of each key the newest acknowledged value is there."""
    keys = records_count = 0
    for partition, records in found.items():
        newest = newest_numbers(partition, [(key, value) for _, key, value in records])
        keys += check_compacted(partition, load.histories[partition], newest)
        records_count += len(records)
    return f"{keys:,} keys with a value; {load.acked_latest:,} acknowledged records became {records_count:,}"


def log_of(cluster: EmbeddedCluster, broker_id: int, name: str) -> bytes:
    folder = cluster.log_dir(broker_id) / name
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def names_of(topic: str) -> list[str]:
    return [f"{topic}-{partition}" for partition in range(PARTITIONS[topic])]


def replicas_of_numbers(cluster: EmbeddedCluster, retention_bytes: int) -> str:
    """Byte for byte over the range that all replicas have; which is no shorter than retention must leave."""
    shared_bytes = 0
    for name in names_of(NUMBERS):
        begin, shared = same_bytes(name, {each: log_of(cluster, each, name) for each in cluster.broker_ids})
        if begin > 0 and shared < retention_bytes:
            raise PromiseBroken(f"{name}: retention left {shared} bytes, it must leave {retention_bytes}")
        shared_bytes += shared
    return f"{shared_bytes / 1e6:.1f} MB on each of {len(cluster.broker_ids)} replicas"


def replicas_of_latest(cluster: EmbeddedCluster, found: Records) -> str:
    """The same newest value per key, at the same offset; and that is what a reader got."""
    keys = 0
    for partition, name in enumerate(names_of(LATEST)):
        values = same_values(name, {each: log_of(cluster, each, name) for each in cluster.broker_ids})
        read = {key: (offset, value) for offset, key, value in found[partition] if key is not None}
        given = {key: at for key, at in read.items() if at[1] is not None}
        for key in sorted(given.keys() | values.keys()):
            if given.get(key) != values.get(key):
                raise PromiseBroken(
                    f"{name}: of key {key!r} a reader got {given.get(key)}, files hold {values.get(key)}"
                )
        keys += len(values)
    return f"{keys:,} keys on each of {len(cluster.broker_ids)} replicas and with a reader"


def folders_are_sound(folders: Sequence[Path]) -> str:
    """`strandline log-check` of stopped brokers finds nothing to repair. (What waits for its removal is no damage,
    nor is what a cleaning left that the stop ended.)"""
    waiting = 0
    for folder in folders:
        command = [sys.executable, "-m", "strandline.cli", "log-check", "--output", "json", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.stderr:
            raise PromiseBroken(done.stderr[:400])
        for finding in json.loads(done.stdout)["findings"]:
            if finding["event"] == "leftover" and finding["where"].endswith((".deleted", ".cleaned")):
                waiting += 1
            elif finding["severity"] != "note":
                raise PromiseBroken(f"{finding['where']}: {finding['what']}")
    return f"{len(folders)} folders, {waiting} files are left to be removed"


def no_orphans(workers: Collection[ProcessId], patience_s: float = 60.0) -> str:
    """All brokers have ended, some of them by SIGKILL. Their workers are niced: on a busy machine they end late."""
    alive = [worker for worker in workers if not worker.wait_gone(patience_s)]
    if alive:
        raise PromiseBroken(f"{alive} still run")
    return f"{len(workers)} worker processes were seen"


def no_tracebacks(logs: Sequence[Path]) -> str:
    """Brokers were ended from outside; none has failed by itself."""
    errors: Counter[str] = Counter()
    for path in logs:
        lines = path.read_text(errors="replace").splitlines()
        for number, line in enumerate(lines):
            if "Traceback (most recent" in line:
                raise PromiseBroken(f"{path}:{number + 1}: {' | '.join(lines[max(0, number - 1) : number + 1])[:300]}")
            if said := ERROR_LINE.search(line):
                errors[said[1].strip()[:80]] += 1
    told = "; ".join(f"{count} x {event}" for event, count in errors.most_common(5))
    return f"{sum(errors.values())} lines of level error" + (f": {told}" if told else "")
