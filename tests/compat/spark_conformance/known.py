"""Where Spark's Kafka connector and ours differ, and why. Whatever differs and is not here fails the suite, and so does
what is here and does not differ any more.
"""

from __future__ import annotations

from compat.spark_conformance.cases import Known

KNOWN: tuple[Known, ...] = (
    # --- which topics ---
    Known(
        "fails",
        "patterns are Python's, which have no \\p{…} and the like",
        ("subscribePattern: classes that only Java has",),
    ),
    Known(
        "fails",
        "a partition that does not exist is a mistake; Spark's reads the others and says nothing",
        ("assign: an unknown partition",),
    ),
    # --- tasks ---
    Known(
        "tasks",
        "ours gives no task to a partition without anything to read; Spark's does unless minPartitions is set. Where "
        "nothing is to be read at all, Spark gives a source in Python one task",
        (
            "subscribePattern: no topic",
            "subscribePattern: internal topics are left out",
            "subscribePattern: a part of a name that is none",
            "endingOffsets: what begins where it ends",
            "endingOffsetsByTimestamp",
            "startingOffsetsByTimestampStrategy: latest",
            "startingOffsetsByTimestampStrategy: LATEST, of one partition",
            "a truncated topic from its beginning",
            "failOnDataLoss=false: the start is gone",
            "an empty topic",
            "one record",
        ),
    ),
    Known(
        "tasks",
        "ours cuts ranges by what they hold; Spark's compares the numbers for earliest and latest and never cuts these",
        ("maxRecordsPerPartition",),
    ),
    Known(
        "rows",
        "Spark plans a source in Python once for each load() and uses that plan for everything that is asked of the "
        "DataFrame; its own connector is asked anew by every query. Call load() again to see what was written since",
        ("the same DataFrame again after more was written",),
    ),
    # --- errors ---
    Known("condition", "Spark's calls the end a start", ("endingOffsets: a partition is missing",)),
    Known(
        "condition",
        "Spark itself refuses a schema that its source does not have; ours refuses any, with the text of Spark's "
        "documentation",
        ("a schema of the user's",),
    ),
    Known("condition", "Spark has a condition for this in its sink only", ("sink: no brokers",)),
    Known(
        "condition",
        "ours has one condition for a start that the partition does not hold, that of Spark's older reader; its newer "
        "one has two others",
        ("stream: a start behind the end of the topic", "stream: a start before the beginning of the topic"),
    ),
    # --- streams ---
    Known(
        "fails",
        "an end makes no sense in a stream in whatever form it is given; Spark's passes over this one",
        ("stream: endingTimestamp",),
    ),
    Known(
        "schema",
        "Spark takes no metrics from a source in Python, and no description; latestOffset tells the lag",
        ("stream: what its progress tells",),
    ),
    Known(
        "rows batches offsets",
        "with Trigger.AvailableNow nothing more is to come for which ours could wait; Spark's leaves what is less than "
        "the minimum to the next run",
        ("stream: minOffsetsPerTrigger with Trigger.AvailableNow",),
    ),
    Known(
        "condition",
        "ours knows topics by their ids: what was left of the old one is lost, whatever the new one holds",
        ("stream: the topic is created anew, with fewer records",),
    ),
    Known(
        "fails",
        "ours knows topics by their ids; Spark's takes the new topic for the old one and passes over its first records",
        ("stream: the topic is created anew, with more records",),
    ),
    Known(
        "rows batches offsets",
        "ours reads the new topic from its beginning; Spark's passes over as many records as the old one had",
        ("stream: failOnDataLoss=false, the topic is created anew with fewer records",),
    ),
    Known(
        "fails",
        "ours goes on with the topics that are left, since failOnDataLoss=false says so",
        ("stream: failOnDataLoss=false, one of two topics is deleted",),
    ),
    Known(
        "fails",
        "our offsets hold the topics' ids, which Spark's Kafka source does not take; ours takes its offsets",
        ("stream: Spark's Kafka source goes on from the checkpoint",),
    ),
    # --- sinks ---
    Known(
        "rows",
        "ours writes the column timestamp; the connector of Spark 4.2 does not, later ones do",
        ("sink: timestamps", "sink: a stream in mode append"),
    ),
    Known("fails", "ours writes timestamps, so they have to be some", ("sink: timestamps that are text",)),
    Known(
        "rows",
        "ours leaves headers out where includeHeaders is false; Spark's writes them whatever it says",
        ("sink: headers with includeHeaders=false",),
    ),
    Known("words", "Spark's ends with a NullPointerException that names nothing", ("sink: a header without a key",)),
    Known(
        "fails",
        "what Spark counts as written must be held by all replicas in sync",
        ("sink: kafka.acks",),
    ),
    Known(
        "fails",
        "Spark lets sinks in Python append and overwrite only; say mode('append')",
        ("sink: mode error, the default",),
    ),
    Known("fails", "Spark lets sinks in Python append and complete only", ("sink: a stream in mode update",)),
)
