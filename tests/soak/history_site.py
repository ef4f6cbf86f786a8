"""The cluster of `make soak-history`: real brokers behind proxies, each with fsyncs that can be made slow, the last one
on a small disk."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import trio

from soak.soak_run import off_loop
from strandline.cli.cluster import EmbeddedCluster
from strandline.cli.process import ProcessFailed
from support.proxies import CLIENT, ZOOKEEPER, BrokerProxies
from support.small_disk import SmallDisk, WrappedDaemon

SLOW_DISK = Path(__file__).parents[1] / "support" / "slow_disk"
STARTS_WITHIN_S = 300
RETRY_S = 0.5


class HistoryCluster(EmbeddedCluster):
    """To be closed when it has stopped."""

    def __init__(self, folder: Path, brokers: int, disk_bytes: int) -> None:
        super().__init__(folder, brokers, base_port=None)
        self.proxies = BrokerProxies(self)
        self.small = self.broker_ids[-1]
        self.disk = SmallDisk(self.data_dir / "small", disk_bytes)
        self.properties_of[self.small]["log.dirs"] = str(self.disk.mount_point)
        for broker_id in self.broker_ids:
            daemon = WrappedDaemon(f"broker {broker_id}", self.broker_folder(broker_id) / "broker.log")
            path = os.pathsep.join(filter(None, [str(SLOW_DISK), os.environ.get("PYTHONPATH")]))
            slow = [f"PYTHONPATH={path}", f"STRANDLINE_SLOW_DISK={self.delay_file(broker_id)}"]
            daemon.prefix = [*(self.disk.enter if broker_id == self.small else ()), "env", *slow]
            self.brokers[broker_id] = daemon
        self._starting = trio.Lock()

    def close(self) -> None:
        self.proxies.close()
        self.disk.close()

    def log_dir(self, broker_id: int) -> Path:
        return self.disk.seen_from_outside if broker_id == self.small else super().log_dir(broker_id)

    def delay_file(self, broker_id: int) -> Path:
        """Holds by how many seconds each of its fsyncs is late; is missing where none is."""
        return self.broker_folder(broker_id) / "fsync-delay"

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
