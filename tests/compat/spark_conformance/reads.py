"""Batch reads: every option, and every kind of topic."""

from __future__ import annotations

import json

from compat.spark_conformance.cases import Case
from compat.spark_conformance.running import OWN, Read, ReadAgain
from compat.spark_conformance.topics import FIRST_MS, STEP_MS


def per_partition(topic: str, *numbers: int) -> str:
    return json.dumps({topic: {str(partition): number for partition, number in enumerate(numbers)}})


def at(number: int) -> int:
    """When record `number` of a topic was made."""
    return FIRST_MS + STEP_MS * number


def read(name: str, rows: int | None = None, words: tuple[str, ...] = (), schema: str = "", **options: str) -> Case:
    """Options with dots in their names are written with two underscores."""
    return Case(name, Read({key.replace("__", "."): value for key, value in options.items()}, schema), rows, words)


def refused(name: str, *words: str, schema: str = "", **options: str) -> Case:
    return read(name, None, words, schema, **options)


PLAIN = {"subscribe": "plain"}

CASES: tuple[Case, ...] = (
    # --- which topics ---
    read("subscribe: one topic", 90, **PLAIN),
    read("subscribe: several topics, with blanks", 100, subscribe=" plain , more,"),
    read("subscribePattern: some topics", 100, subscribePattern="plain|mo.*"),
    read("subscribePattern: no topic", 0, subscribePattern="nothing.*"),
    read("subscribePattern: internal topics are left out", 0, subscribePattern="__consumer.*"),
    read("subscribePattern: a part of a name", 90, subscribePattern="lai"),
    read("subscribePattern: a part of a name that is none", 0, subscribePattern="^lai|plai$"),
    read("subscribePattern: whole names", 90, subscribePattern="^(plain|mor)$"),
    read("subscribePattern: classes that only Java has", 90, subscribePattern=r"\p{Lower}lain"),
    read("assign: some partitions of several topics", 65, assign='{"plain":[0,2],"more":[1]}'),
    refused("no topics", "subscribe", "subscribePattern".lower(), "assign"),
    refused("two ways to name topics", "subscribe", "assign", subscribe="plain", assign='{"plain":[0]}'),
    refused("subscribe: nothing", "No topics to subscribe to as specified value for option", subscribe=" , "),
    refused("subscribePattern: nothing", "Pattern to subscribe is empty", subscribePattern=" "),
    refused("assign: no JSON", "to assign", "'assign' is 'plain'", assign="plain"),
    refused("assign: no list of partitions", "[0,1]", assign='{"plain":0}'),
    refused("no brokers", "kafka.bootstrap.servers", "must be specified", kafka__bootstrap__servers="", **PLAIN),
    refused("subscribe: an unknown topic", "does not", subscribe="unheard-of"),
    read("assign: an unknown partition", 30, assign='{"plain":[0,7]}'),
    # --- where it begins and ends ---
    read("startingOffsets: earliest", 90, startingOffsets="earliest", **PLAIN),
    read("startingOffsets: EARLIEST in capitals", 90, startingOffsets="EARLIEST", **PLAIN),
    read("startingOffsets: JSON", 90 - 10 - 5, startingOffsets=per_partition("plain", 10, -2, 5), **PLAIN),
    read(
        "startingOffsets and endingOffsets: JSON",
        10 + 5 + 10,
        startingOffsets=per_partition("plain", 10, -2, 20),
        endingOffsets=per_partition("plain", 20, 5, -1),
        **PLAIN,
    ),
    read(
        "endingOffsets: what begins where it ends",
        0,
        startingOffsets=per_partition("plain", 10, 30, 0),
        endingOffsets=per_partition("plain", 10, -1, 0),
        **PLAIN,
    ),
    read("endingOffsets: latest", 90, endingOffsets="latest", **PLAIN),
    refused(
        "startingOffsets: latest",
        "starting offset can't be latest for batch queries",
        startingOffsets="latest",
        **PLAIN,
    ),
    refused(
        "startingOffsets: -1 in JSON",
        "startingOffsets for plain-1 can't be latest",
        "for batch queries",
        startingOffsets=per_partition("plain", 0, -1, 0),
        **PLAIN,
    ),
    refused("endingOffsets: earliest", "ending offset can't be earliest", endingOffsets="earliest", **PLAIN),
    refused(
        "endingOffsets: -2 in JSON",
        "plain-1 can't be earliest",
        endingOffsets=per_partition("plain", 10, -2, 10),
        **PLAIN,
    ),
    refused(
        "startingOffsets: a partition is missing",
        "Use -1 for latest, -2 for earliest",
        "Specified:",
        "Assigned:",
        startingOffsets=per_partition("plain", 0, 0),
        **PLAIN,
    ),
    refused(
        "startingOffsets: a partition too many",
        "Use -1 for latest, -2 for earliest",
        "plain-3",
        startingOffsets=per_partition("plain", 0, 0, 0, 0),
        **PLAIN,
    ),
    refused(
        "startingOffsets: another topic",
        "Use -1 for latest, -2 for earliest",
        "more-0",
        startingOffsets=per_partition("more", 0, 0),
        **PLAIN,
    ),
    refused("startingOffsets: an unknown word", "now", startingOffsets="now", **PLAIN),
    refused(
        "endingOffsets: a partition is missing",
        "Specified:",
        "Assigned:",
        endingOffsets=per_partition("plain", 9, 9),
        **PLAIN,
    ),
    refused(
        "startingOffsets and endingOffsets: other partitions",
        "plain-2",
        startingOffsets=per_partition("plain", 0, 0),
        endingOffsets=per_partition("plain", 9, 9, 9),
        **PLAIN,
    ),
    refused(
        "startingOffsets: behind endingOffsets",
        "greater than",
        "20",
        "10",
        startingOffsets=per_partition("plain", 20, 0, 0),
        endingOffsets=per_partition("plain", 10, 9, 9),
        **PLAIN,
    ),
    refused(
        "startingOffsets: behind the end of the topic",
        "greater than",
        "500",
        startingOffsets=per_partition("plain", 500, 0, 0),
        **PLAIN,
    ),
    refused(
        "endingOffsets: behind the end of the topic",
        "500",
        endingOffsets=per_partition("plain", 500, 9, 9),
        kafkaConsumer__pollTimeoutMs="3000",
        **PLAIN,
    ),
    # --- times ---
    read("startingTimestamp", 60, startingTimestamp=str(at(30)), **PLAIN),
    read("startingTimestamp: between two records", 59, startingTimestamp=str(at(30) + 1), **PLAIN),
    read(
        "startingTimestamp and endingTimestamp", 6, startingTimestamp=str(at(30)), endingTimestamp=str(at(36)), **PLAIN
    ),
    read("endingTimestamp: behind the last record", 90, endingTimestamp=str(at(1000)), **PLAIN),
    read(
        "startingOffsetsByTimestamp",
        30 + 20 + 1,
        startingOffsetsByTimestamp=per_partition("plain", at(0), at(31), at(89)),
        **PLAIN,
    ),
    read(
        "endingOffsetsByTimestamp",
        0 + 10 + 30,
        endingOffsetsByTimestamp=per_partition("plain", at(0), at(31), at(1000)),
        **PLAIN,
    ),
    read(
        "startingTimestamp goes before all others",
        60,
        startingTimestamp=str(at(30)),
        startingOffsetsByTimestamp=per_partition("plain", at(0), at(0), at(0)),
        startingOffsets=per_partition("plain", 1, 1, 1),
        **PLAIN,
    ),
    read(
        "startingOffsetsByTimestamp goes before startingOffsets",
        51,
        startingOffsetsByTimestamp=per_partition("plain", at(0), at(31), at(89)),
        startingOffsets="earliest",
        **PLAIN,
    ),
    read(
        "endingTimestamp goes before all others",
        30,
        endingTimestamp=str(at(30)),
        endingOffsetsByTimestamp=per_partition("plain", at(0), at(0), at(0)),
        endingOffsets=per_partition("plain", 1, 1, 1),
        **PLAIN,
    ),
    refused(
        "startingTimestamp: no record is so young", "plain-", str(at(1000)), startingTimestamp=str(at(1000)), **PLAIN
    ),
    read(
        "startingOffsetsByTimestampStrategy: latest",
        0,
        startingTimestamp=str(at(1000)),
        startingOffsetsByTimestampStrategy="latest",
        **PLAIN,
    ),
    read(
        "startingOffsetsByTimestampStrategy: LATEST, of one partition",
        60,
        startingOffsetsByTimestamp=per_partition("plain", at(0), at(1000), at(0)),
        startingOffsetsByTimestampStrategy="LATEST",
        **PLAIN,
    ),
    refused(
        "startingOffsetsByTimestampStrategy: an unknown word",
        "never",
        startingTimestamp=str(at(1000)),
        startingOffsetsByTimestampStrategy="never",
        **PLAIN,
    ),
    refused("startingTimestamp: no number", "Expected a single long value", startingTimestamp="yesterday", **PLAIN),
    refused(
        "startingOffsetsByTimestamp: a partition is missing",
        "Specified:",
        "Assigned:",
        startingOffsetsByTimestamp=per_partition("plain", at(0)),
        **PLAIN,
    ),
    # --- data that is gone ---
    read("a truncated topic from its beginning", 50, subscribe="truncated"),
    refused(
        "failOnDataLoss: the start is gone",
        "failOnDataLoss",
        subscribe="truncated",
        startingOffsets=per_partition("truncated", 0, 0, 0),
    ),
    read(
        "failOnDataLoss=false: the start is gone",
        50,
        subscribe="truncated",
        startingOffsets=per_partition("truncated", 0, 0, 0),
        failOnDataLoss="false",
    ),
    read(
        "failOnDataLoss=false: the end is not there yet",
        30 + 30 + 30,
        endingOffsets=per_partition("plain", 35, -1, -1),
        kafkaConsumer__pollTimeoutMs="3000",
        failOnDataLoss="false",
        **PLAIN,
    ),
    read("failOnDataLoss=false: an unknown topic", None, ("does not",), subscribe="unheard-of", failOnDataLoss="false"),
    # --- tasks ---
    read("minPartitions: fewer than there are", 90, minPartitions="2", **PLAIN),
    read("minPartitions: more than there are", 90, minPartitions="8", **PLAIN),
    read("minPartitions: large partitions are cut, small ones are not", 111, minPartitions="10", subscribe="uneven"),
    read(
        "minPartitions: ranges without records are dropped",
        90,
        minPartitions="8",
        subscribe="plain,empty",
    ),
    read("maxRecordsPerPartition", 90, maxRecordsPerPartition="8", **PLAIN),
    read(
        "maxRecordsPerPartition: of offsets in JSON",
        90,
        maxRecordsPerPartition="8",
        startingOffsets=per_partition("plain", 0, 0, 0),
        endingOffsets=per_partition("plain", 30, 30, 30),
        **PLAIN,
    ),
    read(
        "maxRecordsPerPartition and minPartitions",
        111,
        maxRecordsPerPartition="40",
        minPartitions="9",
        subscribe="uneven",
    ),
    refused("minPartitions: 0", "minPartitions must be", "positive", minPartitions="0", **PLAIN),
    refused("minPartitions: no number", "many", minPartitions="many", **PLAIN),
    refused(
        "maxRecordsPerPartition: -1", "maxRecordsPerPartition must be", "positive", maxRecordsPerPartition="-1", **PLAIN
    ),
    # --- other options ---
    read("includeHeaders", 90, includeHeaders="true", **PLAIN),
    read("includeHeaders=false", 90, includeHeaders="false", **PLAIN),
    refused("includeHeaders: neither true nor false", "perhaps", includeHeaders="perhaps", **PLAIN),
    refused("failOnDataLoss: neither true nor false", "perhaps", failOnDataLoss="perhaps", **PLAIN),
    read("names of options in any case", 90, SUBSCRIBE="plain", INCLUDEHEADERS="true", StartingOffSets="earliest"),
    read(
        "options of streams are passed over",
        90,
        maxOffsetsPerTrigger="3",
        minOffsetsPerTrigger="2",
        maxTriggerDelay="1s",
        **PLAIN,
    ),
    read("groupIdPrefix and kafka.group.id", 90, groupIdPrefix="mine", kafka__group__id="somebody", **PLAIN),
    read(
        "fetchOffset.numRetries and its pause",
        90,
        fetchOffset__numRetries="1",
        fetchOffset__retryIntervalMs="10",
        **PLAIN,
    ),
    read("kafka.isolation.level", 90, kafka__isolation__level="read_committed", **PLAIN),
    read(
        "settings of the client",
        90,
        kafka__fetch__max__bytes="1000",
        kafka__max__partition__fetch__bytes="500",
        **PLAIN,
    ),
    read("an option that nobody knows", 90, nobodyKnows="this", **PLAIN),
    refused("a schema of the user's", "schema", schema="value binary", **PLAIN),
    refused(
        "kafka.auto.offset.reset", "auto.offset.reset", "not supported", kafka__auto__offset__reset="earliest", **PLAIN
    ),
    refused("kafka.key.deserializer", "key.deserializer", "not supported", kafka__key__deserializer="x", **PLAIN),
    refused("kafka.value.deserializer", "value.deserializer", "not supported", kafka__value__deserializer="x", **PLAIN),
    refused(
        "kafka.enable.auto.commit", "enable.auto.commit", "not supported", kafka__enable__auto__commit="true", **PLAIN
    ),
    refused(
        "kafka.interceptor.classes", "interceptor.classes", "not supported", kafka__interceptor__classes="x", **PLAIN
    ),
    # --- kinds of topics ---
    read("an empty topic", 0, subscribe="empty", includeHeaders="true"),
    read("one record", 1, subscribe="one-record", includeHeaders="true"),
    read("every codec", 100, subscribe="every-codec", includeHeaders="true"),
    read("times set by the brokers", 20, subscribe="set-by-brokers"),
    read("large records", 3, subscribe="large"),
    read("a compacted topic", None, subscribe="compacted", includeHeaders="true"),
    read(
        "a compacted topic: a range that begins and ends in holes",
        None,
        subscribe="compacted",
        startingOffsets=per_partition("compacted", 7),
        endingOffsets=per_partition("compacted", 333),
        minPartitions="4",
    ),
    # --- how often it is read ---
    Case("the same DataFrame again after more was written", ReadAgain({"subscribe": OWN}), rows=20),
)
