"""Where a batch of a stream begins and what it reads, by its offsets and by what the cluster holds. Pure.

What is gone is an error or, with failOnDataLoss=false, a warning, and the stream goes on with what is left. The names
of these errors are those of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.spark_connector.errors import (
    AddedPartitionNotFromZero,
    DataLoss,
    EndBehindLatest,
    EndBehindRun,
    InitialOffsetNotFound,
    LostInRun,
    PartitionOffsetChanged,
    PartitionsDeleted,
    PartitionsNotNamed,
)
from strandline.spark_connector.reading.planning import Held, OffsetRange
from strandline.spark_connector.streaming.offsets import StreamOffset

RESTART = "if its brokers are only late to tell of it, restart the query"


@dataclass(frozen=True, slots=True)
class Seen:
    """What the cluster holds of the partitions that the options name. `unnamed`: partitions that the query has read,
    that the options do not name (any more), and that exist."""

    held: Mapping[TopicPartition, Held]
    topic_ids: Mapping[str, TopicId]
    unnamed: frozenset[TopicPartition] = frozenset()

    def whole(self) -> StreamOffset:
        """The offset of a stream that has read everything."""
        return StreamOffset({each: held.latest for each, held in self.held.items()}, self.topic_ids)


@dataclass(frozen=True, slots=True)
class Losses:
    """What to do about data that is gone; `warn` is told what the user allowed."""

    fail_on_data_loss: bool
    warn: Callable[[str], None]

    def tell(self, error: type[DataLoss], text: str) -> None:
        if self.fail_on_data_loss:
            raise error(text)
        self.warn(text)


def begin(
    start: StreamOffset, seen: Seen, losses: Losses, target: StreamOffset | None = None
) -> dict[TopicPartition, int]:
    """Where the next batch begins in each partition: where the last one ended, in new partitions at the beginning.
    `target`: what a run with Trigger.AvailableNow is to read.

    Raises PartitionsDeleted, PartitionsNotNamed, LostInRun, PartitionOffsetChanged, AddedPartitionNotFromZero.
    """
    anew = {topic for topic, each in seen.topic_ids.items() if not start.is_same_topic(topic, each)}
    for topic in sorted(anew):
        losses.tell(
            PartitionsDeleted,
            f"Topic {topic!r} was deleted and created anew since the last batch: what was left of the old one is gone, "
            "and the new one is read from its beginning",
        )
    in_run = set(target.positions) if target is not None else set()
    lost = in_run - set(seen.held)
    if lost:
        losses.tell(
            LostInRun, f"Partitions {_names(lost)} were there when this run began and do not exist any more: {RESTART}"
        )
    if seen.unnamed:
        losses.tell(
            PartitionsNotNamed,
            f"Partitions {_names(seen.unnamed)} were read by this query and are no longer named by its options "
            "(subscribe, subscribePattern or assign): once it has gone on without them it does not know how far it "
            "was, and would read them from their beginning if they were named again",
        )
    missing = set(start.positions) - set(seen.held) - seen.unnamed - in_run
    if missing:
        losses.tell(
            PartitionsDeleted, f"Partitions {_names(missing)} were read by this query and do not exist any more"
        )
    result = {}
    for partition, held in sorted(seen.held.items()):
        position = None if partition.topic in anew else start.positions.get(partition)
        if position is None:
            position = _first_of(partition, held, losses)
        elif position > held.latest:
            losses.tell(
                PartitionOffsetChanged,
                f"{partition} was read up to offset {position} and ends at {held.latest} now: records that this query "
                "has read were lost there",
            )
            position = held.latest
        result[partition] = position
    return result


def behind_lost(
    begins: Mapping[TopicPartition, int], upto: Mapping[TopicPartition, int], seen: Seen
) -> dict[TopicPartition, int]:
    """From where the offsets of the next batch count towards its limits, where loss is allowed: from what its partition
    still holds, but not from behind `upto`, which is all that the batch may reach.

    The batch itself begins where the last one ended, so `ranges` tells of what is gone, once. If that counted, too, a
    stream far behind its log start would make one empty batch after the other until it is there.
    """
    return {each: max(at, min(upto[each], seen.held[each].earliest)) for each, at in begins.items()}


def _names(partitions: Iterable[TopicPartition]) -> str:
    """The first of them, in words."""
    names = sorted(partitions)
    return ", ".join(map(str, names[:20])) + (", …" if len(names) > 20 else "")


def _first_of(partition: TopicPartition, held: Held, losses: Losses) -> int:
    """A partition that the stream has not met before is read from its first record on."""
    if held.earliest > 0:
        losses.tell(
            AddedPartitionNotFromZero,
            f"{partition} is new to this query and begins at offset {held.earliest}: what stood before is gone",
        )
    return held.earliest


def ranges(
    start: StreamOffset, end: StreamOffset, seen: Seen, losses: Losses, target: StreamOffset | None = None
) -> list[OffsetRange]:
    """What the batch from `start` to `end` reads: the same whenever it is asked for, also after a restart, as far as
    the cluster still holds it. `target` as above. Raises DataLoss where it does not."""
    result = []
    for partition, end_offset in sorted(end.positions.items()):
        topic_id = end.topic_ids.get(partition.topic, NO_TOPIC_ID)
        held = seen.held.get(partition)
        if held is None or not end.is_same_topic(partition.topic, seen.topic_ids.get(partition.topic, NO_TOPIC_ID)):
            if start.positions.get(partition) != end_offset:
                losses.tell(*_deleted(partition, start, end_offset, held, target))
            continue
        position = start.positions.get(partition) if start.is_same_topic(partition.topic, topic_id) else None
        first = _first_of(partition, held, losses) if position is None else position
        if first >= end_offset:
            continue
        clipped = max(first, held.earliest), min(end_offset, held.latest)
        if clipped != (first, end_offset):
            losses.tell(
                _kind_of_cut(partition, end_offset, held, target),
                f"Offsets [{first}, {end_offset}) of {partition} were to be read, but the partition holds "
                f"[{held.earliest}, {held.latest}) now",
            )
        if clipped[0] < clipped[1]:
            result.append(OffsetRange(*partition, *clipped, topic_id))
    return result


def _deleted(
    partition: TopicPartition, start: StreamOffset, end_offset: int, held: Held | None, target: StreamOffset | None
) -> tuple[type[DataLoss], str]:
    """The error and its text for a partition that is gone with what a batch was to read."""
    text = f"{partition} was deleted before offsets up to {end_offset} were read"
    if held is None and target is not None and partition in target.positions:
        return LostInRun, f"{text}, though it was there when this run began: {RESTART}"
    if held is None and partition not in start.positions:
        return InitialOffsetNotFound, f"{text}, and it was new to this query"
    return PartitionsDeleted, text


def _kind_of_cut(partition: TopicPartition, end_offset: int, held: Held, target: StreamOffset | None) -> type[DataLoss]:
    """Of a range that is not all there: what it lost at its end, and since when, or anything at its start."""
    if target is None or end_offset <= held.latest:
        return DataLoss
    return EndBehindLatest if end_offset <= target.positions.get(partition, 0) else EndBehindRun
