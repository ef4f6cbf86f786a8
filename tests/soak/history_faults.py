"""How each fault of `history_script` is done to real processes, and undone."""

from __future__ import annotations

import random
import resource
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from soak.history_disks import FailingDisk
from soak.history_pressure import Pressure
from soak.history_script import KIND_OF
from soak.history_site import HistoryCluster
from soak.soak_run import off_loop
from strandline.client import TrioAdmin, TrioConsumer
from strandline.client.errors import ClientError
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from strandline.testkit.simulation.script import Fault
from support.proxies import ZOOKEEPER
from support.zookeeper_sessions import end_session_of

LOOK_INTERVAL_S = 0.5
SLOW_FSYNC_S, SLOW_LINK_S, SLOW_ZOOKEEPER_S, LATE_ZOOKEEPER_S = 2.0, 0.05, 1.5, 5.0
DROP_INTERVAL_S = 0.5
FREE_BYTES, GROWTH_BYTES = 64 * 2**10, 4 * 2**10
SPARE_DESCRIPTORS = 3
OLD_RECORDS_INTERVAL_MS = 500
DISK_OPERATIONS = ["read", "write", "fsync", "rename"]
MOVED_WITHIN_S = 5.0
ADMIN_SETTINGS = {"request_timeout_ms": 3_000, "default_api_timeout_ms": 5_000}

ENDED_BEFORE_IT_SERVED = (0, 130, -signal.SIGTERM)
"""Exit codes: in order, before it was a broker, before it was a command."""

Strike = Callable[["HistoryFaults", Fault, list[int]], Awaitable[str | None]]
_STRIKES: dict[str, Strike] = {}


def _kind(name: str) -> Callable[[Strike], Strike]:
    def register(strike: Strike) -> Strike:
        _STRIKES[name] = strike
        return strike

    return register


@dataclass(slots=True)
class Struck:
    """A fault that was done. note: what else is told of it."""

    fault: Fault
    began_s: float
    ended_s: float = float("inf")
    note: str = ""


class HistoryFaults:
    """Strikes one cluster. partitions: which are moved. tell: is given a line about each fault."""

    def __init__(
        self, cluster: HistoryCluster, partitions: list[TopicPartition], seed: int, tell: Callable[[str], None]
    ) -> None:
        self.cluster = cluster
        self.partitions = partitions
        self.done: list[Struck] = []
        self.passed_over: Counter[str] = Counter()
        """By kind: what they would have struck was struck already, or was not there."""
        self.findings: list[str] = []
        self._tell = tell
        self._random = random.Random(f"storms {seed}")
        self._now: set[str] = set()
        """What is struck just now."""
        self._storms = 0

    @property
    def under_way(self) -> list[str]:
        return [struck.fault.kind for struck in self.done if struck.ended_s == float("inf")]

    async def run(self, script: Iterator[Fault], is_over: Callable[[], bool]) -> None:
        """Until the script ends, or it is over; returns once each fault has been undone."""
        began_s = trio.current_time()
        async with trio.open_nursery() as watching:
            watching.start_soon(self._watch)
            async with trio.open_nursery() as nursery:
                for fault in script:
                    while trio.current_time() < began_s + fault.at_s and not is_over():
                        await trio.sleep(min(LOOK_INTERVAL_S, max(0.0, began_s + fault.at_s - trio.current_time())))
                    if is_over():
                        break
                    nursery.start_soon(self._strike, fault)
            watching.cancel_scope.cancel()

    async def _watch(self) -> None:
        """A broker that ends although nothing is done to it is a finding."""
        while True:
            await trio.sleep(LOOK_INTERVAL_S)
            for broker_id, daemon in self.cluster.brokers.items():
                if str(broker_id) not in self._now and not daemon.is_alive:
                    self.findings.append(f"broker {broker_id} ended by itself: {daemon.last_log_line()}")
                    self._now.add(str(broker_id))
                    await self.cluster.serving(broker_id)
                    self._now.discard(str(broker_id))

    async def _strike(self, fault: Fault) -> None:
        brokers = await self._brokers(fault)
        struck = {*map(str, brokers)} or {fault.target or fault.kind}
        is_nobody = fault.target == "controller" and not brokers
        if is_nobody or not self._now.isdisjoint(struck) or not all(map(self._is_alive, brokers)):
            self.passed_over[fault.kind] += 1
            return
        this = Struck(fault, trio.current_time())
        self.done.append(this)
        self._tell(str(fault))
        self._now |= struck
        try:
            this.note = await _STRIKES[fault.kind](self, fault, brokers) or ""
        finally:
            self._now -= struck
            this.ended_s = trio.current_time()
        if this.note:
            self._tell(f"          # {fault.kind} {fault.target}: {this.note}")

    async def _brokers(self, fault: Fault) -> list[int]:
        if fault.target == "all":
            return self.cluster.broker_ids
        if fault.target == "controller":
            found = await off_loop(self.cluster.metadata, [])
            return [found.controller_id] if found and found.controller_id > 0 else []
        return [int(each) for each in fault.target.replace("-", ">").split(">") if each.isdigit()]

    def _is_alive(self, broker: int) -> bool:
        return self.cluster.brokers[broker].is_alive

    def _pid(self, broker: int) -> int:
        process = self.cluster.brokers[broker].id
        assert process is not None
        return process.pid

    # --- processes --------------------------------------------------------------------------------------------------

    @_kind("kill")
    @_kind("kill all")
    async def kill(self, fault: Fault, brokers: list[int]) -> None:
        await self.cluster.killed(*brokers)
        await trio.sleep(fault.seconds)
        async with trio.open_nursery() as nursery:
            for broker in brokers:
                nursery.start_soon(self.cluster.serving, broker)

    @_kind("stop")
    @_kind("roll")
    async def stop(self, fault: Fault, brokers: list[int]) -> None:
        for broker in brokers:
            if code := await self.cluster.stopped(broker):
                self.findings.append(f"broker {broker} ended with exit code {code} after SIGTERM ({fault})")
            await trio.sleep(fault.seconds)
            await self.cluster.serving(broker)

    @_kind("roll versions")
    async def roll_versions(self, fault: Fault, brokers: list[int]) -> str:
        older = self.cluster.older
        if older is None:
            return "no earlier commit is here"
        for version in (older, None):
            for broker in brokers:
                self.cluster.to_run(broker, version)
                await self.stop(fault, [broker])
        return f"{older.commit}, and back"

    @_kind("stop starting")
    async def stop_starting(self, fault: Fault, brokers: list[int]) -> str:
        (broker,) = brokers
        await self.cluster.killed(broker)
        await self.cluster.launched(broker)
        await trio.sleep(fault.seconds)
        code = await self.cluster.stopped(broker)
        if code not in ENDED_BEFORE_IT_SERVED:
            self.findings.append(f"broker {broker} ended with exit code {code} after SIGTERM during its start")
        await self.cluster.serving(broker)
        return f"exit code {code}"

    @_kind("stop moving")
    async def stop_moving(self, fault: Fault, brokers: list[int]) -> None:
        async with TrioAdmin(self.cluster.proxies.bootstrap_servers, **ADMIN_SETTINGS) as admin:
            await self._move_all(admin)
        await self.stop(fault, brokers)

    @_kind("pause")
    @_kind("pause long")
    @_kind("pause controller")
    async def pause(self, fault: Fault, brokers: list[int]) -> None:
        for broker in brokers:
            await off_loop(self.cluster.pause_broker, broker)
            await trio.sleep(fault.seconds)
            self.cluster.resume_broker(broker)

    # --- the network ------------------------------------------------------------------------------------------------

    @_kind("isolate")
    async def isolate(self, fault: Fault, brokers: list[int]) -> None:
        await self._cut_off(fault, brokers[0], self.cluster.places())

    @_kind("cut both")
    async def cut_both(self, fault: Fault, brokers: list[int]) -> None:
        await self._cut_off(fault, brokers[0], [str(brokers[1])])

    @_kind("cut controller")
    async def cut_controller(self, fault: Fault, brokers: list[int]) -> None:
        for broker in brokers:
            await self._cut_off(fault, broker, [str(each) for each in self.cluster.broker_ids])

    @_kind("zookeeper silent")
    async def zookeeper_silent(self, fault: Fault, brokers: list[int]) -> None:
        await self._cut_off(fault, brokers[0], [ZOOKEEPER])

    async def _cut_off(self, fault: Fault, broker: int, places: list[str]) -> None:
        others = [place for place in places if place != str(broker)]
        self.cluster.cut(str(broker), *others)
        await trio.sleep(fault.seconds)
        self.cluster.heal(str(broker), *others)

    @_kind("cut")
    async def cut(self, fault: Fault, brokers: list[int]) -> None:
        await self._one_way(fault, *map(str, brokers))

    @_kind("zookeeper deaf")
    async def zookeeper_deaf(self, fault: Fault, brokers: list[int]) -> None:
        await self._one_way(fault, ZOOKEEPER, str(brokers[0]))

    async def _one_way(self, fault: Fault, source: str, destination: str) -> None:
        way = self.cluster.proxies.way(source, destination)
        way.cut()
        await trio.sleep(fault.seconds)
        way.heal()

    @_kind("slow link")
    async def slow_link(self, fault: Fault, brokers: list[int]) -> None:
        one, other = map(str, brokers)
        ways = [self.cluster.proxies.way(one, other), self.cluster.proxies.way(other, one)]
        for way in ways:
            way.delay_s = SLOW_LINK_S
        await trio.sleep(fault.seconds)
        for way in ways:
            way.heal()

    @_kind("drop")
    async def drop(self, fault: Fault, brokers: list[int]) -> None:
        with trio.move_on_after(fault.seconds):
            while True:
                self.cluster.proxies.drop(*map(str, brokers))
                await trio.sleep(DROP_INTERVAL_S)

    @_kind("slow readers")
    async def slow_readers(self, fault: Fault, brokers: list[int]) -> str:
        (broker,) = brokers
        pressure = Pressure(self.cluster.address(broker), self._pid(broker), self.partitions[0])
        grown_bytes = await pressure.last(fault.seconds)
        if not self._is_alive(broker):
            daemon = self.cluster.brokers[broker]
            self.findings.append(
                f"broker {broker} ended under pressure, exit code {daemon.exit_code}: {daemon.last_log_line()}"
            )
            await self.cluster.serving(broker)
        small, large = pressure.requests
        told = f"{pressure.readers:,} readers, {small:,} and {large:,} requests of who reads no answer"
        return f"{told}; {grown_bytes / 2**20:.0f} MiB more"

    # --- ZooKeeper --------------------------------------------------------------------------------------------------

    @_kind("expire")
    async def expire(self, fault: Fault, brokers: list[int]) -> str:
        return f"ended: {await self._expire(brokers[0])}"

    @_kind("expire twice")
    async def expire_twice(self, fault: Fault, brokers: list[int]) -> str:
        first = await self._expire(brokers[0])
        with trio.move_on_after(MOVED_WITHIN_S):  # until it has registered anew
            while not await self._expire(brokers[0]):
                await trio.sleep(DROP_INTERVAL_S / 10)
            return f"ended: {first}, and again"
        return f"ended: {first}, and not again"

    async def _expire(self, broker: int) -> bool:
        try:
            return await off_loop(end_session_of, broker, self.cluster.zookeeper.address)
        except Exception:  # ZooKeeper is away, or the session is over: kazoo has an error for each
            return False

    @_kind("zookeeper reply")
    async def zookeeper_reply(self, fault: Fault, brokers: list[int]) -> None:
        await self._lost(fault, ZOOKEEPER, str(brokers[0]))

    @_kind("zookeeper request")
    async def zookeeper_request(self, fault: Fault, brokers: list[int]) -> None:
        await self._lost(fault, str(brokers[0]), ZOOKEEPER)

    async def _lost(self, fault: Fault, source: str, destination: str) -> None:
        """What is sent that way never arrives: the connection breaks before it may."""
        way = self.cluster.proxies.way(source, destination)
        way.cut()
        await trio.sleep(fault.seconds)
        self.cluster.proxies.drop(source, destination)
        way.heal()

    @_kind("zookeeper down")
    async def zookeeper_down(self, fault: Fault, brokers: list[int]) -> None:
        await off_loop(self.cluster.stop_zookeeper)
        await trio.sleep(fault.seconds)
        await off_loop(self.cluster.start_zookeeper)

    @_kind("zookeeper slow")
    async def zookeeper_slow(self, fault: Fault, brokers: list[int]) -> None:
        await self._answers_late(fault, brokers[0], SLOW_ZOOKEEPER_S)

    @_kind("zookeeper late")
    async def zookeeper_late(self, fault: Fault, brokers: list[int]) -> None:
        await self._answers_late(fault, brokers[0], LATE_ZOOKEEPER_S)

    async def _answers_late(self, fault: Fault, broker: int, delay_s: float) -> None:
        way = self.cluster.proxies.way(ZOOKEEPER, str(broker))
        way.delay_s = delay_s
        await trio.sleep(fault.seconds)
        way.heal()

    # --- disks and limits -------------------------------------------------------------------------------------------

    @_kind("slow disk")
    async def slow_disk(self, fault: Fault, brokers: list[int]) -> None:
        await self._worse_disk(fault, brokers[0], fsync_late_s=SLOW_FSYNC_S)

    @_kind("stuck disk")
    async def stuck_disk(self, fault: Fault, brokers: list[int]) -> None:
        await self._worse_disk(fault, brokers[0], stuck=True)

    async def _worse_disk(self, fault: Fault, broker: int, **how: object) -> None:
        self.cluster.break_disk(broker, **how)
        await trio.sleep(fault.seconds)
        self.cluster.heal_disk(broker)

    @_kind("read errors")
    async def read_errors(self, fault: Fault, brokers: list[int]) -> str:
        """Followers and readers of the newest need no disk: somebody reads what is old, too."""
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._read_old_records)
            note = await self.disk_errors(fault, brokers)
            nursery.cancel_scope.cancel()
        return note

    async def _read_old_records(self) -> None:
        async with TrioConsumer(self.cluster.proxies.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            await consumer.assign(self.partitions)
            while True:
                for tp in self.partitions:
                    consumer.seek(tp, 0)
                with suppress(ClientError):
                    await consumer.poll_columns(timeout_ms=OLD_RECORDS_INTERVAL_MS)
                await trio.sleep(OLD_RECORDS_INTERVAL_MS / 1000)

    @_kind("write errors")
    @_kind("fsync errors")
    @_kind("rename errors")
    async def disk_errors(self, fault: Fault, brokers: list[int]) -> str:
        log_dir = self._random.choice(self.cluster.log_dirs(brokers[0]))
        return await self._failing_disk(brokers[0]).strike([fault.kind.split()[0]], [log_dir], fault.seconds)

    @_kind("dead disks")
    async def dead_disks(self, fault: Fault, brokers: list[int]) -> str:
        log_dirs = self.cluster.log_dirs(brokers[0])
        return await self._failing_disk(brokers[0]).strike(DISK_OPERATIONS, log_dirs, fault.seconds)

    def _failing_disk(self, broker: int) -> FailingDisk:
        return FailingDisk(self.cluster, broker, lambda: self._now == {str(broker)}, self.findings.append)

    @_kind("disk full")
    async def disk_full(self, fault: Fault, brokers: list[int]) -> None:
        await off_loop(self.cluster.disk.fill_but, FREE_BYTES)
        await trio.sleep(fault.seconds)
        await off_loop(self.cluster.disk.make_room)

    @_kind("file limit")
    async def file_limit(self, fault: Fault, brokers: list[int]) -> str:
        (broker,) = brokers
        largest = await off_loop(largest_file, *map(self.cluster.seen, self.cluster.log_dirs(broker)))
        return await self._limited(fault, broker, resource.RLIMIT_FSIZE, largest + GROWTH_BYTES)

    @_kind("descriptor limit")
    async def descriptor_limit(self, fault: Fault, brokers: list[int]) -> str:
        (broker,) = brokers
        opened = len(list(Path(f"/proc/{self._pid(broker)}/fd").iterdir()))
        return await self._limited(fault, broker, resource.RLIMIT_NOFILE, opened + SPARE_DESCRIPTORS)

    async def _limited(self, fault: Fault, broker: int, which: int, limit: int) -> str:
        pid = self._pid(broker)
        soft, hard = resource.prlimit(pid, which)
        resource.prlimit(pid, which, (limit, hard))
        await trio.sleep(fault.seconds)
        daemon = self.cluster.brokers[broker]
        if daemon.is_alive:
            resource.prlimit(pid, which, (soft, hard))
            return "it lives"
        said = f"exit code {daemon.exit_code}: {daemon.last_log_line()}"
        await self.cluster.serving(broker)
        return said

    # --- storms -----------------------------------------------------------------------------------------------------

    @_kind("topics")
    async def topics(self, fault: Fault, brokers: list[int]) -> str:
        done: Counter[str] = Counter()
        async with TrioAdmin(self.cluster.proxies.bootstrap_servers, **ADMIN_SETTINGS) as admin:
            with trio.move_on_after(fault.seconds):
                while True:
                    self._storms += 1
                    await self._one_topic(admin, f"storm-{self._storms}", done)
        return ", ".join(f"{count} x {what}" for what, count in done.items())

    async def _one_topic(self, admin: TrioAdmin, name: str, done: Counter[str]) -> None:
        steps: dict[str, Callable[[], Awaitable[object]]] = {
            "created": lambda: admin.create_topic(name, num_partitions=3, replication_factor=3),
            "altered": lambda: admin.alter_configs(ConfigResource.TOPIC, name, {"retention.ms": "100000"}),
            "grown": lambda: admin.create_partitions(name, 5),
            "deleted": lambda: admin.delete_topic(name),
        }
        for what, step in steps.items():
            try:
                await step()
                done[what] += 1
            except ClientError as error:
                done[type(error).__name__] += 1
                await trio.sleep(DROP_INTERVAL_S)

    @_kind("moves")
    async def moves(self, fault: Fault, brokers: list[int]) -> None:
        async with TrioAdmin(self.cluster.proxies.bootstrap_servers, **ADMIN_SETTINGS) as admin:
            with trio.move_on_after(fault.seconds):
                while True:
                    await self._move_all(admin)
                    await trio.sleep(self._random.random())
                    with suppress(ClientError):
                        if self._random.random() < 0.3:
                            ongoing = await admin.list_partition_reassignments()
                            await admin.alter_partition_reassignments(dict.fromkeys(ongoing))
                        await admin.elect_leaders()

    async def _move_all(self, admin: TrioAdmin) -> None:
        """Whoever is gone just now cannot be given a replica: such moves are refused, and left out."""
        target = {tp: self._random.sample(self.cluster.broker_ids, 3) for tp in self.partitions}
        with suppress(ClientError):
            await admin.alter_partition_reassignments(target)


def largest_file(*folders: Path) -> int:
    """Bytes, of all that are called .log below: only these grow without an end."""
    sizes = []
    for folder in folders:
        for path in folder.rglob("*.log"):
            with suppress(FileNotFoundError):  # it may be gone by now
                sizes.append(path.stat().st_size)
    return max(sizes)


assert set(_STRIKES) == set(KIND_OF)
