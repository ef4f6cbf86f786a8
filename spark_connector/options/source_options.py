"""The options of `spark.read.format("strandline")`: names, defaults and meaning of Spark's Kafka source. Pure.
What only streams have is in stream_options.py.

`parse_options` turns the strings into one checked value; nothing here talks to a cluster, so partitions that do not
exist are found later (planning.py). Rules:

* Names are case-insensitive; the user's own spelling is lost on the way, so messages use the documented one.
* Where a read begins and ends: start_and_end.py. A stream has no end, and begins at latest unless told otherwise.
* Which options there are: table.py. `kafka.*` options that a Spark query must not change are refused, those our client
  knows are passed on; the others, and options without effect here, only bring a warning (names.py).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import InvalidOption
from strandline.spark_connector.options.names import bootstrap_servers, check_names, client_settings, near
from strandline.spark_connector.options.request import (
    COLUMNS,
    EVERYTHING,
    HEADERS,
    Assign,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    Subscription,
)
from strandline.spark_connector.options.start_and_end import check_order, ending, starting
from strandline.spark_connector.options.table import Use
from strandline.spark_connector.options.values import MAX_INT, boolean, is_partition, json_object, number, positive
from strandline.spark_connector.options.where import condition

SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
ENDINGS = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")
ISOLATION_LEVELS = ("read_uncommitted", "read_committed")


def parse_options(options: Mapping[str, str], *, is_stream: bool = False) -> SourceOptions:
    """Check all options. Raises InvalidOption naming the option, the value and what is allowed."""
    given = {key.lower(): value for key, value in options.items()}
    use = Use.STREAM if is_stream else Use.BATCH
    for name in ENDINGS:
        if is_stream and name.lower() in given:
            raise InvalidOption(f"ending offset not valid in streaming queries: leave out the option {name}")
    if is_stream and "where" in given:
        raise InvalidOption("where is not valid in streaming queries: filter() the DataFrame")
    warnings = check_names(given, use)
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if strategy not in ("error", "latest"):
        raise InvalidOption(f"startingOffsetsByTimestampStrategy must be error or latest, not {strategy!r}")
    settings, without_effect = client_settings(given, use)
    for name in ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"):
        if name.lower() in given and number(given[name.lower()]) is None:
            raise InvalidOption(f"{name} must be a whole number, not {given[name.lower()]!r}")
    if "kafka.group.id" in given:
        advice = "; commitGroup shows a group where the query is" if is_stream else ""
        warnings.append(f"option kafka.group.id has no effect: a query joins no consumer group{advice}")
    if boolean(given, "pushdown", False) and not is_stream:
        warnings.append("option pushdown has no effect: Spark filters by itself; where narrows what is read")
    start, end = starting(given, is_stream=is_stream), ending(given)
    check_order(start, end)
    return SourceOptions(
        bootstrap_servers=bootstrap_servers(given),
        subscription=_subscription(given),
        starting=start,
        ending=end,
        late_start_is_latest=strategy == "latest",
        fail_on_data_loss=boolean(given, "failOnDataLoss", True),
        min_partitions=positive(given, "minPartitions", most=MAX_INT),
        max_records_per_partition=positive(given, "maxRecordsPerPartition"),
        columns=_columns(given),
        poll_timeout_ms=positive(given, "kafkaConsumer.pollTimeoutMs"),
        isolation_level=_isolation_level(given),
        log_reads=boolean(given, "logReads", True),
        condition=condition(given["where"]) if "where" in given else EVERYTHING,
        client_settings=settings,
        warnings=(*without_effect, *warnings),
    )


def _subscription(given: Mapping[str, str]) -> Subscription:
    """Exactly one of subscribe (or path), subscribePattern, assign."""
    present = [name for name in (*SUBSCRIPTIONS, "path") if name.lower() in given]
    if len(present) != 1:
        found = f"{' and '.join(present)} are set" if present else "none is set"
        if "paths" in given:  # what Spark makes of load(['one', 'other'])
            found += "; load() takes one topic: several are named in subscribe, with commas between them"
        raise InvalidOption(
            "Exactly one of the options 'subscribe', 'subscribePattern' and 'assign' must say which topics to read "
            f"(load('topic') counts as subscribe); {found}"
        )
    name, value = present[0], given[present[0].lower()].strip()
    if name == "assign":
        return Assign(_assigned(value))
    if name == "subscribePattern":
        if not value:
            raise InvalidOption(
                "Pattern to subscribe is empty as specified value for option 'subscribePattern'; give a regular "
                "expression that is looked for in names, such as '^clicks-'"
            )
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


def _isolation_level(given: Mapping[str, str]) -> str:
    names = [name for name in ("isolationLevel", "kafka.isolation.level") if name.lower() in given]
    levels = {given[name.lower()].strip().lower(): name for name in names}
    for level, name in levels.items():
        if level not in ISOLATION_LEVELS:
            raise InvalidOption(f"{name} must be {' or '.join(ISOLATION_LEVELS)}, not {level!r}")
    if len(levels) > 1:
        raise InvalidOption("isolationLevel and kafka.isolation.level differ; give one of them")
    return next(iter(levels), ISOLATION_LEVELS[0])


def _columns(given: Mapping[str, str]) -> tuple[str, ...]:
    """`key,value`: the columns in the order in which they are named; includeHeaders adds `headers` behind them."""
    value = given.get("columns")
    names = COLUMNS if value is None else _named_columns(value)
    with_headers = boolean(given, "includeHeaders", HEADERS in names)
    if with_headers and HEADERS not in names:
        return (*names, HEADERS)
    if HEADERS in names and not with_headers:
        raise InvalidOption("columns names headers and includeHeaders is false; leave out one of them")
    return names


def _named_columns(value: str) -> tuple[str, ...]:
    by_lower = {name.lower(): name for name in (*COLUMNS, HEADERS)}
    names: list[str] = []
    for given_name in value.split(","):
        name = by_lower.get(given_name.strip().lower())
        if name is None:
            nearest = near(given_name.strip(), (*COLUMNS, HEADERS))
            raise InvalidOption(
                f"columns {value!r}: there is no column {given_name.strip()!r}{nearest}; name some of "
                f"{', '.join((*COLUMNS, HEADERS))}"
            )
        if name in names:
            raise InvalidOption(f"columns {value!r} names {name} twice; name each column once")
        names.append(name)
    return tuple(names)
