"""One partition, its replicas under blows in any order, and what must be left of it: the referee knows every disk.

A *trial* plays moves (`Move`) on a `MemoryCluster`, writes with acks=all in between, and looks at the bytes on all
disks, those of dead brokers, too. Its verdicts:

* An acknowledged record may vanish from the last disk that has it only by the blow itself (power lost, disk replaced):
  such a record is *gone*, nobody can bring it back. Where it vanishes at another time, the brokers have cut it.
* Whoever leads has every acknowledged record that is not gone, at its offset.
* Of a partition that nobody leads the controller knows which brokers are missed. It is led where a broker runs that was
  in sync when the last record was acknowledged, and that has lost nothing since.
* Once all brokers are back, the partition is led, by whole replicas that are equal; only where the strategy of
  recovery is `none` may it stay offline, and an error line says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from strandline.client import TrioProducer
from strandline.client.errors import ClientError
from strandline.controller.partitions.waits import GRACE_S
from strandline.protocol.records import scan
from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.protocol.znodes import CONTROLLER_PATH, PartitionStateZnode
from strandline.storage.manager.orderly_stops import CLEAN_MARKER
from strandline.testkit.cluster import LOG_DIR, MemoryCluster
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.inspection import records_on
from strandline.testkit.zookeeper.client import MemoryCoordination
from support.scenario import T0, cluster_with_topic

REST_S = 0.5
"""Virtual seconds after each move: elections are over, followers have caught up."""
COME_TO_REST_S = 15.0
"""Virtual seconds that this may take, at most, once everybody is back."""
KILL, STOP, POWER, WIPE, RETURN = "kill", "stop", "power", "wipe", "return"
TEAR, RESTORE, EXPIRE = "tear", "restore", "expire"
KAFKA_KEYS = {"controller_epoch", "leader", "version", "leader_epoch", "isr"}
"""What Kafka writes into the znode of a partition's state."""


class Move(NamedTuple):
    """What befalls one broker:

    kill, stop    SIGKILL, SIGTERM
    power, tear   the machine loses power, also that of a broker that is down; nothing that was not synced survives, or
                  all of it but the last record and a half
    wipe          its disk is replaced by an empty one (it must be down)
    save, restore a backup of its disk is made; its disk is replaced by that backup (it must be down)
    return        it starts on what its disk has
    expire        ZooKeeper ends its session
    depose        (no matter which broker) `/controller` is deleted, there is another election
    forget        (no matter which broker) the state znode is left with what Kafka would have written
    """

    kind: str
    broker: int

    def __str__(self) -> str:
        return f"{self.kind} {self.broker}"


def parse_moves(text: str) -> list[Move]:
    """`kill 1, power 3, return 2` → moves."""
    return [Move(kind, int(broker)) for kind, broker in (each.split() for each in text.split(",") if each.strip())]


_WHO = re.compile(r"\b(brokers|replicas \()[^\"]*[0-9]+\b")


class Broken(AssertionError):
    """A promise of replication does not hold; the text says which record, where and after which moves."""


class Trial:
    """See the module. `acked`: offset → value of what was acknowledged; `gone`: offsets that no disk has any more."""

    def __init__(self, cluster: MemoryCluster, producer: TrioProducer, tp: TopicPartition, *, is_patient: bool) -> None:
        """is_patient: after a death nothing else befalls before ZooKeeper has ended the session of who died."""
        self.cluster = cluster
        self.acked: dict[int, bytes] = {}
        self.gone: set[int] = set()
        self.moves: list[Move] = []
        self._producer = producer
        self.topic_partition = tp
        self._is_patient = is_patient
        self._written = 0
        self._led_until = 0
        self._backups: dict[int, MemoryDisk] = {}
        self.untouched = set(cluster.nodes)
        """Who was in sync when the last record was acknowledged, and whose disk has lost nothing since."""

    # --- moves -------------------------------------------------------------------------------------------------------

    def legal_moves(self) -> Iterator[Move]:
        for broker, node in self.cluster.nodes.items():
            if node.is_up:
                yield from (Move(kind, broker) for kind in (KILL, STOP, POWER))
                continue
            yield Move(RETURN, broker)
            if node.disk.exists(LOG_DIR):
                yield Move(WIPE, broker)
                if not node.disk.exists(f"{LOG_DIR}/{CLEAN_MARKER}"):
                    yield Move(POWER, broker)

    async def play(self, move: Move) -> None:
        """The move, a while, a write, a look."""
        self.moves.append(move)
        await self._strike(move)
        if self._is_patient and move.kind in (KILL, POWER, TEAR):
            self._expire(move.broker)
        await self.cluster.rest(REST_S)
        await self.write()
        self.look()
        await self._hear_who_is_missed()

    async def _strike(self, move: Move) -> None:
        cluster, broker = self.cluster, move.broker
        if move.kind == STOP:
            await cluster.stop(broker)
        before = self._copies()
        if move.kind in (POWER, TEAR, WIPE, RESTORE):
            self.untouched.discard(broker)
        match move.kind:
            case "kill":
                cluster.crash(broker)
            case "power" | "tear":
                if move.kind == TEAR:
                    self._tear(broker)
                if cluster.nodes[broker].is_up:
                    cluster.lose_power(broker)
                else:
                    cluster.lose_power_while_down(broker)
            case "wipe":
                cluster.replace_disk(broker)
                self._expire(broker)  # a folder without its name must not be taken for another broker's
            case "save":
                self._backups[broker] = cluster.nodes[broker].disk.copy()
            case "restore":
                cluster.replace_disk(broker, self._backups[broker])
            case "return":
                await cluster.start_broker(broker)
            case "expire":
                self._expire(broker)
            case "depose":
                await self._operate(lambda client: client.delete(CONTROLLER_PATH))
            case "forget":
                await self._operate(self._forget)
                self.untouched.clear()  # nobody knows any more
        if move.kind != RETURN:
            after = self._copies()
            self.gone |= {offset for offset in self.acked if before[offset] and not after[offset]}

    def _expire(self, broker: int) -> None:
        """ZooKeeper ends its session, if it has one."""
        if broker in self.cluster.registered():
            self.cluster.expire_session(broker)

    def _tear(self, broker: int) -> None:
        """All that it wrote has reached the disk, but for the last record and a half."""
        disk = self.cluster.nodes[broker].disk
        disk.sync_everything()
        path = f"{LOG_DIR}/{self.topic_partition.topic}-{self.topic_partition.partition}/{0:020}.log"
        content = disk.read(path)
        positions = [position for position, _ in scan(memoryview(content))]
        disk.write(path, content[: positions[-2] + 30])

    async def _operate(self, action: Callable[[MemoryCoordination], Awaitable[object]]) -> None:
        """An operator's hand in ZooKeeper."""
        operator = self.cluster.zookeeper.client()
        await operator.start()
        await action(operator)
        await operator.close()

    async def _forget(self, operator: MemoryCoordination) -> None:
        path = PartitionStateZnode.path(*self.topic_partition)
        znode = await operator.get(path)
        kept = {key: value for key, value in json.loads(znode.data).items() if key in KAFKA_KEYS}
        await operator.set(path, json.dumps(kept).encode(), znode.stat.version)

    async def write(self) -> None:
        """One record with acks=all, if there is a leader; who knows whether it is taken."""
        if not any(self.cluster.leads(broker, self.topic_partition) for broker in self.cluster.nodes):
            return
        self._written += 1
        value = b"%d" % self._written
        try:
            delivery = await self._producer.send(
                self.topic_partition.topic, value, partition=self.topic_partition.partition
            )
            offset = (await delivery).offset
        except ClientError:
            return
        if offset in self.acked and offset not in self.gone:
            raise Broken(f"{self}: offset {offset} was given out twice")
        self.acked[offset] = value
        self.gone.discard(offset)
        self.untouched = set(self.cluster.isr(self.topic_partition))

    def is_led(self) -> bool:
        leader = self.cluster.leader(self.topic_partition)
        return leader != NO_BROKER and self.cluster.leads(leader, self.topic_partition)

    # --- looking -----------------------------------------------------------------------------------------------------

    @property
    def kept(self) -> dict[int, bytes]:
        """What must be there: acknowledged, and not gone with the last disk that had it."""
        return {offset: value for offset, value in self.acked.items() if offset not in self.gone}

    def _copies(self) -> dict[int, set[int]]:
        """Offset of each acknowledged record → brokers on whose disk it stands."""
        disks = {broker: records_on(node.disk, self.topic_partition) for broker, node in self.cluster.nodes.items()}
        return {
            offset: {broker for broker, found in disks.items() if found.get(offset) == value}
            for offset, value in self.acked.items()
        }

    def look(self) -> None:
        """As it stands. Broken where a promise does not hold."""
        copies = self._copies()
        for offset in self.kept:
            if not copies[offset]:
                raise Broken(f"{self}: the brokers have cut the last copy of offset {offset}")
        state = self.cluster.state(self.topic_partition)
        if self.is_led():
            for offset in self.kept:
                if state.leader not in copies[offset]:
                    raise Broken(
                        f"{self}: broker {state.leader} leads without offset {offset}, "
                        f"which stands on {sorted(copies[offset])}"
                    )

    async def _hear_who_is_missed(self) -> None:
        """Of a partition that nobody leads a controller says whom it waits for. (Of one whose leader's session lives
        nobody knows.)"""
        if self.is_led():
            self._led_until = len(self.cluster.history)
        elif self._is_patient and len(self.down()) < len(self.cluster.nodes):
            await self.cluster.until(lambda: self.is_led() or self.is_missed, f"{self}: who is missed")
            self._look_for_who_could_lead()

    def _look_for_who_could_lead(self) -> None:
        """Broken where nobody leads although somebody could who has everything."""
        able = sorted(self.untouched - set(self.down()))
        if able and not self.is_led():
            raise Broken(
                f"{self}: brokers {able} have everything, and nobody leads: {self.cluster.state(self.topic_partition)}"
            )

    @property
    def is_missed(self) -> bool:
        """Whether the controller knows brokers that must come back."""
        controller = self.cluster.nodes.get(self.cluster.controller_id)
        term = None if controller is None else self.cluster.broker(controller.broker_id).controller.term
        why = None if term is None else term.duties.waits.why(self.topic_partition)
        return why is not None and _WHO.search(why) is not None

    def _is_said(self) -> bool:
        """Whether an error line since the partition was led last names it and whom it waits for."""
        said = [line for line in self.cluster.history[self._led_until :] if '"partitions stay offline"' in line]
        return any(f'"{self.topic_partition}":"' in line and _WHO.search(line) for line in said)

    def down(self) -> list[int]:
        return [broker for broker, node in self.cluster.nodes.items() if not node.is_up]

    async def end(self, order: Iterable[int] | None = None, *, may_stay_offline: bool = False) -> None:
        """Everybody who is down returns in this order, without a pause; what must hold then."""
        cluster, tp = self.cluster, self.topic_partition
        for broker in self.down() if order is None else order:
            self.moves.append(Move(RETURN, broker))
            await cluster.start_broker(broker)
        everybody = sorted(cluster.nodes)
        await self._wait_for(lambda: self.is_led() and cluster.isr(tp) == everybody)
        self.look()
        if not self.is_led():
            if not may_stay_offline:
                raise Broken(f"{self}: all are back and nobody leads: {cluster.state(tp)}")
            await self._hear_who_is_missed()
            self._look_for_who_could_lead()
            await self.cluster.until(self._is_said, f"{self}: a line that says so", within_s=3 * GRACE_S)
            return
        await self.write()
        await self._wait_for(lambda: cluster.isr(tp) == everybody and not self._lacking())
        self.look()
        if cluster.isr(tp) != everybody:
            raise Broken(f"{self}: all are back and the ISR is not whole: {cluster.state(tp)}")
        if self._lacking():
            raise Broken(f"{self}: not every replica has every record: {self._lacking()}")

    async def _wait_for(self, condition: Callable[[], bool]) -> None:
        with trio.move_on_after(COME_TO_REST_S):
            while not condition():
                await self.cluster.rest(0.05)

    def _lacking(self) -> dict[int, set[int]]:
        """Offset of each record that must be there and is not everywhere → who has it."""
        return {
            offset: brokers
            for offset, brokers in self._copies().items()
            if offset in self.kept and len(brokers) < len(self.cluster.nodes)
        }

    def __str__(self) -> str:
        return ", ".join(map(str, self.moves)) or "no move"


@asynccontextmanager
async def trial(replicas: Sequence[int], *, minimum: int, strategy: str, is_patient: bool) -> AsyncIterator[Trial]:
    """A cluster with the partition `T0` on `replicas`, of which the first one leads, and two records in it."""
    properties = {
        "unclean.recovery.strategy": strategy,
        "replica.lag.time.max.ms": "1000",
        "replica.fetch.wait.max.ms": "900",
    }
    async with (
        cluster_with_topic(replicas, min_insync_replicas=minimum, properties=properties) as (cluster, _, _),
        cluster.producer(linger_ms=0, delivery_timeout_ms=3_000, request_timeout_ms=1_500) as producer,
    ):
        begun = Trial(cluster, producer, T0, is_patient=is_patient)
        for _ in range(2):
            await begun.write()
        yield begun
