"""What may be lost, by the god's view of all disks: nothing else is excused.

* A record is *gone* once a disaster (power, a disk that is replaced or damaged) took its last copy from the replicas'
  disks. So is what was compacted away or deleted above the end that a disaster left: its offset is given out again.
* What DeleteRecords answered is forgotten once the last replica that knew it got another disk, or once somebody leads,
  as a last resort, who does not know it.
* A record that one broker alone acknowledged (acks=1) may be lost if that broker was struck, then or later while it
  still led, or led no longer than a follower in sync may lag behind, or had been replaced without knowing of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager

import trio

from strandline.protocol.types import NO_BROKER, TopicPartition
from strandline.storage.disk.checkpoints import LOG_START_OFFSETS
from strandline.storage.segments.segment import LOG_SUFFIX
from strandline.testkit.clock import common_time
from strandline.testkit.cluster import LOG_DIR, SESSION_TIMEOUT_MS
from strandline.testkit.disk import MemoryDisk
from strandline.testkit.inspection import epochs_and_records_on
from strandline.testkit.simulation.anomalies import LOOK_INTERVAL_S, Replaced, offsets_stream
from strandline.testkit.simulation.god_view import GodView
from strandline.testkit.simulation.history import NEVER_S, Outcome, Stream, Write
from strandline.testkit.simulation.shadows import Copy
from strandline.testkit.simulation.world import World

REGISTERED_FOR_S = SESSION_TIMEOUT_MS / 1000
"""So long a broker that died counts as alive, at most."""


class Losses:
    def __init__(self, world: World, god_view: GodView) -> None:
        self._world = world
        self._god_view = god_view
        self._cluster = world.cluster
        self._strikes: list[tuple[int, float, float]] = []
        """(broker, from when, until when)."""
        self._led: dict[Stream, list[tuple[float, int]]] = defaultdict(list)
        self._replaced: dict[Stream, list[Replaced]] = defaultdict(list)
        self._stopped: set[tuple[Stream, int]] = set()
        """Who leads for himself, and stood still when somebody looked last."""
        self._taken: dict[tuple[int, Stream], tuple[float, Set[Copy]]] = {}
        """What the last disaster took from the disk of that broker, and when."""
        self.disasters_s: dict[Stream, list[float]] = defaultdict(list)
        world.excuses.disasters_s, world.excuses.replaced = self.disasters_s, self._replaced
        world.excuses.offsets_partitions = int(world.options.config["offsets.topic.num.partitions"])

    @property
    def lag_s(self) -> float:
        """So long a follower may lag behind and be in sync, at most: its leader looks twice in the time that it may."""
        return 1.5 * int(self._world.options.config["replica.lag.time.max.ms"]) / 1000

    def strike(self, broker: int, seconds: float) -> None:
        now_s = common_time()
        self._strikes.append((broker, now_s, now_s + seconds + self.lag_s))

    async def watch_leaders(self) -> None:
        while True:
            leading = {broker: self._cluster.led_by(broker) for broker in self._cluster.nodes}
            for stream in self._streams():
                believers = self._believers(stream, leading)
                self.note_leader(stream, self._world.leader(stream.tp), common_time(), believers)
            await trio.sleep(LOOK_INTERVAL_S)

    def _streams(self) -> list[Stream]:
        """Of all partitions that live, those of committed offsets among them."""
        streams = [stream for life in self._world.topics.values() for stream in life.streams]
        return [*streams, *map(offsets_stream, range(self._world.excuses.offsets_partitions))]

    def _believers(self, stream: Stream, leading: Mapping[int, Set[TopicPartition]]) -> list[int]:
        """Who leads for himself and can answer, or could since somebody looked last."""
        found = []
        for broker, led in leading.items():
            stood_still = (stream, broker) in self._stopped
            self._stopped.discard((stream, broker))
            leads = stream.tp in led
            if leads and self._cluster.nodes[broker].tasks.is_frozen:
                self._stopped.add((stream, broker))
            elif leads or stood_still:
                found.append(broker)
        return found

    def note_leader(self, stream: Stream, leader: int, at_s: float, believers: Sequence[int] = ()) -> None:
        """leader: as ZooKeeper has it by then. believers: who takes itself for the leader."""
        led = self._led[stream]
        if not led or led[-1][1] != leader:
            if led:
                self._replaced[stream].append(Replaced(at_s, at_s))
            led.append((at_s, leader))
        for broker in believers:
            if broker != leader:
                self._replaced[stream].append(Replaced(at_s, self._replaced_since_s(stream, broker, at_s)))

    def _replaced_since_s(self, stream: Stream, broker: int, at_s: float) -> float:
        """When somebody was first seen to lead after it."""
        led = self._led[stream]
        last = max((number for number, (_, leader) in enumerate(led) if leader == broker), default=None)
        return at_s if last is None or last + 1 == len(led) else led[last + 1][0]

    @contextmanager
    def by_disaster(self, brokers: Sequence[int], damaged: Set[Stream] = frozenset()) -> Iterator[None]:
        """What the block does to these brokers' disks may take the last copy of a record. damaged: was lost to damage
        that nobody had met yet, and is seen to be gone from now on."""
        streams = self._streams()
        before = {stream: self._copies(stream) for stream in streams}
        of_each = {(broker, stream): self._copies(stream, [broker]).keys() for broker in brokers for stream in streams}
        disks = [node.disk for node in self._cluster.nodes.values()]
        yield
        if disks != [node.disk for node in self._cluster.nodes.values()]:
            self._forget_heads()
        for (broker, stream), had in of_each.items():
            self._taken[broker, stream] = common_time(), had - self._copies(stream, [broker]).keys()
        for broker in brokers:
            self._god_view.disk_changed(self._cluster.nodes[broker].name)
        for stream in streams:
            self._note_left(stream, before[stream].keys(), brokers, is_damaged=stream in damaged)

    def note_departed(self, tp: TopicPartition, departed: Sequence[int]) -> None:
        """These leave the ISR, and have to go: the controller says so, who asked who stays and was answered, or they
        give up their own claim. Who stays may have died with its disk right before that, and nobody knows yet: then
        that disaster takes what only those have who go."""
        staying = self._replicas(tp)
        for stream in [each for each in self._streams() if each.tp == tp]:
            found = [self._taken.get((broker, stream), (-NEVER_S, set())) for broker in staying]
            taken = {copy for at_s, copies in found if at_s >= common_time() - REGISTERED_FOR_S for copy in copies}
            if left := taken & self._copies(stream, departed).keys():
                self._note_left(stream, left | self._copies(stream).keys(), staying)

    def _note_left(self, stream: Stream, before: Set[Copy], hit: Sequence[int], *, is_damaged: bool = False) -> None:
        """What of `before` no disk of a replica has any more is gone."""
        after = self._copies(stream)
        gone = before - after.keys()
        served = {copy for copy, is_served in after.items() if is_served}
        start_offset = max((_log_start(disk, stream.tp) for disk in self._disks(stream.tp)), default=0)
        promised = self._god_view.high_watermark(stream.tp)
        lost = self._god_view.copies_left(stream.tp, served, gone, start_offset)
        is_promised_less = self._god_view.high_watermark(stream.tp) < promised
        left = {copy.value for copy in after}
        if not {*hit}.isdisjoint(self._replicas(stream.tp)):
            self._world.excuses.gone |= self._given_out_again(stream, before, after.keys())
        self._world.excuses.gone |= {copy.value for copy in gone if copy in lost or copy.value not in left}
        if lost or is_promised_less or (gone and is_damaged):
            self.disasters_s[stream].append(common_time())
            self._world.sometimes["records gone with their last copy"] += len(lost)

    def _given_out_again(self, stream: Stream, before: Set[Copy], after: Set[Copy]) -> set[bytes]:
        """What stood above where the longest log that is left ends, whether or not it had been deleted or compacted
        away by then; where none is left, nobody knows where the log was. Where something stood says who wrote it, or
        who read it."""
        since, until = (max((copy.offset for copy in copies), default=-1) + 1 for copies in (after, before))
        history = self._world.history
        told = [
            (each.offset, each.value) for each in history.writes if each.stream == stream and each.ended_s < NEVER_S
        ]
        told += [record for poll in history.polls if poll.stream == stream for record in poll.records]
        return {value for offset, value in told if not after or since <= offset < until}

    def note_last_resort(self, tp: TopicPartition, leader: int) -> None:
        """Who has everything is gone, and with it, perhaps, what was answered as deleted since."""
        start_offset = _log_start(self._cluster.nodes[leader].disk, tp)
        for stream, head in self._world.heads.items():
            if stream.tp == tp:
                head.answered = min(head.answered, start_offset)

    def _forget_heads(self) -> None:
        """Of what was deleted, whatever no disk knows any more."""
        for stream, head in self._world.heads.items():
            known = [_log_start(disk, stream.tp) for disk in self._disks(stream.tp)]
            head.answered = min(head.answered, max(known))

    def _copies(self, stream: Stream, brokers: Sequence[int] | None = None) -> dict[Copy, bool]:
        """What stands on the disk of at least one replica (or of these brokers), and not behind damage there; whether a
        log reads it, which begins no later."""
        copies: dict[Copy, bool] = {}
        for broker in self._replicas(stream.tp) if brokers is None else brokers:
            disk, end_offset = self._cluster.nodes[broker].disk, self._whole_below(broker, stream)
            start_offset = _log_start(disk, stream.tp)
            for epoch, record in epochs_and_records_on(disk, stream.tp):
                if record.offset < end_offset:
                    copy = Copy(record.offset, epoch, record.value or b"")
                    copies[copy] = copies.get(copy, False) or record.offset >= start_offset
        return copies

    def _whole_below(self, broker: int, stream: Stream) -> float:
        disk, damage = self._cluster.nodes[broker].disk, self._world.damage.get(broker, ())
        seen = [each.whole_below for each in damage if each.stream == stream and each.is_seen(disk)]
        return min(seen, default=float("inf"))

    def _disks(self, tp: TopicPartition) -> list[MemoryDisk]:
        """Of its replicas. Who is none any more may have a log for a while, and nobody will ask for it."""
        return [self._cluster.nodes[broker].disk for broker in self._replicas(tp)]

    def _replicas(self, tp: TopicPartition) -> Sequence[int]:
        """As ZooKeeper has them, without those that are removed and cannot lead any more: their logs may go any moment.
        Of a topic that it does not have, whoever may have a log of it."""
        topic = self._world.topic_znode(tp.topic)
        replicas = topic.partitions.get(tp.partition) if topic is not None else None
        if topic is None or replicas is None:
            return list(self._cluster.nodes)
        state, removing = self._world.states.get(tp), topic.removing_replicas.get(tp.partition, ())
        may_lead = {*state.isr, *state.elr, state.leader} if state is not None else set()
        return [broker for broker in replicas if broker not in removing or broker in may_lead]

    def weak(self) -> set[bytes]:
        """Values that one broker alone had acknowledged and was allowed to lose."""
        return {
            write.value
            for write in self._world.history.writes
            if write.acks != -1 and write.outcome is Outcome.OK and self._may_be_lost(write)
        }

    def _may_be_lost(self, write: Write) -> bool:
        led = self._led[write.stream]
        at_s = write.ended_s
        leaders = [leader for since_s, leader in led if since_s <= at_s]
        leader = leaders[-1] if leaders else NO_BROKER
        if leader == NO_BROKER or write.acks == 0 or self._was_replaced(write, leader):
            return True
        moved = [since_s for since_s, each in led if since_s >= write.began_s - LOOK_INTERVAL_S and each != leader]
        ended_s = min(moved, default=float("inf"))
        if ended_s <= at_s + self.lag_s:
            return True
        return any(
            broker == leader and from_s <= ended_s and until_s >= write.began_s
            for broker, from_s, until_s in self._strikes
        )

    def _was_replaced(self, write: Write, leader: int) -> bool:
        """Whether it was acknowledged by who did not lead any more; it may have been, where nobody knows by whom."""
        if write.told_by != NO_BROKER:
            return write.told_by != leader
        from_s, until_s = write.began_s - LOOK_INTERVAL_S, write.ended_s + LOOK_INTERVAL_S
        return any(from_s <= each.seen_s <= until_s for each in self._replaced[write.stream])


def _log_start(disk: MemoryDisk, tp: TopicPartition) -> int:
    """As a start would have it: by the checkpoint, which is written before a deletion is acknowledged, or by the first
    segment, where that begins later."""
    path = f"{LOG_DIR}/{LOG_START_OFFSETS}"
    lines = disk.read(path).decode().splitlines() if disk.exists(path) else []
    found = [int(line.split()[2]) for line in lines if line.startswith(f"{tp.topic} {tp.partition} ")]
    segments = [
        int(name.removesuffix(LOG_SUFFIX)) for name in disk.names(f"{LOG_DIR}/{tp}") if name.endswith(LOG_SUFFIX)
    ]
    return max([*found, min(segments, default=0)])
