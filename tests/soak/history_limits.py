"""The kinds of faults of `make soak-history` that are done to disks, and to what a process may take of the system."""

from __future__ import annotations

import os
import resource
from contextlib import suppress
from pathlib import Path

import trio

from soak.history_disks import NONE_LEFT, FailingDisk
from soak.history_strikes import Striker, kind
from soak.soak_run import off_loop
from strandline.client import TrioConsumer
from strandline.client.errors import ClientError
from strandline.testkit.simulation.script import Fault

SLOW_FSYNC_S = 2.0
FREE_BYTES, GROWTH_BYTES = 64 * 2**10, 4 * 2**10
SPARE_DESCRIPTORS = 3
OLD_RECORDS_INTERVAL_MS = 500
DISK_OPERATIONS = ["read", "write", "fsync", "rename"]


class DisksAndLimits(Striker):
    """Of one broker at a time."""

    @kind("slow disk")
    async def slow_disk(self, fault: Fault, brokers: list[int]) -> None:
        await self._worse_disk(fault, brokers[0], fsync_late_s=SLOW_FSYNC_S)

    @kind("stuck disk")
    async def stuck_disk(self, fault: Fault, brokers: list[int]) -> None:
        await self._worse_disk(fault, brokers[0], stuck=True)

    async def _worse_disk(self, fault: Fault, broker: int, **how: object) -> None:
        self.cluster.break_disk(broker, **how)
        await trio.sleep(fault.seconds)
        self.cluster.heal_disk(broker)

    @kind("read errors")
    async def read_errors(self, fault: Fault, brokers: list[int]) -> str:
        """Followers and readers of the newest need no disk: somebody reads what is old, too."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_old_records)
            note = await self.disk_errors(fault, brokers)
            nursery.cancel_scope.cancel()
        return note

    async def _read_old_records(self) -> None:
        """For ever, whatever the cluster answers: more may be done to it meanwhile."""
        while True:
            try:
                await self._read_on()
            except* ClientError:
                await trio.sleep(OLD_RECORDS_INTERVAL_MS / 1000)

    async def _read_on(self) -> None:
        async with TrioConsumer(self.cluster.proxies.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            await consumer.assign(self.partitions)
            while True:
                for tp in self.partitions:
                    consumer.seek(tp, 0)
                with suppress(ClientError):
                    await consumer.poll_columns(timeout_ms=OLD_RECORDS_INTERVAL_MS)
                await trio.sleep(OLD_RECORDS_INTERVAL_MS / 1000)

    @kind("write errors")
    @kind("fsync errors")
    @kind("rename errors")
    async def disk_errors(self, fault: Fault, brokers: list[int]) -> str:
        log_dir = self._random.choice(self.cluster.log_dirs(brokers[0]))
        return await self._failing_disk(brokers[0]).strike([fault.kind.split()[0]], [log_dir], fault.seconds)

    @kind("dead disks")
    async def dead_disks(self, fault: Fault, brokers: list[int]) -> str:
        log_dirs = self.cluster.log_dirs(brokers[0])
        return await self._failing_disk(brokers[0]).strike(DISK_OPERATIONS, log_dirs, fault.seconds)

    def _failing_disk(self, broker: int) -> FailingDisk:
        return FailingDisk(self.cluster, broker, lambda: self._now == {str(broker)}, self.findings.append)

    @kind("disk full")
    async def disk_full(self, fault: Fault, brokers: list[int]) -> None:
        await off_loop(self.cluster.disk.fill_but, FREE_BYTES)
        await trio.sleep(fault.seconds)
        await off_loop(self.cluster.disk.make_room)

    @kind("file limit")
    async def file_limit(self, fault: Fault, brokers: list[int]) -> str:
        (broker,) = brokers
        largest = await off_loop(largest_file, *map(self.cluster.seen, self.cluster.log_dirs(broker)))
        if await self._lives_with(fault, broker, resource.RLIMIT_FSIZE, largest + GROWTH_BYTES):
            return "it lives"
        return await self._ended(broker, "at the limit of its files")

    @kind("descriptor limit")
    async def descriptor_limit(self, fault: Fault, brokers: list[int]) -> str:
        """What it cannot open it does later: it has to live, as long as it has a log directory."""
        (broker,) = brokers
        opened = _descriptors(self._pid(broker))
        if opened and await self._lives_with(fault, broker, resource.RLIMIT_NOFILE, opened + SPARE_DESCRIPTORS):
            return "it lives"
        return await self._ended(broker, "for lack of descriptors")

    async def _lives_with(self, fault: Fault, broker: int, which: int, limit: int) -> bool:
        """Through all of it; then the limit is what it was."""
        pid = self._pid(broker)
        with suppress(ProcessLookupError):
            soft, hard = resource.prlimit(pid, which)
            resource.prlimit(pid, which, (limit, hard))
            await trio.sleep(fault.seconds)
            resource.prlimit(pid, which, (soft, hard))
        return self._is_alive(broker)

    async def _ended(self, broker: int, why: str) -> str:
        """It serves again when this returns how it ended: only without a log directory may it."""
        said = self._how_it_ended(broker)
        if NONE_LEFT not in said:
            self.findings.append(f"broker {broker} ended {why}, {said}")
        await self.cluster.serving(broker)
        return said


def _descriptors(pid: int) -> int:
    """0: it has ended."""
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except (FileNotFoundError, ProcessLookupError):
        return 0


def largest_file(*folders: Path) -> int:
    """Bytes, of all that are called .log below: only these grow without an end."""
    sizes = []
    for folder in folders:
        for path in folder.rglob("*.log"):
            with suppress(FileNotFoundError):  # it may be gone by now
                sizes.append(path.stat().st_size)
    return max(sizes)
