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
from strandline.cli.cluster_probe import ask_brokers

OFFLINE = re.compile(r"log directory offline.*?\bpath=(\S+)")
NONE_LEFT = "no log directory is left"
"""What the broker says last when it ends."""
LOOK_INTERVAL_S = 0.2
ENDS_WITHIN_S = LED_ELSEWHERE_WITHIN_S = 15.0
SETTLED_S = 2.0
"""From the last error that counts: by then it is in the broker's log, and what the disk had accepted before is done."""
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
        errors = self._cluster.disk_errors(self._broker)
        await trio.sleep(SETTLED_S)
        offline = self._offline()
        if self._daemon.is_alive:
            self._has_noticed(errors, offline)
            await self._leads_nothing(offline)
        sizes = self._sizes(offline)
        self._cluster.heal_disk(self._broker)
        await trio.sleep(HEALED_S)
        grown = [str(path) for path, size in self._sizes(offline).items() if size > sizes.get(path, 0)]
        if grown:
            self._found(f"broker {self._broker} wrote to a log directory that had failed: {grown[:3]}")
        note = await self._ended()
        await self._cluster.serving(self._broker)
        return f"{len(errors)} errors, {note}"

    def _offline(self) -> list[str]:
        """The directories that have failed, as the broker's log tells."""
        with self._daemon.log_path.open("rb") as log:
            log.seek(self._log_begin)
            return list(dict.fromkeys(OFFLINE.findall(log.read().decode(errors="replace"))))

    def _has_noticed(self, errors: list[tuple[str, str]], offline: list[str]) -> None:
        """An error of any log has failed its directory."""
        of_logs = [each for each in errors if each[1].endswith(".log")]
        unnoticed = [each for each in of_logs if not any(each[1].startswith(f"{log_dir}/") for log_dir in offline)]
        if unnoticed:
            self._found(f"broker {self._broker} takes no notice of {len(unnoticed)} errors: {unnoticed[:3]}")

    async def _ended(self) -> str:
        """By itself where no directory is left, not in order, and it says why; else when told to, and in order."""
        offline = self._offline()
        is_to_end = len(offline) == len(self._cluster.log_dirs(self._broker))
        with trio.move_on_after(ENDS_WITHIN_S):
            while is_to_end and self._daemon.is_alive:
                await trio.sleep(LOOK_INTERVAL_S)
        if not self._daemon.is_alive:
            code, line = self._daemon.exit_code, self._daemon.last_log_line()
            if not (is_to_end and code and NONE_LEFT in line):
                self._found(f"broker {self._broker} ended with exit code {code}, offline were {offline}: {line}")
            return f"exit code {code}, {NONE_LEFT}"
        if is_to_end:
            self._found(f"broker {self._broker} lives on without any log directory")
        if code := await self._cluster.stopped(self._broker):
            self._found(f"broker {self._broker} ended with exit code {code} after SIGTERM, its disk had failed")
        return f"offline: {', '.join(Path(each).name for each in offline) or 'nothing'}"

    def _sizes(self, log_dirs: list[str]) -> dict[Path, int]:
        paths = [path for each in log_dirs for path in self._cluster.seen(each).glob("*/*.log")]
        return {path: path.stat().st_size for path in paths if path.exists()}

    async def _leads_nothing(self, offline: list[str]) -> None:
        """Of what lies there, if anything does. (Who else is struck may be the one who has to lead, or to say so.)"""
        names = {path.name for each in offline for path in self._cluster.seen(each).iterdir() if path.is_dir()}
        was_alone, led = self._is_alone(), None
        with trio.move_on_after(LED_ELSEWHERE_WITHIN_S):
            while (led := await off_loop(self._led)) is None or names & led:
                await trio.sleep(LOOK_INTERVAL_S)
            return
        if not (was_alone and self._is_alone()):
            return
        if led is None:
            self._found(f"for {LED_ELSEWHERE_WITHIN_S:.0f} s no broker but {self._broker}, whose disk failed, answers")
        else:
            self._found(f"broker {self._broker} still leads what lies on a disk that failed: {sorted(names & led)}")

    def _led(self) -> set[str] | None:
        """What it leads, in the eyes of any broker, its own too. None: no other one answers."""
        living = [each for each, daemon in self._cluster.brokers.items() if daemon.is_alive]
        answers = ask_brokers({each: self._cluster.address(each) for each in living}, topics=None)
        if not answers.keys() - {self._broker}:
            return None
        return {
            f"{topic.name}-{partition.partition_index}"
            for answer in answers.values()
            for topic in answer.topics
            for partition in topic.partitions
            if partition.leader_id == self._broker
        }
