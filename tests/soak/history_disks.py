"""Disks of a broker that fail (EIO) while `make soak-history` runs, and what must hold then (`safety` invariant 24).

A log directory whose disk failed accepts nothing more, also once the disk is healed, until the broker is started again;
what it led there is led by others; its other directories live, and with the last one the broker ends, not in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import trio

from soak.history_site import HistoryCluster
from soak.soak_run import off_loop

OFFLINE = re.compile(r"log directory offline.*?\bpath=(\S+)")
NONE_LEFT = "no log directory is left"
"""What the broker says last when it ends."""
LOOK_INTERVAL_S = 0.2
ENDS_WITHIN_S = LED_ELSEWHERE_WITHIN_S = 15.0
SETTLED_S = 1.0
"""After a directory has failed: a call that the disk had accepted before may still be under way."""
HEALED_S = 2.0
"""How long a healed disk is offered before the broker is started again."""


class FailingDisk:
    """One fault. is_alone: whether nothing else is done to the cluster just now. found: is told what must not be."""

    def __init__(
        self, cluster: HistoryCluster, broker: int, is_alone: Callable[[], bool], found: Callable[[str], None]
    ) -> None:
        self._cluster = cluster
        self._broker = broker
        self._is_alone = is_alone
        self._found = found
        self._daemon = cluster.brokers[broker]
        self._log_begin = self._daemon.log_path.stat().st_size

    async def strike(self, operations: list[str], log_dirs: list[str], seconds: float) -> str:
        """These operations fail in these log directories; then all heals, and the broker is started again."""
        self._cluster.break_disk(self._broker, errors=operations, below=log_dirs)
        await trio.sleep(seconds)
        offline = self._offline()
        if len(offline) == len(self._cluster.log_dirs(self._broker)):
            await self._ends()
        elif offline and self._daemon.is_alive:
            await self._leads_nothing(offline)
        sizes = self._sizes(offline)
        self._cluster.heal_disk(self._broker)
        if self._daemon.is_alive:
            return await self._lives_on(offline, sizes)
        return await self._starts_anew(offline)

    def _offline(self) -> list[str]:
        """The directories that have failed, as the broker's log tells."""
        with self._daemon.log_path.open("rb") as log:
            log.seek(self._log_begin)
            return list(dict.fromkeys(OFFLINE.findall(log.read().decode(errors="replace"))))

    async def _ends(self) -> None:
        """By itself, and says why."""
        with trio.move_on_after(ENDS_WITHIN_S):
            while self._daemon.is_alive:
                await trio.sleep(LOOK_INTERVAL_S)
        if self._daemon.is_alive:
            self._found(f"broker {self._broker} lives on without any log directory")

    async def _starts_anew(self, offline: list[str]) -> str:
        """It has ended, which it may only do where no directory is left, and then not as if all were well."""
        code, line = self._daemon.exit_code, self._daemon.last_log_line()
        if not code or NONE_LEFT not in line or len(offline) < len(self._cluster.log_dirs(self._broker)):
            self._found(f"broker {self._broker} ended with exit code {code}, offline were {offline}: {line}")
        await self._cluster.serving(self._broker)
        return f"exit code {code}, {NONE_LEFT}"

    async def _lives_on(self, offline: list[str], sizes: dict[Path, int]) -> str:
        await trio.sleep(HEALED_S)
        grown = [str(path) for path, size in self._sizes(offline).items() if size > sizes.get(path, 0)]
        if grown:
            self._found(f"broker {self._broker} wrote to a log directory that had failed: {grown[:3]}")
        if not self._daemon.is_alive:
            self._found(f"broker {self._broker} ended after its disk was healed: {self._daemon.last_log_line()}")
        elif code := await self._cluster.stopped(self._broker):
            self._found(f"broker {self._broker} ended with exit code {code} after SIGTERM, its disk had failed")
        await self._cluster.serving(self._broker)
        return f"offline: {', '.join(Path(each).name for each in offline) or 'nothing'}"

    def _sizes(self, log_dirs: list[str]) -> dict[Path, int]:
        paths = [path for each in log_dirs for path in self._cluster.seen(each).glob("*/*.log")]
        return {path: path.stat().st_size for path in paths if path.exists()}

    async def _leads_nothing(self, offline: list[str]) -> None:
        """Of what lies there. (Who else is struck may be the one who has to lead, or to say so.)"""
        await trio.sleep(SETTLED_S)
        names = {path.name for each in offline for path in self._cluster.seen(each).iterdir() if path.is_dir()}
        was_alone, led = self._is_alone(), {"nobody was asked"}
        with trio.move_on_after(LED_ELSEWHERE_WITHIN_S):
            while led := names & await off_loop(self._led):
                await trio.sleep(LOOK_INTERVAL_S)
        if led and was_alone and self._is_alone():
            self._found(f"broker {self._broker} still leads what lies on a disk that failed: {sorted(led)}")

    def _led(self) -> set[str]:
        found = self._cluster.metadata()
        return {
            f"{topic.name}-{partition.partition_index}"
            for topic in (found.topics if found else ())
            for partition in topic.partitions
            if partition.leader_id == self._broker
        }
