"""The cluster of `make soak-history`: real brokers behind proxies. Each has disks that can be made slow or broken, and
two log directories; the last one has a single one, on a small disk. The second one has a long session at ZooKeeper."""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path

import trio

from soak.history_versions import OlderVersion, older_version
from soak.soak_run import off_loop
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.process import ProcessFailed
from strandline.testkit.verification import PromiseBroken
from support.proxies import CLIENT, ZOOKEEPER, BrokerProxies
from support.small_disk import SmallDisk, WrappedDaemon

BROKEN_DISK = Path(__file__).parents[1] / "support" / "broken_disk"
LONG_SESSION_MS = 18_000
"""Kafka's default: it outlasts answers that are late by seconds, which the others' sessions do not."""
MAX_CONNECTIONS = 3_000
"""Of one address, too: all clients are at the same one."""
STARTS_WITHIN_S = 300
RETRY_S = 0.5


class HistoryCluster(EmbeddedCluster):
    """To be closed when it has stopped. CannotUnpack: see `history_versions`."""

    def __init__(self, folder: Path, brokers: int, disk_bytes: int) -> None:
        super().__init__(folder, brokers, base_port=None)
        # First: it may fail, and nobody would close what is started below.
        self.older = older_version(self.data_dir / "older")
        self.proxies = BrokerProxies(self)
        self.patient, self.small = self.broker_ids[1], self.broker_ids[-1]
        self.disk = SmallDisk(self.data_dir / "small", disk_bytes)
        self._wrapped: dict[int, WrappedDaemon] = {}
        self.properties["max.connections.per.ip"] = str(MAX_CONNECTIONS)
        self.properties_of[self.patient]["zookeeper.session.timeout.ms"] = str(LONG_SESSION_MS)
        for broker_id in self.broker_ids:
            self.properties_of[broker_id]["log.dirs"] = ",".join(self.log_dirs(broker_id))
            daemon = WrappedDaemon(f"broker {broker_id}", self.broker_folder(broker_id) / "broker.log")
            self.brokers[broker_id] = self._wrapped[broker_id] = daemon
            self.to_run(broker_id, None)
        self._starting = trio.Lock()

    def close(self) -> None:
        self.proxies.close()
        self.disk.close()

    def to_run(self, broker_id: int, version: OlderVersion | None) -> None:
        """From its next start on; None: this one."""
        paths = [str(BROKEN_DISK), version and str(version.sources), os.environ.get("PYTHONPATH")]
        variables = {
            "PYTHONPATH": os.pathsep.join(filter(None, paths)),
            "STRANDLINE_BROKEN_DISK": str(self._disk_file(broker_id)),
        }
        prefix = ["env", *(f"{name}={value}" for name, value in variables.items())]
        self._wrapped[broker_id].prefix = [*(self.disk.enter if broker_id == self.small else ()), *prefix]

    def log_dirs(self, broker_id: int) -> list[str]:
        """As the broker sees them."""
        if broker_id == self.small:
            return [str(self.disk.mount_point)]
        first = super().log_dir(broker_id)
        return [str(first), str(first.with_name("more"))]

    def seen(self, log_dir: str) -> Path:
        """The same folder from outside."""
        return self.disk.seen_from_outside if log_dir == str(self.disk.mount_point) else Path(log_dir)

    def log_of(self, broker_id: int, name: str) -> bytes:
        """The records of a partition, in one of its log directories. PromiseBroken: it is not in exactly one."""
        folders = [self.seen(each) / name for each in self.log_dirs(broker_id)]
        found = [folder for folder in folders if folder.is_dir()]
        if len(found) != 1:
            raise PromiseBroken(f"{name} is in {len(found)} log directories of broker {broker_id}")
        return b"".join(path.read_bytes() for path in sorted(found[0].glob("*.log")))

    # --- disks ------------------------------------------------------------------------------------------------------

    def break_disk(self, broker_id: int, **how: object) -> None:
        """how: what `support/broken_disk` reads."""
        file = self._disk_file(broker_id)
        self._beside_disk_file(broker_id, "struck").unlink(missing_ok=True)
        unfinished = file.with_suffix(".unfinished")
        unfinished.write_text(json.dumps(how))
        unfinished.replace(file)

    def heal_disk(self, broker_id: int) -> None:
        self._disk_file(broker_id).unlink()

    def disk_errors(self, broker_id: int) -> list[tuple[str, str]]:
        """(operation, path) of each that the broker had since its disk was broken."""
        file = self._beside_disk_file(broker_id, "struck")
        lines = file.read_text().splitlines() if file.exists() else []
        return [(operation, path) for operation, _, path in (line.partition(" ") for line in lines)]

    def _beside_disk_file(self, broker_id: int, what: str) -> Path:
        return self._disk_file(broker_id).with_name(f"broken-disk.{what}")

    def _disk_file(self, broker_id: int) -> Path:
        return self.broker_folder(broker_id) / "broken-disk"

    def runs(self, broker_id: int) -> str:
        """Where the process imported `strandline` from, as it told itself; empty: it did not tell."""
        process, file = self.brokers[broker_id].id, self._beside_disk_file(broker_id, "runs")
        lines = file.read_text().splitlines() if process and file.exists() else []
        told = dict(line.split(" ", 1) for line in lines)
        return told.get(str(process.pid), "")

    # --- for tasks --------------------------------------------------------------------------------------------------

    async def killed(self, *brokers: int) -> None:
        """As when their processes are gone: who connects is refused, too."""
        for broker_id in brokers:
            await off_loop(self.kill_broker, broker_id)
            self.proxies.before[broker_id].refuse()

    async def stopped(self, broker_id: int) -> int | None:
        """Its exit code after SIGTERM, −9 where it did not end within a minute."""
        code = await off_loop(self.stop_broker, broker_id, 60.0)
        self.proxies.before[broker_id].refuse()
        return code

    async def launched(self, broker_id: int) -> None:
        """The process; it does not serve yet."""
        self.proxies.before[broker_id].let_through()
        async with self._starting:
            await off_loop(partial(self.start_broker, broker_id, wait=False))

    async def serving(self, broker_id: int) -> None:
        """Start it, where it does not run, until it serves: who starts while ZooKeeper is away may give up."""
        with trio.fail_after(STARTS_WITHIN_S):
            while True:
                if not self.brokers[broker_id].is_alive:
                    await self.launched(broker_id)
                try:
                    await off_loop(self.wait_ready, STARTS_WITHIN_S, [broker_id])
                    return
                except ProcessFailed:
                    await trio.sleep(RETRY_S)

    # --- the network ------------------------------------------------------------------------------------------------

    def places(self) -> list[str]:
        return [*map(str, self.broker_ids), ZOOKEEPER, CLIENT]

    def cut(self, one: str, *others: str) -> None:
        for other in others:
            self.proxies.way(one, other).cut()
            self.proxies.way(other, one).cut()

    def heal(self, one: str, *others: str) -> None:
        for other in others:
            self.proxies.way(one, other).heal()
            self.proxies.way(other, one).heal()
