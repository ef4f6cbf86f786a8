"""One streaming query on the driver: where it begins, how far the next batch goes, what the batch reads.

It lives as long as the query and keeps its connections. What it must not lose is in the offsets that Spark persists
(offsets.py); what it keeps itself is lost with a restart, and does no harm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from strandline.client.errors import ClientError
from strandline.protocol.records import InvalidBatch, scan
from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.spark_connector.driver_log import PlannedBatch, planned_batch
from strandline.spark_connector.errors import InvalidOption, OffsetGone, SourceError, StartBeyondLog, StartOffsetReset
from strandline.spark_connector.options.request import SpecificOffsets
from strandline.spark_connector.options.stream_options import StreamOptions
from strandline.spark_connector.reading.network_timeout import poll_timeout_ms
from strandline.spark_connector.reading.planning import OffsetRange, Resolver, asked_timestamps, covering
from strandline.spark_connector.reading.reader import Cluster, Warn, wanted_partitions
from strandline.spark_connector.reading.tasks import tasks
from strandline.spark_connector.streaming.limits import Sizes, is_worth_a_batch, taken
from strandline.spark_connector.streaming.offsets import (
    Positions,
    StreamOffset,
    effective_start,
    from_json,
    to_json,
)
from strandline.spark_connector.streaming.progress import Losses, Seen, begin, behind_lost, ranges

SAMPLED_AGAIN_AFTER = 16
"""After so many batches the sizes of records are estimated anew."""


class Group(Protocol):
    """Where lag tools look; `groups.GroupCommits` is the real one."""

    def commit(self, positions: Positions) -> None:
        """Show that everything below was read. Never raises for what the cluster says."""


class StreamQuery:
    """Offsets are dictionaries as Spark keeps them. `now_ms` is asked for times ago, once, and for the delay of
    minOffsetsPerTrigger."""

    def __init__(
        self, options: StreamOptions, cluster: Cluster, group: Group | None, now_ms: Callable[[], int], warn: Warn
    ) -> None:
        self._options = options
        self._cluster = cluster
        self._group = group
        self._now_ms = now_ms
        self._warn = warn
        self._losses = Losses(options.source.fail_on_data_loss, warn)
        self._initial: StreamOffset | None = None
        self._unresolved: SourceError | None = None
        self._cursor: StreamOffset | None = None
        """Where the last planned batch ended: for a Spark that does not tell where the next one begins."""
        self._target: StreamOffset | None = None
        """Trigger.AvailableNow: nothing behind it is read."""
        self._newest: StreamOffset | None = None
        self._last_batch_ms: int | None = None
        self._sampled: dict[TopicPartition, float] = {}
        self._batches = 0
        self.planned: PlannedBatch | None = None
        """What `plan` said last, in figures."""

    # --- What Spark asks for ---

    def initial(self) -> dict[str, Any]:
        """Where a new query begins: resolved once, since Spark asks twice and means the same.

        Spark also asks a query that was killed in its first batch. The end of that batch carries where it began, so it
        goes on even if the starting options fit no longer; who really begins here raises what is wrong with them.
        """
        if self._initial is None:
            try:
                self._initial = self._resolved()
            except SourceError as error:
                self._unresolved = error
                self._initial = StreamOffset({}, is_new=True)
        return to_json(self._initial)

    def prepare_available_now(self) -> None:
        """Pin the end of what this query reads."""
        self._target = self._seen().whole()

    def latest(self, start: Mapping[str, Any] | None, *, is_limited: bool) -> dict[str, Any]:
        """Where the next batch ends; `start` itself if there is none yet. `start` None: Spark before 4.2 does not say
        where it is, and knows no limits. Raises DataLoss, InvalidOption; where a new query cannot begin, the errors of
        planning.py, UnknownTopic, StartOffsetReset."""
        at = from_json(start) if start is not None else self._guessed_start()
        self._check_begins(at)
        if self._group is not None and not at.is_new:
            self._group.commit(at.positions)
        seen = self._seen()
        seen = replace(seen, unnamed=self._unnamed(at, seen))
        self._newest = seen.whole()
        begins = begin(at, seen, self._losses, self._target)
        self._forget_lost(seen)
        upto = {
            each: max(begins[each], self._pinned(each, held.latest, seen)) for each, held in sorted(seen.held.items())
        }
        if not self._options.source.fail_on_data_loss:
            begins = behind_lost(begins, upto, seen)
        waiting: Sizes = {each: upto[each] - begin_at for each, begin_at in begins.items()}
        if is_limited:
            if self._must_wait(waiting) and not at.is_new:
                return dict(start) if start is not None else to_json(at)
            waiting = taken(self._options.limits, waiting, self._bytes_per_offset(begins, waiting))
        ends = {each: begins[each] + count for each, count in waiting.items()}
        # An id that the cluster does not tell now, though it did, is not forgotten: it may have changed by then.
        topic_ids = {
            topic: at.topic_ids.get(topic, NO_TOPIC_ID) if topic_id == NO_TOPIC_ID else topic_id
            for topic, topic_id in seen.topic_ids.items()
        }
        if not at.is_new and ends == at.positions and _known(topic_ids) == _known(at.topic_ids):
            return dict(start) if start is not None else to_json(at)
        self._last_batch_ms = self._now_ms()
        found = StreamOffset(ends, topic_ids, initial=at.positions if at.is_new else None)
        self._cursor = found
        return to_json(found)

    def newest(self) -> dict[str, Any] | None:
        """Up to where there was something to read when `latest` looked last."""
        return None if self._newest is None else to_json(self._newest)

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[OffsetRange]:
        """What the batch between two offsets reads. Raises as `latest`."""
        upto = from_json(end)
        self._cursor = upto
        self._batches += 1
        at = effective_start(from_json(start), upto)
        self._check_begins(at)
        seen = self._seen(upto)
        planned = ranges(at, upto, seen, self._losses, self._target)
        source = self._options.source
        # By partitions, whoever leads them now: a batch that is repeated is divided into the same tasks, by which a
        # sink knows what it has written.
        result = tasks(
            planned,
            {TopicPartition(each.topic, each.partition): number for number, each in enumerate(planned)},
            min_partitions=source.min_partitions,
            max_records_per_partition=source.max_records_per_partition,
        )
        # A partition that the batch does not know yet is all left.
        left = {
            each: max(0, held.latest - max(held.earliest, upto.positions.get(each, 0)))
            for each, held in seen.held.items()
        }
        self.planned = planned_batch(result, left, self._sampled)
        return result

    def completed(self, end: Mapping[str, Any]) -> None:
        """Spark has written down that everything below `end` was processed."""
        if self._group is not None:
            self._group.commit(from_json(end).positions)

    # --- What the cluster holds ---

    def _seen(self, also: StreamOffset | None = None) -> Seen:
        """What the cluster holds of the partitions that the options name, and of those of `also` that still exist."""
        wanted = self._existing(also)
        topic_ids = self._topic_ids(wanted)
        try:
            return Seen(self._cluster.held(wanted), topic_ids)
        except ClientError:  # who is asked about a topic that was deleted a moment ago does not answer
            left = self._existing(also)
            if left == wanted:
                raise
        topic_ids = self._topic_ids(left)
        return Seen(self._cluster.held(left), topic_ids)

    def _existing(self, also: StreamOffset | None) -> list[TopicPartition]:
        """As `_seen`. What the query has read of one that is gone, if anything, is missed by those who compare."""
        wanted = wanted_partitions(self._options.source.subscription, self._cluster, all_must_exist=False)
        if also is None:
            return wanted
        known = {topic: set(self._cluster.partitions(topic)) for topic in {each.topic for each in also.positions}}
        return sorted({*wanted, *(each for each in also.positions if each.partition in known[each.topic])})

    def _unnamed(self, at: StreamOffset, seen: Seen) -> frozenset[TopicPartition]:
        """What was read, still exists, and is left out by the options. Only topics that are not named are looked for:
        a cluster takes long to say that there is none, and of the others that is known."""
        named = self._options.source.subscription.names
        left_out = [each for each in at.positions if each not in seen.held and not named(each)]
        known = {topic: set(self._cluster.partitions(topic)) for topic in sorted({each.topic for each in left_out})}
        return frozenset(each for each in left_out if each.partition in known[each.topic])

    def _topic_ids(self, partitions: Iterable[TopicPartition]) -> dict[str, TopicId]:
        return {topic: self._cluster.topic_id(topic) for topic in sorted({each.topic for each in partitions})}

    def _must_wait(self, waiting: Sizes) -> bool:
        if self._target is not None:  # nothing more is to come that could be waited for
            return False
        return not is_worth_a_batch(self._options.limits, waiting, self._now_ms(), self._last_batch_ms)

    def _pinned(self, partition: TopicPartition, latest: int, seen: Seen) -> int:
        """Where to stop; a topic that was created anew since the run began is for the next one."""
        if self._target is None:
            return latest
        if not self._target.is_same_topic(partition.topic, seen.topic_ids[partition.topic]):
            return 0
        return min(latest, self._target.positions.get(partition, 0))

    def _forget_lost(self, seen: Seen) -> None:
        """What is gone and was told needs not be told again."""
        if self._target is not None:
            left = {each: offset for each, offset in self._target.positions.items() if each in seen.held}
            self._target = StreamOffset(left, self._target.topic_ids)

    # --- Where to begin ---

    def _resolved(self) -> StreamOffset:
        source = self._options.source
        partitions = wanted_partitions(source.subscription, self._cluster)
        starting = covering(source.starting, partitions, starting=True)
        now_ms = self._now_ms()
        times = asked_timestamps(starting, partitions, now_ms)
        # Before their offsets: those of a topic that is created anew in between must not pass for the new one's.
        topic_ids = self._topic_ids(partitions)
        held = self._cluster.held(partitions)
        resolver = Resolver(
            held=held,
            at_start_time=self._cluster.offsets_at(times) if times else {},
            at_end_time={},
            late_start_is_latest=source.late_start_is_latest,
            fail_on_data_loss=source.fail_on_data_loss,
            warn=self._warn,
            now_ms=now_ms,
        )
        positions = {each: resolver.start(each, starting) for each in partitions}
        for each, position in positions.items():
            nearest = max(held[each].earliest, min(position, held[each].latest))
            if nearest != position and isinstance(starting, SpecificOffsets):
                self._losses.tell(
                    StartBeyondLog if position > nearest else StartOffsetReset,
                    f"startingOffsets says {position} for {each}, which holds [{held[each].earliest}, "
                    f"{held[each].latest}) (its end is the high watermark)",
                )
                positions[each] = nearest
        return StreamOffset(positions, topic_ids, is_new=True)

    def _check_begins(self, at: StreamOffset) -> None:
        if at.is_new and self._unresolved is not None:
            raise self._unresolved

    def _guessed_start(self) -> StreamOffset:
        limits = self._options.limits
        if limits.max_offsets is not None or limits.min_offsets is not None or limits.max_bytes is not None:
            raise InvalidOption(
                "maxOffsetsPerTrigger, minOffsetsPerTrigger and maxBytesPerTrigger need Spark 4.2 or later: this one "
                "does not tell a Python source where the next batch begins; leave them out"
            )
        if self._cursor is not None:
            return self._cursor
        return from_json(self.initial())

    # --- How large records are ---

    def _bytes_per_offset(self, begins: Positions, waiting: Sizes) -> dict[TopicPartition, float]:
        """Estimated from the batches at the beginning of what waits; 1.0 where nothing waits."""
        if self._options.limits.max_bytes is None:
            return {}
        if self._batches % SAMPLED_AGAIN_AFTER == 0:
            self._sampled.clear()
        for each, count in waiting.items():
            if count and each not in self._sampled:
                self._sampled[each] = self._sample(each, begins[each])
        return {each: self._sampled.get(each, 1.0) for each in waiting}

    def _sample(self, partition: TopicPartition, position: int) -> float:
        try:
            fetched = self._cluster.fetch(partition, position, poll_timeout_ms(self._options.source))
            headers = [header for _, header in scan(fetched)]
        except (OffsetGone, InvalidBatch):
            return 1.0  # who plans or reads meets the same, and tells
        if not headers:
            return 1.0
        size_bytes = sum(header.size_bytes for header in headers)
        return size_bytes / max(1, headers[-1].next_offset - headers[0].base_offset)


def _known(topic_ids: Mapping[str, TopicId]) -> dict[str, TopicId]:
    return {topic: topic_id for topic, topic_id in topic_ids.items() if topic_id != NO_TOPIC_ID}
