"""The options of `spark.read.format("strandline")`: names, defaults and meaning of Spark's Kafka source. Pure.
What only streams have is in stream_options.py.

`parse_options` turns the strings into one checked value; nothing here talks to a cluster, so partitions that do not
exist are found later (planning.py). Rules:

* Names are case-insensitive; the user's own spelling is lost on the way, so messages use the documented one.
* Start, by priority: startingTimestamp, startingOffsetsByTimestamp, startingOffsets (default earliest).
  End: endingTimestamp, endingOffsetsByTimestamp, endingOffsets (default latest); an end is exclusive. A stream has
  none, and begins at latest unless told otherwise.
* In JSON, -2 means earliest and -1 latest; other negative numbers, booleans and fractions are refused, and so is a key
  that stands twice.
* `kafka.*` options that a Spark query must not change are refused, those our client knows are passed on, the others and
  options of streams only bring a warning, which names the nearest known option where the name is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.request import (
    EARLIEST,
    LATEST,
    Assign,
    GlobalTimestamp,
    OffsetLimit,
    OffsetWord,
    SourceOptions,
    SpecificOffsets,
    SpecificTimestamps,
    Subscribe,
    SubscribePattern,
    Subscription,
)
from strandline.spark_connector.options.values import (
    boolean,
    bootstrap_servers,
    is_offset,
    is_partition,
    is_timestamp,
    json_object,
    kafka_settings,
    positive,
    refuse,
    timestamp,
    unknown_options,
)

DEFAULT_POLL_TIMEOUT_MS = 120_000
"""Spark's `spark.network.timeout`, which its Kafka source takes for this option."""


SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
STREAM_ONLY = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "maxBytesPerTrigger", "commitGroup")
BATCH_ONLY = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
NO_EFFECT = ("groupIdPrefix", "kafka.group.id", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs")
"""Accepted for the sake of queries written for Kafka: batch reads join no group, and our client retries by its own
settings (kafka.retry.backoff.ms, kafka.default.api.timeout.ms)."""

KNOWN = (
    "kafka.bootstrap.servers",
    "servers",
    *SUBSCRIPTIONS,
    "path",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "pushdown",
    "kafkaConsumer.pollTimeoutMs",
    *NO_EFFECT,
    *STREAM_ONLY,
)

PROTECTED = {
    "kafka.auto.offset.reset": "use startingOffsets",
    "kafka.key.deserializer": "keys are binary; cast the column after load()",
    "kafka.value.deserializer": "values are binary; cast the column after load()",
    "kafka.enable.auto.commit": "Spark keeps the offsets, nothing is committed to a group",
    "kafka.interceptor.classes": "interceptors could change what Spark counts on",
}


def parse_options(options: Mapping[str, str], *, is_stream: bool = False) -> SourceOptions:
    """Check all options. Raises InvalidOption naming the option, the value and what is allowed."""
    given = {key.lower(): value for key, value in options.items()}
    for name in BATCH_ONLY:
        if is_stream and name.lower() in given:
            raise InvalidOption(f"ending offset not valid in streaming queries: leave out the option {name}")
    refuse(given, PROTECTED)
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise InvalidOption(f"startingOffsetsByTimestampStrategy must be error or latest, not {strategy!r}")
    settings, warnings = kafka_settings(given, KNOWN)
    return SourceOptions(
        bootstrap_servers=bootstrap_servers(given),
        subscription=_subscription(given),
        starting=_limit(given, "starting", OffsetWord(LATEST)) if is_stream else _starting(given),
        ending=_ending(given),
        late_start_is_latest=strategy == "latest",
        fail_on_data_loss=boolean(given, "failOnDataLoss", True),
        min_partitions=positive(given, "minPartitions"),
        max_records_per_partition=positive(given, "maxRecordsPerPartition"),
        include_headers=boolean(given, "includeHeaders", False),
        poll_timeout_ms=positive(given, "kafkaConsumer.pollTimeoutMs") or DEFAULT_POLL_TIMEOUT_MS,
        pushdown=boolean(given, "pushdown", False),
        client_settings=settings,
        warnings=(*warnings, *_warnings(given, is_stream=is_stream)),
    )


def _subscription(given: Mapping[str, str]) -> Subscription:
    """Exactly one of subscribe (or path), subscribePattern, assign."""
    present = [name for name in (*SUBSCRIPTIONS, "path") if name.lower() in given]
    if len(present) != 1:
        found = f"{' and '.join(present)} are set" if present else "none is set"
        raise InvalidOption(
            "Exactly one of the options 'subscribe', 'subscribePattern' and 'assign' must say which topics to read "
            f"(load('topic') counts as subscribe); {found}"
        )
    name, value = present[0], given[present[0].lower()].strip()
    if name == "assign":
        return Assign(_assigned(value))
    if name == "subscribePattern":
        try:
            return SubscribePattern(re.compile(value))
        except re.error as error:
            raise InvalidOption(f"subscribePattern {value!r} is not a regular expression: {error}") from None
    topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
    if not topics:
        raise InvalidOption(f"No topics to subscribe to as specified value for option '{name}' is {value!r}")
    return Subscribe(topics)


def _assigned(value: str) -> tuple[TopicPartition, ...]:
    expected = 'give JSON such as {"topic":[0,1]}'
    if not value.startswith("{"):
        raise InvalidOption(f"No topic partitions to assign: the option 'assign' is {value!r}; {expected}")
    parsed = json_object("assign", value, expected)
    partitions = []
    for topic, numbers in parsed.items():
        if not isinstance(numbers, list) or not all(is_partition(number) for number in numbers):
            raise InvalidOption(f"assign: the partitions of {topic!r} are {numbers!r}; {expected}")
        partitions += [TopicPartition(topic, number) for number in numbers]
    if not partitions:
        raise InvalidOption(f"assign names no partition; {expected}")
    return tuple(sorted(set(partitions)))


# --- Start and end ---------------------------------------------------------------------------------------------


def _starting(given: Mapping[str, str]) -> OffsetLimit:
    limit = _limit(given, "starting", OffsetWord(EARLIEST))
    if isinstance(limit, OffsetWord) and limit.offset == LATEST:
        raise InvalidOption(
            "starting offset can't be latest for batch queries: there is nothing to read from there; "
            "use earliest, JSON or a timestamp"
        )
    if isinstance(limit, SpecificOffsets):
        for partition, offset in limit.offsets.items():
            if offset == LATEST:
                raise InvalidOption(f"startingOffsets for {partition} can't be latest (-1) for batch queries")
    return limit


def _ending(given: Mapping[str, str]) -> OffsetLimit:
    limit = _limit(given, "ending", OffsetWord(LATEST))
    if isinstance(limit, OffsetWord) and limit.offset == EARLIEST:
        raise InvalidOption("ending offset can't be earliest: nothing would be read; use latest, JSON or a timestamp")
    if isinstance(limit, SpecificOffsets):
        for partition, offset in limit.offsets.items():
            if offset == EARLIEST:
                raise InvalidOption(f"endingOffsets for {partition} can't be earliest (-2)")
    return limit


def _limit(given: Mapping[str, str], side: str, default: OffsetLimit) -> OffsetLimit:
    """The option of highest priority that is set, of `<side>Timestamp`, `<side>OffsetsByTimestamp`, `<side>Offsets`."""
    name = f"{side}Timestamp"
    if (value := given.get(name.lower())) is not None:
        return GlobalTimestamp(timestamp(name, value))
    name = f"{side}OffsetsByTimestamp"
    if (value := given.get(name.lower())) is not None:
        return SpecificTimestamps(_per_partition(name, value, is_timestamp, "a time in ms since 1970"))
    name = f"{side}Offsets"
    if (value := given.get(name.lower())) is None:
        return default
    word = value.strip().lower()
    if word in ("earliest", "latest"):
        return OffsetWord(EARLIEST if word == "earliest" else LATEST)
    return SpecificOffsets(_per_partition(name, value, is_offset, "an offset, -2 for earliest or -1 for latest"))


def _per_partition(name: str, value: str, is_valid: Callable[[Any], bool], meaning: str) -> dict[TopicPartition, int]:
    """`{"topic":{"0":23}}` as a dictionary; each number must be what `meaning` says."""
    words = "earliest, latest or " if name.endswith("Offsets") else ""
    expected = f'give {words}JSON such as {{"topic":{{"0":23}}}}'
    result: dict[TopicPartition, int] = {}
    for topic, numbers in json_object(name, value, expected).items():
        if not isinstance(numbers, dict):
            raise InvalidOption(f"{name}: {topic!r} has {numbers!r} instead of partitions; {expected}")
        for partition, number in numbers.items():
            if not (partition.isascii() and partition.isdigit() and is_partition(int(partition))):
                raise InvalidOption(f"{name}: {topic!r} has no partition {partition!r}; {expected}")
            if not is_valid(number):
                raise InvalidOption(f"{name}: {topic}-{partition} is {number!r}, but must be {meaning}")
            result[TopicPartition(topic, int(partition))] = number
    return dict(sorted(result.items()))


# --- Warnings --------------------------------------------------------------------------------------------------


def _warnings(given: Mapping[str, str], *, is_stream: bool) -> list[str]:
    warnings = []
    for name in () if is_stream else STREAM_ONLY:
        if name.lower() in given:
            warnings.append(f"option {name} is for streams and has no effect in a batch query")
    if is_stream and boolean(given, "pushdown", False):
        warnings.append("option pushdown has no effect in a stream: Spark hands filters to batch queries only")
    if "kafka.group.id" in given:
        advice = "; commitGroup shows a group where the query is" if is_stream else ""
        warnings.append(f"option kafka.group.id has no effect: a query joins no consumer group{advice}")
    return warnings + unknown_options(given, KNOWN)
