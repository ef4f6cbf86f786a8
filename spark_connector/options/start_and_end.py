"""Where a read begins and ends: the options `starting…` and `ending…`. Pure.

    startingOffsets    earliest, latest, -100 (the last hundred of each partition) or JSON
    startingTimestamp  1700000000000 (ms since 1970), 2026-03-01T12:00:00+01:00, 2026-03-01 (UTC), -10m (ago)
    JSON               {"clicks":{"0":23,"1":-2,"2":"-100","default":"earliest"},"default":"-10"}

Rules:
* Start, by priority: startingTimestamp, startingOffsetsByTimestamp, startingOffsets; what has less priority is not
  looked at. The end likewise; it is exclusive.
* In JSON a number is Kafka's: an offset, -2 for earliest, -1 for latest. A text is what the option takes outside of
  JSON, so "-2" are the last two. Other negative numbers, booleans and fractions are refused, and so is a key that
  stands twice.
* `default` stands for the partitions of a topic that are not named, and beside the topics, where a place and no
  partitions follow, for all that have no other: a topic may be called `default`.
* A start behind its end is refused here where both are known; the others are found by planning.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import InvalidOption, MismatchedPartitions, UnresolvedStartAfterEnd
from strandline.spark_connector.options import values
from strandline.spark_connector.options.request import (
    EARLIEST,
    EVERY_TOPIC,
    LATEST,
    Ago,
    FromEnd,
    GlobalTimestamp,
    Offset,
    OffsetLimit,
    OffsetWord,
    SpecificOffsets,
    SpecificTimestamps,
    Time,
)

Place = TypeVar("Place")

WORDS = {"earliest": EARLIEST, "latest": LATEST}
DEFAULT = "default"


def starting(given: Mapping[str, str], *, is_stream: bool) -> OffsetLimit:
    """Where a read begins; of a batch everywhere before the end of what there is. Raises InvalidOption."""
    if is_stream:
        return _limit(given, "starting", OffsetWord(LATEST))
    limit = _limit(given, "starting", OffsetWord(EARLIEST))
    if isinstance(limit, OffsetWord) and limit.offset == LATEST:
        raise InvalidOption(
            "starting offset can't be latest for batch queries: there is nothing to read from there; "
            "use earliest, -100 for the last hundred of each partition, JSON or a timestamp"
        )
    for where, place in _places(limit):
        if place == LATEST:
            raise InvalidOption(f"startingOffsets for {where} can't be latest (-1) for batch queries; use an offset")
    return limit


def ending(given: Mapping[str, str]) -> OffsetLimit:
    """Where a batch ends. Raises InvalidOption."""
    limit = _limit(given, "ending", OffsetWord(LATEST))
    if isinstance(limit, OffsetWord) and limit.offset == EARLIEST:
        raise InvalidOption("ending offset can't be earliest: nothing would be read; use latest, JSON or a timestamp")
    for where, place in _places(limit):
        if place == EARLIEST:
            raise InvalidOption(f"endingOffsets for {where} can't be earliest (-2); use an offset or latest")
    return limit


def _limit(given: Mapping[str, str], side: str, default: OffsetLimit) -> OffsetLimit:
    """The option of highest priority that is set, of `<side>Timestamp`, `<side>OffsetsByTimestamp`, `<side>Offsets`."""
    name = f"{side}Timestamp"
    if (value := given.get(name.lower())) is not None:
        if (time := values.time(value)) is None:
            raise InvalidOption(
                f"Expected a single long value (ms since 1970) for {name}, a time such as 2026-03-01T12:00:00Z, "
                f"or -10m for ten minutes ago, got {value!r}"
            )
        return GlobalTimestamp(time)
    name = f"{side}OffsetsByTimestamp"
    if (value := given.get(name.lower())) is not None:
        meaning = 'a time in ms since 1970, or a text such as "2026-03-01T12:00:00Z" or "-10m"'
        times: _PerPartition[Time] = _per_partition(name, value, values.time, meaning)
        return SpecificTimestamps(*times)
    name = f"{side}Offsets"
    if (value := given.get(name.lower())) is None:
        return default
    if (word := _offset(value)) is not None:
        return OffsetWord(word)
    meaning = 'an offset, -2 for earliest or -1 for latest; as a text "earliest", "latest", or "-100" for the last 100'
    offsets: _PerPartition[Offset] = _per_partition(name, value, _offset, meaning)
    return SpecificOffsets(*offsets)


def _offset(value: Any) -> Offset | None:
    word = WORDS.get(value.strip().lower()) if isinstance(value, str) else None
    return values.offset(value) if word is None else word


_PerPartition = tuple[dict[TopicPartition, Place], dict[str, Place]]


def _per_partition(name: str, value: str, read: Callable[[Any], Place | None], meaning: str) -> _PerPartition[Place]:
    """`{"topic":{"0":23}}` as (partition → place, topic → place of its other partitions)."""
    words = "earliest, latest, -100 or " if name.endswith("Offsets") else ""
    expected = f'give {words}JSON such as {{"topic":{{"0":23}}}}'
    places: dict[TopicPartition, Place] = {}
    defaults: dict[str, Place] = {}

    def place(where: str, found: Any) -> Place:
        if (read_as := read(found)) is None:
            raise InvalidOption(f"{name}: {where} is {found!r}, but must be {meaning}")
        return read_as

    for topic, partitions in values.json_object(name, value, expected).items():
        if topic == DEFAULT and not isinstance(partitions, dict):
            defaults[EVERY_TOPIC] = place(DEFAULT, partitions)
            continue
        if not topic or not isinstance(partitions, dict):
            raise InvalidOption(f"{name}: {topic!r} has {partitions!r} instead of partitions; {expected}")
        for key, found in partitions.items():
            if key == DEFAULT:
                defaults[topic] = place(f"the {DEFAULT} of {topic}", found)
                continue
            number = values.number(key)
            if number is None or not values.is_partition(number) or str(number) != key:
                raise InvalidOption(f"{name}: {topic!r} has no partition {key!r}; {expected}")
            places[TopicPartition(topic, number)] = place(f"{topic}-{number}", found)
    return dict(sorted(places.items())), defaults


def _places(limit: OffsetLimit) -> Iterator[tuple[str, Offset]]:
    """Everything that JSON says, with the words for where it says it."""
    if isinstance(limit, SpecificOffsets):
        yield from ((str(partition), offset) for partition, offset in limit.offsets.items())
        yield from ((f"the default{topic and f' of {topic}'}", offset) for topic, offset in limit.defaults.items())


# --- Start before end --------------------------------------------------------------------------------------------


def check_order(starting: OffsetLimit, ending: OffsetLimit) -> None:
    """What both say must fit together, whatever the partitions hold. Raises MismatchedPartitions,
    UnresolvedStartAfterEnd."""
    if isinstance(starting, GlobalTimestamp) and isinstance(ending, GlobalTimestamp):
        _check_order("timestamp", starting.timestamp_ms, ending.timestamp_ms, "all partitions")
        return
    starts: Mapping[TopicPartition, Offset | Time]
    ends: Mapping[TopicPartition, Offset | Time]
    if isinstance(starting, SpecificOffsets) and isinstance(ending, SpecificOffsets):
        kind, starts, ends = "offset", starting.offsets, ending.offsets
    elif isinstance(starting, SpecificTimestamps) and isinstance(ending, SpecificTimestamps):
        kind, starts, ends = "timestamp", starting.timestamps_ms, ending.timestamps_ms
    else:
        return
    if set(starts) != set(ends) and not starting.defaults and not ending.defaults:
        raise MismatchedPartitions(
            f"The start names {', '.join(map(str, starts))}, the end {', '.join(map(str, ends))}: name the same "
            "partitions in both, or give a default"
        )
    for partition in sorted(set(starts) & set(ends)):
        _check_order(kind, starts[partition], ends[partition], str(partition))


def _check_order(kind: str, start: Offset | Time, end: Offset | Time, where: str) -> None:
    if isinstance(start, int) and isinstance(end, int):
        is_after, texts = 0 <= end < start, (str(start), str(end))
    elif isinstance(start, FromEnd) and isinstance(end, FromEnd):
        is_after, texts = start.offsets < end.offsets, (f"-{start.offsets}", f"-{end.offsets}")
    elif isinstance(start, Ago) and isinstance(end, Ago):
        is_after, texts = start.milliseconds < end.milliseconds, (f"-{start.milliseconds}ms", f"-{end.milliseconds}ms")
    else:
        return
    if is_after:
        raise UnresolvedStartAfterEnd(
            f"The specified start {kind} {texts[0]} is greater than the end {kind} {texts[1]} for {where}; "
            "give the earlier one first"
        )
