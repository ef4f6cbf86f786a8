"""Oracles that see every log at once, after each event that matters (safety.md §1: 1, 2, 5, 14, 21; by way of 2 also 3
and 4).

```
 Log._write, truncate_…       ──> shadow of that log        ┐
 Leadership.advance_…         ──> what is committed         ├─ held against each other ──> world.violated
 Partition.become_leader      ──> has the leader all of it? ┘
```
Who calls is told by the node of the present task. What happened on disks while a broker was away is read when its log
is seen again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import contextmanager
from functools import partial
from typing import Any

from strandline.broker.replication.partition import Partition
from strandline.protocol.records.batch import scan
from strandline.protocol.types import TopicId, TopicPartition
from strandline.storage.cleaning.plan import Result
from strandline.storage.cleaning.takeover import LentSegments, Superseded
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.node_tasks import NODE
from strandline.testkit.simulation.shadows import Committed, Copy, Entry, Shadow
from strandline.testkit.simulation.world import World
from strandline.testkit.simulation.wrapping import Wrap, wrapped

Life = tuple[TopicPartition, TopicId | None]
ADVANCING = ("append", "append_checked", "record_follower_fetch", "_advance_and_complete")
"""Methods of a partition that may raise its high watermark."""


class GodView:
    def __init__(self, world: World) -> None:
        self.world = world
        self.committed: dict[Life, Committed] = {}
        self._lives: dict[TopicPartition, TopicId | None] = {}
        """Of the present life of each partition that anybody led."""
        self._seen: dict[tuple[str, TopicPartition], tuple[Log, Shadow]] = {}
        self._half_known: set[tuple[str, TopicPartition]] = set()
        """Logs whose truncation did not end: they have more than is known, perhaps."""

    # --- what happens ------------------------------------------------------------------------------------------------

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Watch everything that brokers of this process do to logs and high watermarks."""
        with wrapped(
            Wrap(Log, "_write", self._write),
            Wrap(Log, "truncate_to", self._truncate),
            Wrap(Log, "truncate_fully_and_start_at", partial(self._truncate, keeps=False)),
            Wrap(LentSegments, "take_over", self._replace),
            Wrap(LogManager, "delete", self._delete),
            Wrap(Partition, "become_leader", self._lead),
            *(Wrap(Partition, name, self._advance) for name in ADVANCING),
        ):
            yield

    def _write(self, original: Callable[..., Any], log: Log, views: Sequence[memoryview], *rest: Any) -> None:
        shadow = self._shadow(log)
        original(log, views, *rest)
        for view in views:
            for entry in _entries(view):
                self._check_order(log, shadow, entry)
                shadow.append(entry)

    def _truncate(self, original: Callable[..., Any], log: Log, offset: int, *, keeps: bool = True) -> None:
        """keeps: what lies below `offset`."""
        shadow, life, place = self._shadow(log), _life(log), _place(log)
        # Where it ends half-way so much is left at least: the rest is read when the log is seen again.
        self._seen[place] = log, shadow.up_to(offset if keeps else -1)
        self._half_known.add(place)
        original(log, offset)
        self._seen[place] = log, shadow
        self._half_known.discard(place)
        kept_from = log.log_start_offset
        dropped = shadow.cut(log.log_end_offset if log.log_end_offset > kept_from else kept_from)
        if log.log_end_offset == kept_from:
            shadow.entries.clear()
        if not dropped:
            return
        self.world.sometimes["records were cut off"] += 1
        committed = self.committed.get(life)
        if committed is None or not self._is_in_sync(log.topic_partition):
            return
        kept_from = max(kept_from, committed.compacted_below)
        lost = [entry for entry in dropped if committed.has(entry) and entry.base_offset >= kept_from]
        if lost:
            self._violated(log, f"is in sync and cuts off {lost[0]}, which is committed", 1)

    def _replace(self, original: Callable[..., Any], lent: LentSegments, result: Result) -> None:
        """The cleaner's result takes the place of these segments, or will at the next start where that fails half-way:
        what stands behind them stays as it was."""
        log = lent._log
        committed = self._committed(_life(log))
        end_offset = max(source.end_offset for source in lent.sources if source.base_offset in result.sources)
        before, committed.compacted_below = committed.compacted_below, max(committed.compacted_below, end_offset)
        self._seen.pop(_place(log), None)
        try:
            original(lent, result)
        except Superseded:
            committed.compacted_below = before
            raise

    def _delete(self, original: Callable[..., Any], manager: LogManager, tp: TopicPartition) -> None:
        original(manager, tp)
        self._seen.pop((_node(), tp), None)

    def _lead(self, original: Callable[..., Any], partition: Partition, *rest: Any) -> None:
        original(partition, *rest)
        log = partition.log
        self._lives[log.topic_partition] = log.topic_id
        self.world.sometimes["elections"] += 1
        committed, epoch = self._committed(_life(log)), partition.leader_epoch
        committed.begin(epoch, log.log_end_offset)
        missing = committed.missing_in(self._shadow(log), log.log_start_offset, epoch)
        if missing is not None:
            self._violated(log, f"leads epoch {epoch} without {missing}, which is committed", 1)
        if log.last_epoch != epoch:
            self._violated(log, f"leads epoch {epoch}, and its log knows {log.last_epoch}", 5)
        self._commit(partition)

    def _advance(self, original: Callable[..., Any], partition: Partition, *rest: Any, **options: Any) -> Any:
        result = original(partition, *rest, **options)
        if partition.leadership is not None:
            self._commit(partition)
        return result

    def _commit(self, partition: Partition) -> None:
        """A leader's high watermark may have moved."""
        log, high_watermark = partition.log, partition.high_watermark
        committed = self._committed(_life(log))
        known_below = committed.known_below(partition.leader_epoch)
        if high_watermark <= known_below:
            return
        since, shadow = max(known_below, log.log_start_offset), self._shadow(log)
        entries = list(shadow.between(since, high_watermark))
        for member, other, start_offset in self._others_in_sync(log):
            start_offset = max(start_offset, committed.compacted_below)
            lacking = next((each for each in entries if each.next_offset > start_offset and not other.has(each)), None)
            if lacking is not None:
                text = f"commits up to {high_watermark}, and {member}, which is in sync, lacks {lacking}"
                self._violated(log, text, 2)
        committed.grow(entries, high_watermark, partition.leader_epoch)

    # --- disasters ---------------------------------------------------------------------------------------------------

    def disk_changed(self, node: str) -> None:
        """What was known of its logs is not what its disk has now."""
        for key in [key for key in self._seen if key[0] == node]:
            del self._seen[key]

    def committed_of(self, log: Log) -> Committed:
        """What is committed of the life of the partition that this log is of."""
        return self._committed(_life(log))

    def high_watermark(self, tp: TopicPartition) -> int:
        """The highest that is promised of its present life."""
        return self._committed((tp, self._lives[tp])).high_watermark if tp in self._lives else 0

    def copies_left(self, tp: TopicPartition, left: Set[Copy], gone: Set[Copy], start_offset: int) -> set[Copy]:
        """left: some log has it; gone: a disaster took the last of them. Returns those that were committed.
        start_offset: where the last log begins. What was deleted below it no log has, perhaps, and who leads as a last
        resort may never have had it."""
        if tp not in self._lives:
            return set()
        committed = self._committed((tp, self._lives[tp]))
        lost = {copy for copy in gone if committed.has_copy(copy)}
        committed.lose_from(min((copy.offset for copy in lost), default=committed.high_watermark))
        first = min((copy.offset for copy in left), default=committed.high_watermark)
        committed.keep({(copy.offset, copy.epoch) for copy in left}, max(first, start_offset))
        return lost

    # --- who has what ------------------------------------------------------------------------------------------------

    def lacks(self, broker_id: int, tp: TopicPartition) -> Entry | None:
        """The first committed batch that this broker's log is known not to have."""
        known = self._seen.get((self.world.cluster.nodes[broker_id].name, tp))
        if known is None or tp not in self._lives or known[0].topic_id != self._lives[tp]:
            return None
        return self._committed(_life(known[0])).missing_in(known[1], known[0].log_start_offset)

    def _others_in_sync(self, log: Log) -> Iterator[tuple[str, Shadow, int]]:
        """(node, its log's shadow, where that begins) of each member of the ISR, as ZooKeeper has it, that has a log of
        this life; whoever may have lost data was taken out of the ISR, or does not count for a while."""
        own = _node()
        state = self.world.states.get(log.topic_partition)
        if state is None:
            return
        for member in state.isr:
            name = self.world.cluster.nodes[member].name
            known = self._seen.get((name, log.topic_partition))
            if known is not None and name != own and known[0].topic_id == log.topic_id and member not in state.lossy:
                yield name, known[1], known[0].log_start_offset

    def _is_in_sync(self, tp: TopicPartition) -> bool:
        state, name = self.world.states.get(tp), _node()
        return state is not None and any(self.world.cluster.nodes[member].name == name for member in state.isr)

    def _committed(self, life: Life) -> Committed:
        return self.committed.setdefault(life, Committed())

    def _shadow(self, log: Log) -> Shadow:
        place = _place(log)
        known = self._seen.get(place)
        if known is None or known[0] is not log or place in self._half_known:
            shadow = Shadow(self._stored(log))
            if known is not None and known[0].topic_id == log.topic_id:
                self._check_same(log, known[1], shadow)
            self._seen[place] = known = log, shadow
            self._half_known.discard(place)
        return known[1]

    def _stored(self, log: Log) -> Iterator[Entry]:
        """What its files have, past all faults of the disk; what that has altered counts as it was written."""
        (node,) = (node for node in self.world.cluster.nodes.values() if node.name == _node())
        damage = self.world.damage.get(node.broker_id, ())
        for segment in log.segments:
            content, _, _ = segment.file_paths()
            data = node.disk.read(content)
            for each in damage:
                if each.path == content and each.in_content(data):
                    data = each.undone(data)
            yield from _entries(memoryview(data)[: segment.size_bytes])

    # --- checks ------------------------------------------------------------------------------------------------------

    def _check_order(self, log: Log, shadow: Shadow, entry: Entry) -> None:
        last = shadow.entries[-1] if shadow.entries else None
        if last is not None and entry.base_offset < last.next_offset:
            self._violated(log, f"appends {entry} behind {last}", 14)
        if last is not None and entry.epoch < last.epoch:
            self._violated(log, f"appends {entry} behind {last}", 5)

    def _check_same(self, log: Log, before: Shadow, after: Shadow) -> None:
        """The process was killed, or stopped: the page cache has all that it had written."""
        kept_from = max(log.log_start_offset, self._committed(_life(log)).compacted_below)
        lost = next((each for each in before.between(kept_from, before.end_offset) if not after.has(each)), None)
        if lost is not None:
            self._violated(log, f"was loaded without {lost}, which its last life had written", 21)

    def _violated(self, log: Log, text: str, invariant: int) -> None:
        self.world.violated(f"invariant {invariant}: {log.topic_partition}: {_node()} {text}")


def _node() -> str:
    node = NODE.get()
    return node.name if node is not None else ""


def _place(log: Log) -> tuple[str, TopicPartition]:
    return _node(), log.topic_partition


def _life(log: Log) -> Life:
    return log.topic_partition, log.topic_id


def _entries(view: memoryview) -> Iterator[Entry]:
    for _, header in scan(view):
        yield Entry(header.base_offset, header.next_offset, header.partition_leader_epoch, header.crc)
