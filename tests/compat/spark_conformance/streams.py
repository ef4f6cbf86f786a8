"""Streaming reads: where a query begins, how much a batch takes, what happens to topics meanwhile, checkpoints."""

from __future__ import annotations

import json
from collections.abc import Callable
from operator import methodcaller
from typing import Any

from compat.spark_conformance.cases import KAFKA, STRANDLINE, Case
from compat.spark_conformance.running import OWN, Progress, RunningStream, Stream
from compat.spark_conformance.topics import FIRST_MS, STEP_MS

Step = Callable[[RunningStream], None]

run: Step = methodcaller("run")
begin: Step = methodcaller("begin")
catch_up: Step = methodcaller("catch_up")
halt: Step = methodcaller("halt")
delete: Step = methodcaller("delete")


def step(name: str, *arguments: Any, **options: str) -> Step:
    """`step("write", 30)`: a method of RunningStream, called when it is the case's turn."""
    return methodcaller(name, *arguments, **options)


def stream(
    name: str,
    *steps: Step,
    rows: int | None = None,
    words: tuple[str, ...] = (),
    partitions: int = 0,
    ignores: tuple[str, ...] = (),
    is_long: bool = False,
    **options: str,
) -> Case:
    """Without `partitions` it reads the shared topic `plain`, else one that it has for itself."""
    given = {key.replace("__", "."): value for key, value in options.items()}
    if not {"subscribe", "subscribePattern", "assign"} & set(given):
        given["subscribe"] = OWN if partitions else "plain"
    return Case(name, Stream(given, steps or (run,), partitions), rows, words, ignores, is_long)


def own(*offsets: int) -> str:
    return json.dumps({OWN: {str(partition): offset for partition, offset in enumerate(offsets)}})


def plain(*numbers: int) -> str:
    return json.dumps({"plain": {str(partition): number for partition, number in enumerate(numbers)}})


EARLIEST = {"startingOffsets": "earliest"}
BEGIN = (step("write", 30), run)

CASES: tuple[Case, ...] = (
    # --- where it begins ---
    stream("stream: latest by default", step("write", 9), run, step("write", 5), run, partitions=2, rows=5),
    stream("stream: earliest, with headers", includeHeaders="true", rows=90, **EARLIEST),
    stream("stream: subscribePattern: a part of a name", subscribePattern="lai", rows=90, **EARLIEST),
    stream("stream: offsets in JSON", startingOffsets=plain(10, -2, -1), rows=20 + 30),
    stream("stream: startingTimestamp", startingTimestamp=str(FIRST_MS + STEP_MS * 30), rows=60),
    stream(
        "stream: startingOffsetsByTimestamp",
        startingOffsetsByTimestamp=plain(FIRST_MS, FIRST_MS + STEP_MS * 31, FIRST_MS + STEP_MS * 89),
        rows=51,
    ),
    stream(
        "stream: startingTimestamp, no record is so young",
        startingTimestamp=str(FIRST_MS * 2),
        words=("plain-", str(FIRST_MS * 2)),
    ),
    stream(
        "stream: startingOffsetsByTimestampStrategy=latest",
        startingTimestamp=str(FIRST_MS * 2),
        startingOffsetsByTimestampStrategy="latest",
        rows=0,
        is_long=True,
    ),
    stream(
        "stream: a start behind the end of the topic",
        startingOffsets=plain(500, 0, 0),
        words=("plain-0", "500"),
    ),
    stream(
        "stream: a start before the beginning of the topic",
        subscribe="truncated",
        startingOffsets=plain(0, 0, 0).replace("plain", "truncated"),
        words=("truncated-", "failOnDataLoss"),
    ),
    stream(
        "stream: startingOffsets without all partitions",
        startingOffsets=plain(0, 0),
        words=("Use -1 for latest, -2 for earliest", "Specified:", "Assigned:"),
    ),
    stream(
        "stream: starting options count for a new query only",
        *BEGIN,
        step("set", startingOffsets="latest"),
        step("write", 6),
        run,
        partitions=2,
        rows=36,
        is_long=True,
        **EARLIEST,
    ),
    stream("stream: endingOffsets", endingOffsets="latest", words=("ending offset not valid in streaming queries",)),
    stream("stream: endingTimestamp", endingTimestamp=str(FIRST_MS), startingOffsets="earliest", rows=90),
    stream(
        "stream: endingOffsetsByTimestamp",
        endingOffsetsByTimestamp=plain(FIRST_MS, FIRST_MS, FIRST_MS),
        words=("ending", "not valid in streaming queries"),
    ),
    stream("stream: assign", assign='{"plain":[1]}', rows=30, **EARLIEST),
    Case(
        "stream: a schema of the user's",
        Stream({"subscribe": "plain"}, (run,), schema="value binary"),
        words=("schema",),
    ),
    stream("stream: an unknown topic", subscribe="unheard-of", words=("does not",)),
    Case("stream: what its progress tells", Progress({"subscribe": "plain", "startingOffsets": "earliest"})),
    # --- how much a batch takes ---
    stream("stream: maxOffsetsPerTrigger", maxOffsetsPerTrigger="40", rows=90, **EARLIEST),
    stream(
        "stream: maxOffsetsPerTrigger starves no small partition",
        subscribe="uneven",
        maxOffsetsPerTrigger="50",
        rows=111,
        **EARLIEST,
    ),
    stream(
        "stream: maxOffsetsPerTrigger below the number of partitions",
        subscribe="uneven,more",
        maxOffsetsPerTrigger="25",
        rows=121,
        is_long=True,
        **EARLIEST,
    ),
    stream(
        "stream: minOffsetsPerTrigger",
        step("write", 10),
        begin,
        catch_up,
        step("write", 5),
        catch_up,
        step("write", 15),
        catch_up,
        halt,
        partitions=2,
        minOffsetsPerTrigger="20",
        rows=30,
        **EARLIEST,
    ),
    stream(
        "stream: minOffsetsPerTrigger and maxOffsetsPerTrigger",
        step("write", 10),
        run,
        step("write", 30),
        run,
        step("write", 7),
        run,
        partitions=2,
        minOffsetsPerTrigger="8",
        maxOffsetsPerTrigger="20",
        rows=47,
        **EARLIEST,
    ),
    stream(
        "stream: minOffsetsPerTrigger with Trigger.AvailableNow",
        step("write", 30),
        run,
        partitions=2,
        minOffsetsPerTrigger="15",
        maxOffsetsPerTrigger="20",
        rows=20,
        **EARLIEST,
    ),
    stream(
        "stream: maxTriggerDelay ends the wait",
        step("write", 10),
        begin,
        catch_up,
        step("write", 5),
        step("until_rows", 15),
        halt,
        partitions=2,
        minOffsetsPerTrigger="20",
        maxTriggerDelay="1s",
        rows=15,
        ignores=("batches", "offsets"),
        **EARLIEST,
    ),
    stream(
        "stream: minOffsetsPerTrigger above maxOffsetsPerTrigger",
        minOffsetsPerTrigger="3",
        maxOffsetsPerTrigger="2",
        words=("3", "2", "higher than"),
    ),
    stream("stream: maxOffsetsPerTrigger is no number", maxOffsetsPerTrigger="many", words=("many",)),
    stream("stream: maxTriggerDelay is no time", minOffsetsPerTrigger="2", maxTriggerDelay="soon", words=("soon",)),
    stream("stream: minPartitions", minPartitions="8", rows=90, is_long=True, **EARLIEST),
    # --- what happens to topics ---
    stream(
        "stream: a checkpoint, nothing new, something new",
        *BEGIN,
        run,
        step("write", 7),
        run,
        partitions=3,
        rows=37,
        **EARLIEST,
    ),
    stream(
        "stream: partitions are added",
        *BEGIN,
        step("grow", 4),
        step("write", 12),
        run,
        partitions=2,
        rows=42,
        **EARLIEST,
    ),
    stream("stream: an empty topic", run, partitions=2, rows=0, is_long=True, **EARLIEST),
    stream(
        "stream: the records are truncated before they are read",
        *BEGIN,
        step("write", 10),
        step("delete_records", 0, 18),
        run,
        partitions=2,
        words=("failOnDataLoss",),
        **EARLIEST,
    ),
    stream(
        "stream: failOnDataLoss=false, truncated",
        *BEGIN,
        step("write", 10),
        step("delete_records", 0, 18),
        run,
        partitions=2,
        failOnDataLoss="false",
        rows=37,
        **EARLIEST,
    ),
    stream(
        "stream: an added partition has lost its first records",
        *BEGIN,
        step("grow", 2),
        step("write", 10),
        step("delete_records", 1, 3),
        run,
        partitions=1,
        words=("failOnDataLoss", "3"),
        **EARLIEST,
    ),
    stream(
        "stream: failOnDataLoss=false, an added partition has lost its first records",
        *BEGIN,
        step("grow", 2),
        step("write", 10),
        step("delete_records", 1, 3),
        run,
        partitions=1,
        failOnDataLoss="false",
        rows=37,
        is_long=True,
        **EARLIEST,
    ),
    stream("stream: the topic is deleted", *BEGIN, delete, run, partitions=2, words=("partition",), **EARLIEST),
    stream(
        "stream: one of the topics of a pattern is deleted",
        *BEGIN,
        delete,
        run,
        partitions=2,
        subscribePattern=f"^{OWN}$|plain",
        words=("-0",),
        **EARLIEST,
    ),
    stream(
        "stream: failOnDataLoss=false, one of the topics of a pattern is deleted",
        *BEGIN,
        delete,
        run,
        partitions=2,
        subscribePattern=f"^{OWN}$|plain",
        failOnDataLoss="false",
        rows=120,
        is_long=True,
        **EARLIEST,
    ),
    stream(
        "stream: the topic is created anew, with fewer records",
        *BEGIN,
        delete,
        step("create", 2),
        step("write", 10),
        run,
        partitions=2,
        words=("failOnDataLoss",),
        **EARLIEST,
    ),
    stream(
        "stream: the topic is created anew, with more records",
        *BEGIN,
        delete,
        step("create", 2),
        step("write", 50),
        run,
        partitions=2,
        rows=50,
        **EARLIEST,
    ),
    stream(
        "stream: failOnDataLoss=false, the topic is created anew with fewer records",
        *BEGIN,
        delete,
        step("create", 2),
        step("write", 10),
        run,
        partitions=2,
        failOnDataLoss="false",
        rows=30,
        is_long=True,
        **EARLIEST,
    ),
    stream(
        "stream: failOnDataLoss=false, one of two topics is deleted",
        *BEGIN,
        delete,
        run,
        partitions=2,
        subscribe=OWN + ",plain",
        failOnDataLoss="false",
        is_long=True,
        words=("partition",),
        **EARLIEST,
    ),
    # --- checkpoints of the other ---
    stream(
        "stream: the other source goes on from the checkpoint",
        *BEGIN,
        step("become", STRANDLINE),
        step("write", 7),
        run,
        partitions=2,
        rows=37,
        **EARLIEST,
    ),
    stream(
        "stream: Spark's Kafka source goes on from the checkpoint",
        *BEGIN,
        step("become", KAFKA),
        step("write", 7),
        run,
        partitions=2,
        rows=37,
        is_long=True,
        **EARLIEST,
    ),
)
