"""How each fault of `history_script` is done to real processes, and undone."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import trio

from soak.history_limits import DisksAndLimits
from soak.history_pressure import AT_LEAST, SLOW_READERS, Pressure
from soak.history_script import KIND_OF
from soak.history_site import STARTS_WITHIN_S, HistoryCluster
from soak.history_strikes import STRIKES, kind
from soak.soak_run import off_loop
from strandline.client import TrioAdmin
from strandline.client.errors import ClientError
from strandline.protocol.messages import ConfigResource
from strandline.protocol.types import TopicPartition
from strandline.testkit.simulation.script import Fault
from support.proxies import ZOOKEEPER
from support.zookeeper_sessions import end_session_of

LOOK_INTERVAL_S = 0.5
SLOW_LINK_S, SLOW_ZOOKEEPER_S, LATE_ZOOKEEPER_S = 0.05, 1.5, 5.0
DROP_INTERVAL_S = 0.5
MOVED_WITHIN_S = 5.0
ADMIN_SETTINGS = {"request_timeout_ms": 3_000, "default_api_timeout_ms": 5_000}

NOT_BACK = f"a broker that was started does not serve within {STARTS_WITHIN_S} s"
ENDED_BEFORE_IT_SERVED = (0, 130, -signal.SIGTERM)
"""Exit codes: in order, before it was a broker, before it was a command."""


@dataclass(slots=True)
class Struck:
    """A fault that was done. note: what else is told of it."""

    fault: Fault
    began_s: float
    ended_s: float = float("inf")
    note: str = ""


class HistoryFaults(DisksAndLimits):
    """Strikes one cluster. tell: is given a line about each fault."""

    def __init__(
        self, cluster: HistoryCluster, partitions: list[TopicPartition], seed: int, tell: Callable[[str], None]
    ) -> None:
        super().__init__(cluster, partitions, seed)
        self.done: list[Struck] = []
        self.passed_over: Counter[str] = Counter()
        """By kind: what they would have struck was struck already, or was not there."""
        self._tell = tell
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
                    try:
                        await self.cluster.serving(broker_id)
                    except trio.TooSlowError:
                        self.findings.append(f"broker {broker_id}: {NOT_BACK}")
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
            this.note = await STRIKES[fault.kind](self, fault, brokers) or ""
        except* trio.TooSlowError:
            self.findings.append(f"{fault}: {NOT_BACK}")
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

    # --- processes --------------------------------------------------------------------------------------------------

    @kind("kill")
    @kind("kill all")
    async def kill(self, fault: Fault, brokers: list[int]) -> None:
        await self.cluster.killed(*brokers)
        await trio.sleep(fault.seconds)
        async with trio.open_nursery() as nursery:
            for broker in brokers:
                nursery.start_soon(self.cluster.serving, broker)

    @kind("stop")
    @kind("roll")
    async def stop(self, fault: Fault, brokers: list[int]) -> None:
        for broker in brokers:
            if code := await self.cluster.stopped(broker):
                self.findings.append(f"broker {broker} ended with exit code {code} after SIGTERM ({fault})")
            await trio.sleep(fault.seconds)
            await self.cluster.serving(broker)

    @kind("roll versions")
    async def roll_versions(self, fault: Fault, brokers: list[int]) -> str:
        older = self.cluster.older
        if older is None:
            return "no earlier commit is here"
        seen = 0
        for version in (older, None):
            for broker in brokers:
                self.cluster.to_run(broker, version)
                await self.stop(fault, [broker])
                runs = self.cluster.runs(broker)
                if not runs or Path(runs).is_relative_to(older.sources) != (version is older):
                    wanted = f"{older.commit} in {older.sources}" if version else "this version"
                    self.findings.append(f"broker {broker} was to run {wanted}, it runs {runs or 'nobody knows what'}")
                elif version is older:
                    seen += 1
        return f"{older.commit} ran on {seen} of {len(brokers)}, and back"

    @kind("stop starting")
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

    @kind("stop moving")
    async def stop_moving(self, fault: Fault, brokers: list[int]) -> None:
        async with TrioAdmin(self.cluster.proxies.bootstrap_servers, **ADMIN_SETTINGS) as admin:
            await self._move_all(admin)
        await self.stop(fault, brokers)

    @kind("pause")
    @kind("pause long")
    @kind("pause controller")
    async def pause(self, fault: Fault, brokers: list[int]) -> None:
        for broker in brokers:
            await off_loop(self.cluster.pause_broker, broker)
            await trio.sleep(fault.seconds)
            self.cluster.resume_broker(broker)

    # --- the network ------------------------------------------------------------------------------------------------

    @kind("isolate")
    async def isolate(self, fault: Fault, brokers: list[int]) -> None:
        await self._cut_off(fault, brokers[0], self.cluster.places())

    @kind("cut both")
    async def cut_both(self, fault: Fault, brokers: list[int]) -> None:
        await self._cut_off(fault, brokers[0], [str(brokers[1])])

    @kind("cut controller")
    async def cut_controller(self, fault: Fault, brokers: list[int]) -> None:
        for broker in brokers:
            await self._cut_off(fault, broker, [str(each) for each in self.cluster.broker_ids])

    @kind("zookeeper silent")
    async def zookeeper_silent(self, fault: Fault, brokers: list[int]) -> None:
        await self._cut_off(fault, brokers[0], [ZOOKEEPER])

    async def _cut_off(self, fault: Fault, broker: int, places: list[str]) -> None:
        others = [place for place in places if place != str(broker)]
        self.cluster.cut(str(broker), *others)
        await trio.sleep(fault.seconds)
        self.cluster.heal(str(broker), *others)

    @kind("cut")
    async def cut(self, fault: Fault, brokers: list[int]) -> None:
        await self._one_way(fault, *map(str, brokers))

    @kind("zookeeper deaf")
    async def zookeeper_deaf(self, fault: Fault, brokers: list[int]) -> None:
        await self._one_way(fault, ZOOKEEPER, str(brokers[0]))

    async def _one_way(self, fault: Fault, source: str, destination: str) -> None:
        way = self.cluster.proxies.way(source, destination)
        way.cut()
        await trio.sleep(fault.seconds)
        way.heal()

    @kind("slow link")
    async def slow_link(self, fault: Fault, brokers: list[int]) -> None:
        one, other = map(str, brokers)
        ways = [self.cluster.proxies.way(one, other), self.cluster.proxies.way(other, one)]
        for way in ways:
            way.delay_s = SLOW_LINK_S
        await trio.sleep(fault.seconds)
        for way in ways:
            way.heal()

    @kind("drop")
    async def drop(self, fault: Fault, brokers: list[int]) -> None:
        with trio.move_on_after(fault.seconds):
            while True:
                self.cluster.proxies.drop(*map(str, brokers))
                await trio.sleep(DROP_INTERVAL_S)

    @kind("slow readers")
    async def slow_readers(self, fault: Fault, brokers: list[int]) -> str:
        (broker,) = brokers
        pressure = Pressure(self.cluster.address(broker), self._pid(broker), self.partitions[0])
        grown_bytes = await pressure.last(fault.seconds)
        if not self._is_alive(broker):
            self.findings.append(f"broker {broker} ended under pressure, {self._how_it_ended(broker)}")
            await self.cluster.serving(broker)
        elif pressure.readers < AT_LEAST:
            self.findings.append(f"broker {broker} lives and took only {pressure.readers} of {SLOW_READERS} readers")
        small, large = pressure.requests
        told = f"{pressure.readers:,} readers, {small:,} and {large:,} requests of who reads no answer"
        return f"{told}; {grown_bytes / 2**20:.0f} MiB more"

    # --- ZooKeeper --------------------------------------------------------------------------------------------------

    @kind("expire")
    async def expire(self, fault: Fault, brokers: list[int]) -> str:
        return f"ended: {await self._expire(brokers[0])}"

    @kind("expire twice")
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

    @kind("zookeeper reply")
    async def zookeeper_reply(self, fault: Fault, brokers: list[int]) -> None:
        await self._lost(fault, ZOOKEEPER, str(brokers[0]))

    @kind("zookeeper request")
    async def zookeeper_request(self, fault: Fault, brokers: list[int]) -> None:
        await self._lost(fault, str(brokers[0]), ZOOKEEPER)

    async def _lost(self, fault: Fault, source: str, destination: str) -> None:
        """What is sent that way never arrives: the connection breaks before it may."""
        way = self.cluster.proxies.way(source, destination)
        way.cut()
        await trio.sleep(fault.seconds)
        self.cluster.proxies.drop(source, destination)
        way.heal()

    @kind("zookeeper down")
    async def zookeeper_down(self, fault: Fault, brokers: list[int]) -> None:
        await off_loop(self.cluster.stop_zookeeper)
        await trio.sleep(fault.seconds)
        await off_loop(self.cluster.start_zookeeper)

    @kind("zookeeper slow")
    async def zookeeper_slow(self, fault: Fault, brokers: list[int]) -> None:
        await self._answers_late(fault, brokers[0], SLOW_ZOOKEEPER_S)

    @kind("zookeeper late")
    async def zookeeper_late(self, fault: Fault, brokers: list[int]) -> None:
        await self._answers_late(fault, brokers[0], LATE_ZOOKEEPER_S)

    async def _answers_late(self, fault: Fault, broker: int, delay_s: float) -> None:
        way = self.cluster.proxies.way(ZOOKEEPER, str(broker))
        way.delay_s = delay_s
        await trio.sleep(fault.seconds)
        way.heal()

    # --- storms -----------------------------------------------------------------------------------------------------

    @kind("topics")
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

    @kind("moves")
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


assert set(STRIKES) == set(KIND_OF)
