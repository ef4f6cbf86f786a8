"""The work behind a read: the driver plans ranges, a task reads one of them as Arrow batches.

Rules:
* Offsets are resolved once, on the driver; the end of a range is at most the high watermark, and brokers serve no
  consumer anything at or above it.
* A range ends by position, never by count: compaction leaves gaps, and a batch at the edge of a range holds records of
  its neighbours, which are dropped.
* Offsets that are gone are an error, or with failOnDataLoss=false a warning, and reading goes on with what is left.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Protocol

import pyarrow as pa

from strandline.protocol.records import InvalidBatch, scan
from strandline.protocol.records.columnar import BatchDecoder
from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.runtime.client_environment import production_client_environment
from strandline.spark_connector.errors import CorruptRecords, GoneSincePlanned, OffsetGone, ReadTimeout, UnknownTopic
from strandline.spark_connector.options.request import Assign, Condition, SourceOptions, Subscribe, Subscription
from strandline.spark_connector.reading import narrowing
from strandline.spark_connector.reading.arrow import BYTES_PER_BATCH, ROWS_PER_BATCH, RowBuffer
from strandline.spark_connector.reading.failures import named_failures
from strandline.spark_connector.reading.network_timeout import poll_timeout_ms
from strandline.spark_connector.reading.planning import (
    Held,
    OffsetRange,
    Resolver,
    asked_timestamps,
    covering,
)
from strandline.spark_connector.reading.tasks import tasks
from strandline.spark_connector.worker import spare_modules

Warn = Callable[[str], None]

MAX_LOSSES = 3
"""How often one task finds its position gone before it gives up, even where loss is allowed."""


class Cluster(Protocol):
    """What a read needs of a cluster; `ClusterClient` in cluster.py is the real one."""

    def topics(self) -> list[str]:
        """Names of all topics that are not internal."""

    def partitions(self, topic: str) -> list[int]:
        """Partition numbers; empty for a topic that does not exist."""

    def topic_id(self, topic: str) -> TopicId:
        """Of the topic that has this name now, as far as the cluster told; NO_TOPIC_ID where it did not."""

    def leaders(self, topic: str) -> Mapping[int, int]:
        """Partition → the broker that leads it, as far as the cluster told."""

    def held(self, partitions: list[TopicPartition]) -> dict[TopicPartition, Held]:
        """Log start and high watermark of each."""

    def offsets_at(self, timestamps_ms: dict[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """First offset whose record is not older; None where there is none."""

    def fetch(self, partition: TopicPartition, offset: int, timeout_ms: int) -> memoryview | bytes:
        """Whole batches, from the one that holds `offset` or follows it; empty if none came in time. The buffer is
        good until the next call. Raises OffsetGone."""


# --- On the driver ---------------------------------------------------------------------------------------------


def plan_ranges(options: SourceOptions, warn: Warn) -> list[OffsetRange]:
    """`plan` over the cluster that the options name. Raises ReadFailed where that cannot be asked."""
    from strandline.spark_connector.reading.cluster import ClusterClient

    now_ms = production_client_environment().wall_clock.now_ms()
    with named_failures(), ClusterClient(options) as cluster:
        return plan(options, cluster, warn, now_ms)


def plan(options: SourceOptions, cluster: Cluster, warn: Warn, now_ms: int) -> list[OffsetRange]:
    """What each task reads. `now_ms`: what times ago are counted from. Raises the errors of planning.py and
    UnknownTopic."""
    partitions = wanted_partitions(options.subscription, cluster)
    starting = covering(options.starting, partitions, starting=True)
    ending = covering(options.ending, partitions, starting=False)
    if not partitions:
        return []
    # Before their offsets: those of a topic that is created anew in between must not pass for the old one's.
    topic_ids = {topic: cluster.topic_id(topic) for topic in sorted({each.topic for each in partitions})}
    start_times = asked_timestamps(starting, partitions, now_ms)
    end_times = asked_timestamps(ending, partitions, now_ms)
    resolver = Resolver(
        held=cluster.held(partitions),
        at_start_time=cluster.offsets_at(start_times) if start_times else {},
        at_end_time=cluster.offsets_at(end_times) if end_times else {},
        late_start_is_latest=options.late_start_is_latest,
        fail_on_data_loss=options.fail_on_data_loss,
        warn=warn,
        now_ms=now_ms,
    )
    ranges = narrowed(resolver.ranges(starting, ending), options.condition, cluster)
    return tasks(
        [each._replace(topic_id=topic_ids[each.topic]) for each in ranges],
        leaders_of(ranges, cluster),
        min_partitions=options.min_partitions,
        max_records_per_partition=options.max_records_per_partition,
    )


def leaders_of(ranges: Iterable[OffsetRange], cluster: Cluster) -> dict[TopicPartition, int]:
    """Who leads the partitions of these ranges, as far as the cluster tells."""
    return {
        TopicPartition(topic, number): leader
        for topic in sorted({each.topic for each in ranges})
        for number, leader in cluster.leaders(topic).items()
    }


def narrowed(ranges: list[OffsetRange], condition: Condition, cluster: Cluster) -> list[OffsetRange]:
    """What the condition leaves of the ranges."""
    left = [part for each in ranges if (part := narrowing.clipped(each, condition)) is not None]
    timestamps = narrowing.asked_timestamps(left, condition)
    if not timestamps:
        return left
    first = cluster.offsets_at(timestamps)
    starts = [(each, first[TopicPartition(each.topic, each.partition)]) for each in left]
    return [
        each._replace(start=max(each.start, start)) for each, start in starts if start is not None and start < each.end
    ]


def wanted_partitions(
    subscription: Subscription, cluster: Cluster, *, all_must_exist: bool = True
) -> list[TopicPartition]:
    """The partitions that the options name, in order; a pattern may match nothing. UnknownTopic if one that is named
    does not exist, unless those are to be left out."""
    if isinstance(subscription, Subscribe):
        topics = list(subscription.topics)
    elif isinstance(subscription, Assign):
        topics = list(dict.fromkeys(partition.topic for partition in subscription.partitions))
    else:
        topics = [topic for topic in cluster.topics() if subscription.pattern.search(topic)]
    existing = []
    for topic in sorted(topics):
        numbers = cluster.partitions(topic)
        if not numbers and all_must_exist and isinstance(subscription, Subscribe | Assign):
            raise UnknownTopic(
                f"Topic {topic!r} does not exist; check the spelling ('strandline topics --list') or create it"
            )
        existing += [TopicPartition(topic, number) for number in sorted(numbers)]
    if not isinstance(subscription, Assign):
        return existing
    missing = sorted(set(subscription.partitions) - set(existing))
    if missing and all_must_exist:
        raise UnknownTopic(f"Partition {missing[0]} does not exist; correct the option assign")
    return [partition for partition in subscription.partitions if partition not in missing]


# --- On an executor --------------------------------------------------------------------------------------------


def read_range(options: SourceOptions, wanted: OffsetRange, warn: Warn) -> Iterator[pa.RecordBatch]:
    """`read` over the cluster that the options name. Raises ReadFailed where that cannot be asked."""
    from strandline.spark_connector.reading.cluster import ClusterClient

    spare_modules("reading")
    with named_failures(), ClusterClient(options) as cluster:
        yield from read(options, wanted, cluster, warn)


def read(options: SourceOptions, wanted: OffsetRange, cluster: Cluster, warn: Warn) -> Iterator[pa.RecordBatch]:
    """The records of one range, in order. Raises GoneSincePlanned, ReadTimeout, CorruptRecords."""
    partition = TopicPartition(wanted.topic, wanted.partition)
    rows = RowBuffer(*partition, options.columns)
    timeout_ms = poll_timeout_ms(options)
    position = wanted.start
    losses = 0
    while position < wanted.end:
        try:
            fetched = cluster.fetch(partition, position, timeout_ms)
        except OffsetGone:
            if _is_another_topic(wanted, cluster):
                _refuse_another_topic(options, wanted, position, warn)
                break
            losses += 1
            position = _after_loss(options, wanted, position, losses, cluster, warn)
            continue
        # After the fetch, which names the topic by the id that the client knew: these records are of that one.
        if _is_another_topic(wanted, cluster):
            _refuse_another_topic(options, wanted, position, warn)
            break
        before = position
        try:
            position = yield from _read_chunk(rows, fetched, position, wanted.end, options.condition)
        except InvalidBatch as error:
            raise CorruptRecords(str(error)) from error
        if position == before:
            raise ReadTimeout(
                f"Nothing of {partition} from offset {position} came within {timeout_ms} ms, though "
                f"everything below {wanted.end} was committed; check that the partition has a leader "
                f"('strandline topics --describe --topic {wanted.topic}'), or raise kafkaConsumer.pollTimeoutMs"
            )
    if len(rows):
        yield rows.take()


def _read_chunk(
    rows: RowBuffer, fetched: memoryview | bytes, position: int, end: int, condition: Condition
) -> Generator[pa.RecordBatch, None, int]:
    """Adds the records in [position, end) of whole batches, and yields what is enough for an Arrow batch. Returns where
    to go on."""
    start, decoder = position, BatchDecoder(fetched)
    for place, header in scan(fetched):
        if header.base_offset >= end:
            position = end
            break
        decoder.add(place, header)
        position = max(position, header.next_offset)
        if decoder.records_count >= ROWS_PER_BATCH or decoder.size_bytes >= BYTES_PER_BATCH:
            _add(rows, decoder, start, end, condition)
            if rows.is_worth_a_batch:
                yield rows.take()
    _add(rows, decoder, start, end, condition)
    if rows.is_worth_a_batch:
        yield rows.take()
    return position


def _add(rows: RowBuffer, decoder: BatchDecoder, start: int, end: int, condition: Condition) -> None:
    """The collected records with offsets in [start, end) that meet the condition."""
    if not decoder.records_count:
        return
    size_bytes = decoder.size_bytes
    columns = decoder.take(rows.depth)
    wanted = (columns.offsets >= start) & (columns.offsets < end)
    if condition.is_of_rows:
        wanted &= narrowing.matching(columns, condition)
    if not wanted.all():
        columns = columns.rows(wanted)
    if len(columns.offsets):
        rows.add(columns, size_bytes)


def _is_another_topic(wanted: OffsetRange, cluster: Cluster) -> bool:
    if wanted.topic_id == NO_TOPIC_ID:
        return False
    return cluster.topic_id(wanted.topic) not in (wanted.topic_id, NO_TOPIC_ID)


def _refuse_another_topic(options: SourceOptions, wanted: OffsetRange, position: int, warn: Warn) -> None:
    """Nothing of what was planned is left: GoneSincePlanned unless that is allowed."""
    text = (
        f"Topic {wanted.topic!r} was deleted and created anew after the read was planned: offsets [{position}, "
        f"{wanted.end}) of its old partition {wanted.partition} are gone"
    )
    if options.fail_on_data_loss:
        raise GoneSincePlanned(text)
    warn(f"{text}; nothing of the new topic is read")


def _after_loss(
    options: SourceOptions, wanted: OffsetRange, position: int, losses: int, cluster: Cluster, warn: Warn
) -> int:
    """Where to go on when `position` is gone: the first offset that is left, or the end of the range."""
    partition = TopicPartition(wanted.topic, wanted.partition)
    held = cluster.held([partition])[partition]
    text = (
        f"Offsets [{position}, {wanted.end}) of {partition} were planned to be read, but the partition holds "
        f"[{held.earliest}, {held.latest}) now"
    )
    if options.fail_on_data_loss or losses > MAX_LOSSES:
        raise GoneSincePlanned(text)
    warn(f"{text}; reading what is left of it")
    if held.earliest <= position <= held.latest:
        return position
    return min(held.earliest, wanted.end) if position < held.earliest else wanted.end
