"""Whole brokers under load and blows that a seed draws; in the end every promise is held against every disk.

`Plan.draw(seed)` is all that chance decides, as data: who writes what, and a list of blows with their times. The run
itself is deterministic. What must hold after everybody is back and everything healed:

* Every partition is led, its ISR is whole, and its replicas are equal, byte for byte, from where all of them begin.
* A record that was acknowledged with acks=all stands at its offset in every replica. It may be missing only if it was
  deleted (DeleteRecords, a topic that was created anew), or if it is *gone*: a loss of power, or of a disk, took it
  from the last disk that had it. Nothing is flushed on its own, so a power loss takes all that was not synced.
* A record that was acknowledged with acks=1 may be missing also if the broker that acknowledged it was struck then or
  later while it led (killed, without power, paused, cut off, or stopped with nobody in sync to take over), or led no
  longer than a follower in sync may lag.
* Nothing stands in a log that was not sent to this topic, in this life of it; and what DeleteRecords answered holds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import trio

from strandline.client import TrioAdmin, TrioProducer
from strandline.client.errors import ClientError
from strandline.protocol.types import NO_BROKER
from strandline.protocol.znodes import TOPICS_PATH
from strandline.testkit.cluster import MemoryCluster
from strandline.testkit.inspection import log_bytes
from support.random_plan import BROKERS, STREAMS, Ack, Blow, Plan, Stream
from support.trial import Broken, records_on

LAG_S = 2.0
COME_TO_REST_S = 90.0


class RandomTrial:
    """One run of a plan on a running cluster."""

    def __init__(self, plan: Plan, cluster: MemoryCluster, admin: TrioAdmin) -> None:
        self.plan = plan
        self.cluster = cluster
        self.streams = {name: Stream(name, acks, minimum) for name, (acks, minimum) in STREAMS.items()}
        self.lost_with_one_ack = 0
        self._admin = admin
        self._busy: set[int] = set()
        self._strikes: list[tuple[int, float, float, str]] = []
        """(broker, from when, until when) it was struck, and for which topic; empty: for all."""
        self._led: dict[str, list[tuple[float, int]]] = {name: [] for name in STREAMS}
        self._over = False

    # --- the run -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        for stream in self.streams.values():
            await self._create(stream)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._watch_leaders)
            async with trio.open_nursery() as writers, trio.open_nursery() as blows:
                for name in self.streams:
                    writers.start_soon(self._write, name)
                started = trio.current_time()
                for blow in self.plan.blows:
                    await trio.sleep_until(started + blow.at_s)
                    blows.start_soon(self._strike, blow)
                await trio.sleep(1)
                self._over = True
            nursery.cancel_scope.cancel()
        await self._heal()
        self._judge()

    async def _write(self, name: str) -> None:
        settings: dict[str, int] = {
            "linger_ms": 0,
            "delivery_timeout_ms": 4_000,
            "request_timeout_ms": 1_500,
            "max_block_ms": 2_000,
        }
        async with self.cluster.producer(acks=STREAMS[name][0], **settings) as producer, trio.open_nursery() as nursery:
            while not self._over:
                stream = self.streams[name]
                if stream.is_open and stream.in_flight < 5:
                    stream.in_flight += 1
                    nursery.start_soon(self._send, producer, stream)
                await trio.sleep(self.plan.pause_s)

    async def _send(self, producer: TrioProducer, stream: Stream) -> None:
        stream.sent += 1
        value = b"%s/%d/%d" % (stream.name.encode(), stream.life, stream.sent)
        try:
            delivery = await producer.send(stream.name, value, partition=0)
            offset = (await delivery).offset
        except ClientError:
            return
        finally:
            stream.in_flight -= 1
        leaders = [broker for broker in BROKERS if self.cluster.leads(broker, stream.partition)]
        leader = leaders[0] if len(leaders) == 1 and leaders[0] not in self._busy else NO_BROKER
        before = stream.acked.get(offset)
        if before is not None:
            stream.replaced.append((offset, before))
            if stream.acks == "all" and offset not in stream.gone:
                raise Broken(f"{stream.partition}: offset {offset} was given out twice: {before.value!r}, {value!r}")
        stream.acked[offset] = Ack(value, trio.current_time(), leader)
        stream.gone.discard(offset)

    async def _watch_leaders(self) -> None:
        while True:
            for name, told in self._led.items():
                leader = self._leader(self.streams[name])
                if not told or told[-1][1] != leader:
                    told.append((trio.current_time(), leader))
            await trio.sleep(0.05)

    def _leader(self, stream: Stream) -> int:
        path = f"{TOPICS_PATH}/{stream.name}/partitions/0/state"
        return self.cluster.leader(stream.partition) if self.cluster.zookeeper.tree.exists(path) else NO_BROKER

    # --- blows -------------------------------------------------------------------------------------------------------

    async def _strike(self, blow: Blow) -> None:
        cluster, broker = self.cluster, blow.broker
        match blow.kind:
            case "create anew":
                await self._create_anew(self.streams[blow.topic])
            case "delete records":
                await self._delete_records(self.streams[blow.topic])
            case "cut" | "cut both":
                self._note_strike(blow, broker)
                self._note_strike(blow, blow.other)
                (cluster.cut if blow.kind == "cut" else cluster.cut_both)(broker, blow.other)
                await trio.sleep(blow.seconds)
                cluster.heal(broker, blow.other)
            case "zookeeper" if cluster.nodes[broker].is_up and broker not in self._busy:
                self._busy.add(broker)
                self._note_strike(blow, broker)
                cluster.cut_from_zookeeper(broker)
                await trio.sleep(blow.seconds)
                cluster.heal_zookeeper(broker)
                self._busy.discard(broker)
            case "expire" if broker in cluster.registered() and cluster.nodes[broker].is_up:
                self._note_strike(blow, broker)
                cluster.expire_session(broker)
            case _ if cluster.nodes[broker].is_up and broker not in self._busy:
                self._busy.add(broker)
                await self._strike_broker(blow)
                self._busy.discard(broker)

    def _note_strike(self, blow: Blow, broker: int, topic: str = "") -> None:
        self._strikes.append((broker, trio.current_time(), trio.current_time() + blow.seconds + LAG_S, topic))

    async def _strike_broker(self, blow: Blow) -> None:
        cluster, broker = self.cluster, blow.broker
        if blow.kind != "stop":
            self._note_strike(blow, broker)
        for stream in self.streams.values() if blow.kind == "stop" else ():
            if self._leader(stream) == broker and self.cluster.isr(stream.partition) == [broker]:
                self._note_strike(blow, broker, stream.name)
        if blow.kind == "pause":
            cluster.pause(broker)
            await trio.sleep(blow.seconds)
            cluster.resume(broker)
            return
        before = {name: self._copies(stream) for name, stream in self.streams.items()}
        match blow.kind:
            case "kill":
                cluster.crash(broker)
            case "power":
                cluster.lose_power(broker)
            case "wipe":
                cluster.crash(broker)
                cluster.replace_disk(broker)
                if broker in cluster.registered():
                    cluster.expire_session(broker)
            case "stop":
                await cluster.stop(broker)
        for name, stream in self.streams.items():
            after = self._copies(stream) if blow.kind in ("power", "wipe") else before[name]
            stream.gone |= {
                offset for offset in before[name] if offset in after and before[name][offset] and not after[offset]
            }
            if blow.kind == "wipe":
                stream.wiped.add(broker)
                stream.deleted_below = 0 if len(stream.wiped) == len(BROKERS) else stream.deleted_below
        await trio.sleep(blow.seconds)
        await cluster.start_broker(broker)

    def _copies(self, stream: Stream) -> dict[int, set[int]]:
        disks = {broker: records_on(node.disk, stream.partition) for broker, node in self.cluster.nodes.items()}
        return {
            offset: {broker for broker, found in disks.items() if found.get(offset) == ack.value}
            for offset, ack in stream.acked.items()
        }

    async def _delete_records(self, stream: Stream) -> None:
        if not stream.acked or not stream.is_open:
            return
        below = max(stream.acked) // 2
        stream.asked_to_delete_below = max(stream.asked_to_delete_below, below)
        stream.wiped = set()
        try:
            answered = await self._admin.delete_records({stream.partition: below}, timeout_ms=3_000)
        except ClientError:
            return
        low_watermark = answered[stream.partition]
        if isinstance(low_watermark, int):
            known_to_nobody = len(stream.wiped) == len(BROKERS)
            stream.deleted_below = 0 if known_to_nobody else max(stream.deleted_below, low_watermark)

    async def _create_anew(self, stream: Stream) -> None:
        if not stream.is_open:
            return
        stream.is_open = False
        while stream.in_flight:
            await trio.sleep(0.05)
        path = f"{TOPICS_PATH}/{stream.name}"

        def is_there() -> bool:
            return self.cluster.zookeeper.tree.exists(path) is not None

        await self._persist(lambda: self._admin.delete_topic(stream.name, timeout_ms=3_000), lambda: not is_there())
        new = Stream(stream.name, stream.acks, stream.minimum, stream.life + 1)
        await self._create(new)
        self.streams[stream.name] = new

    async def _create(self, stream: Stream) -> None:
        path = f"{TOPICS_PATH}/{stream.name}"
        first = 1 + (stream.life + len(stream.name) + stream.minimum) % 3
        replicas = [first, first % 3 + 1, (first + 1) % 3 + 1]
        configs = {"min.insync.replicas": str(stream.minimum)}
        await self._persist(
            lambda: self._admin.create_topic(stream.name, assignments={0: replicas}, configs=configs, timeout_ms=3_000),
            lambda: self.cluster.zookeeper.tree.exists(path) is not None,
        )

    async def _persist(self, action: Callable[[], Awaitable[object]], is_done: Callable[[], bool]) -> None:
        """Repeat what faults keep from being done."""
        while not is_done():
            try:
                await action()
            except ClientError:
                pass
            await trio.sleep(0.2)

    # --- the end -----------------------------------------------------------------------------------------------------

    async def _heal(self) -> None:
        """Everybody is up again already: a blow ends with that."""
        self.cluster.network.heal()

        def is_whole(stream: Stream) -> bool:
            if self._leader(stream) == NO_BROKER or self.cluster.isr(stream.partition) != list(BROKERS):
                return False
            logs = self.cluster.logs(stream.partition)
            return len(logs) == len(BROKERS) and len({log.log_end_offset for log in logs.values()}) == 1

        with trio.move_on_after(COME_TO_REST_S):
            while not all(map(is_whole, self.streams.values())):
                await trio.sleep(0.1)
        for stream in self.streams.values():
            if self.plan.strategy == "none" and self._waits_for_an_operator(stream):
                continue
            if not is_whole(stream):
                logs = {
                    b: (log.log_start_offset, log.log_end_offset)
                    for b, log in self.cluster.logs(stream.partition).items()
                }
                raise Broken(f"{stream.partition} is not whole: {self.cluster.state(stream.partition)}, logs {logs}")

    def _waits_for_an_operator(self, stream: Stream) -> bool:
        """Everybody who was in sync may have lost data."""
        state = self.cluster.state(stream.partition)
        return state.leader == NO_BROKER and not state.elr and set(state.isr) <= set(state.lossy)

    def _judge(self) -> None:
        for stream in self.streams.values():
            if self._leader(stream) == NO_BROKER:
                continue
            logs = self.cluster.logs(stream.partition)
            for broker, log in logs.items():
                if not stream.deleted_below <= log.log_start_offset <= stream.asked_to_delete_below:
                    bounds = f"{stream.deleted_below} was answered, {stream.asked_to_delete_below} asked for"
                    where = f"on broker {broker} at {log.log_start_offset}"
                    raise Broken(f"{stream.partition} begins {where}; {bounds}")
                self._judge_replica(stream, broker, log.log_start_offset)
            common = max(log.log_start_offset for log in logs.values())
            if len({log_bytes(log, log.log_end_offset, common) for log in logs.values()}) != 1:
                raise Broken(f"{stream.partition}: replicas differ")

    def _judge_replica(self, stream: Stream, broker: int, log_start: int) -> None:
        records = records_on(self.cluster.nodes[broker].disk, stream.partition)
        prefix = b"%s/%d/" % (stream.name.encode(), stream.life)
        for offset, value in records.items():
            if value is None or not value.startswith(prefix):
                raise Broken(
                    f"{stream.partition}: {value!r} at {offset} of broker {broker} was not sent to life {stream.life}"
                )
        for offset, ack in [*stream.acked.items(), *stream.replaced]:
            if offset < log_start or offset in stream.gone or records.get(offset) == ack.value:
                continue
            if stream.acks == "all" and (offset, ack) in stream.replaced:
                continue  # it was gone then
            if stream.acks == 1 and self._may_be_lost(stream, ack):
                self.lost_with_one_ack += 1
                continue
            raise Broken(f"{stream.partition}: {ack} at {offset} is {records.get(offset)!r} on broker {broker}")

    def _may_be_lost(self, stream: Stream, ack: Ack) -> bool:
        """Acknowledged by one broker alone, which was struck then or before it had led to the end, or led no longer
        than its followers may lag."""
        if ack.leader == NO_BROKER:
            return True
        moved = [at_s for at_s, leader in self._led[stream.name] if at_s >= ack.at_s - 0.1 and leader != ack.leader]
        ended_s = min(moved, default=float("inf"))
        if ended_s <= ack.at_s + LAG_S:
            return True
        return any(
            broker == ack.leader and from_s <= ended_s and until_s >= ack.at_s and topic in ("", stream.name)
            for broker, from_s, until_s, topic in self._strikes
        )


async def run_plan(plan: Plan) -> RandomTrial:
    """Under trio's `MockClock`. Broken: a promise does not hold."""
    properties = {
        "replica.lag.time.max.ms": str(int(LAG_S * 1000)),
        "replica.fetch.wait.max.ms": "500",
        "unclean.recovery.strategy": plan.strategy,
        "auto.create.topics.enable": "false",
        "default.replication.factor": "3",
    }
    async with (
        MemoryCluster(len(BROKERS), seed=plan.seed, config=properties).running() as cluster,
        cluster.admin(request_timeout_ms=2_000) as admin,
    ):
        trial = RandomTrial(plan, cluster, admin)
        await trial.run()
        return trial
