"""From options and what a topic holds to the ranges that are read; tasks.py cuts them. Pure.

A range is half-open, `[start, end)`; `end` is never above the high watermark that was asked for once, so all tasks of
a query see the same snapshot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, TypeVar

from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition
from strandline.spark_connector.errors import (
    DataLoss,
    EndBeyondLog,
    EndOffsetMismatch,
    NoOffsetForTimestamp,
    SourceError,
    StartAfterEnd,
    StartOffsetMismatch,
    TimestampMismatch,
)
from strandline.spark_connector.options.request import (
    EARLIEST,
    EVERY_TOPIC,
    LATEST,
    Ago,
    FromEnd,
    GlobalTimestamp,
    OffsetLimit,
    OffsetWord,
    SpecificOffsets,
    SpecificTimestamps,
    Time,
)

Place = TypeVar("Place")


class OffsetRange(NamedTuple):
    """The records of one partition from `start` up to and without `end`."""

    topic: str
    partition: int
    start: int
    end: int
    topic_id: TopicId = NO_TOPIC_ID
    """Of the topic whose offsets these are: one of the same name that is created anew counts from 0 again."""

    @property
    def size(self) -> int:
        """Offsets, of which compaction may have removed some."""
        return self.end - self.start


class Held(NamedTuple):
    """What a partition holds: `[earliest, latest)`, `latest` being the high watermark."""

    earliest: int
    latest: int


def asked_timestamps(
    limit: OffsetLimit, partitions: Iterable[TopicPartition], now_ms: int
) -> dict[TopicPartition, int]:
    """The times for which offsets must be looked up, in ms since 1970; empty where the limit is not a time."""
    if isinstance(limit, GlobalTimestamp):
        times: dict[TopicPartition, Time] = dict.fromkeys(partitions, limit.timestamp_ms)
    elif isinstance(limit, SpecificTimestamps):
        times = {partition: limit.timestamps_ms[partition] for partition in partitions}
    else:
        return {}
    return {
        partition: max(0, now_ms - time.milliseconds) if isinstance(time, Ago) else time
        for partition, time in times.items()
    }


def covering(limit: OffsetLimit, partitions: Sequence[TopicPartition], *, starting: bool) -> OffsetLimit:
    """The same limit for exactly these partitions, defaults spread out.

    What is in JSON must name each partition that is read, or have a default for it, and no others. Raises Start- or
    EndOffsetMismatch, TimestampMismatch.
    """
    side = "starting" if starting else "ending"
    if isinstance(limit, SpecificTimestamps):
        named = _Named(TimestampMismatch, f"{side} times", 'Give a time for each, or "default"')
        return SpecificTimestamps(named.of_each(partitions, limit.timestamps_ms, limit.defaults))
    if isinstance(limit, SpecificOffsets):
        advice = 'Use -1 for latest, -2 for earliest, "default" for those that have no offset of their own'
        named = _Named(StartOffsetMismatch if starting else EndOffsetMismatch, f"{side} offsets", advice)
        return SpecificOffsets(named.of_each(partitions, limit.offsets, limit.defaults))
    return limit


class _Named(NamedTuple):
    """What JSON says of partitions, and in which words it is refused."""

    error: type[SourceError]
    what: str
    advice: str

    def of_each(
        self, partitions: Sequence[TopicPartition], named: Mapping[TopicPartition, Place], defaults: Mapping[str, Place]
    ) -> dict[TopicPartition, Place]:
        """The place of each partition: its own, the default of its topic, the default of all."""
        found = dict(named)
        for each in partitions:
            for topic in (each.topic, EVERY_TOPIC):
                if each not in found and topic in defaults:
                    found[each] = defaults[topic]
        others = set(defaults) - {each.topic for each in partitions} - {EVERY_TOPIC}
        if set(found) != set(partitions) or others:
            specified = [*map(str, sorted(named)), *(f"default of {topic or 'all'}" for topic in sorted(defaults))]
            raise self.error(
                f"The {self.what} must name all partitions that are read, and no others. {self.advice}. "
                f"Specified: {_listed(specified)} Assigned: {_listed(map(str, sorted(partitions)))}"
            )
        return found


def _listed(texts: Iterable[str], most: int = 50) -> str:
    names = list(texts)
    more = f", and {len(names) - most} more" if len(names) > most else ""
    return f"[{', '.join(names[:most])}{more}]"


class Resolver(NamedTuple):
    """Makes the range of each partition, by limits that cover them; `warn` is told of data loss that the user allowed.

    What times became was asked for after `held`: records that came in between are not part of the read.
    """

    held: Mapping[TopicPartition, Held]
    at_start_time: Mapping[TopicPartition, int | None]
    at_end_time: Mapping[TopicPartition, int | None]
    late_start_is_latest: bool
    fail_on_data_loss: bool
    warn: Callable[[str], None]
    now_ms: int
    """What times ago are counted from."""

    def ranges(self, starting: OffsetLimit, ending: OffsetLimit) -> list[OffsetRange]:
        """One range per partition that has any offset to read, in order.

        Raises NoOffsetForTimestamp, StartAfterEnd, and DataLoss where [start, end) is not all there.
        """
        ranges = []
        for partition in sorted(self.held):
            start, end = self.start(partition, starting), self._end(partition, ending)
            if start > end:
                raise StartAfterEnd(
                    f"The range for {partition} has a start offset greater than its end: {start} > {end}. "
                    "Check the starting and ending options"
                )
            start, end = self._within_log(partition, start, end)
            if start < end:
                ranges.append(OffsetRange(*partition, start, end))
        return ranges

    def start(self, partition: TopicPartition, limit: OffsetLimit) -> int:
        """Where the limit says, whether the partition holds that or not. Raises NoOffsetForTimestamp."""
        if not isinstance(limit, GlobalTimestamp | SpecificTimestamps):
            return self._offset(partition, limit)
        found = self.at_start_time[partition]
        if found is not None:
            return min(found, self.held[partition].latest)
        if not self.late_start_is_latest:
            timestamp = asked_timestamps(limit, [partition], self.now_ms)[partition]
            raise NoOffsetForTimestamp(
                f"No record of {partition} has a timestamp of {timestamp} or later. Use an earlier time, or set "
                "startingOffsetsByTimestampStrategy to latest to read nothing of such partitions"
            )
        return self.held[partition].latest

    def _end(self, partition: TopicPartition, limit: OffsetLimit) -> int:
        if not isinstance(limit, GlobalTimestamp | SpecificTimestamps):
            return self._offset(partition, limit)
        found, latest = self.at_end_time[partition], self.held[partition].latest
        return latest if found is None else min(found, latest)

    def _offset(self, partition: TopicPartition, limit: OffsetLimit) -> int:
        assert isinstance(limit, OffsetWord | SpecificOffsets)
        offset = limit.offset if isinstance(limit, OffsetWord) else limit.offsets[partition]
        held = self.held[partition]
        if isinstance(offset, FromEnd):
            return max(held.earliest, held.latest - offset.offsets)
        return {EARLIEST: held.earliest, LATEST: held.latest}.get(offset, offset)

    def _within_log(self, partition: TopicPartition, start: int, end: int) -> tuple[int, int]:
        """Clip the range to what is held; that is a loss of data unless nothing was asked for."""
        held = self.held[partition]
        if start == end or (start >= held.earliest and end <= held.latest):
            return start, end
        is_beyond = start >= held.earliest
        text = f"Offsets [{start}, {end}) of {partition} were asked for, "
        text += f"which reach beyond its end {held.latest}: it holds " if is_beyond else "but the partition holds "
        text += f"[{held.earliest}, {held.latest}) (its end is the high watermark)"
        if self.fail_on_data_loss:
            raise EndBeyondLog(text) if is_beyond else DataLoss(text)
        clipped_start, clipped_end = max(start, held.earliest), min(end, held.latest)
        self.warn(f"{text}; reading [{clipped_start}, {max(clipped_start, clipped_end)})")
        return clipped_start, max(clipped_start, clipped_end)
