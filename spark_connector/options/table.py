"""All options of source, stream and sink: the one place that says which there are. `docs/spark-options.md` is made from
it (reference.py), and what is known, refused, or without effect somewhere follows from it.

Rules: a new option gets its row here, in the order in which the page should show it; `default` is a value that the
option may be given and that changes nothing, or empty; `difference` says how it differs from Spark's Kafka connector,
and why. What a value looks like is checked where it is read (source_options.py, stream_options.py, sink_options.py).
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from strandline.spark_connector.options.request import DEFAULT_MAX_RECORDS_PER_TASK


class Use(enum.Flag):
    """Where an option has its effect."""

    BATCH = enum.auto()
    STREAM = enum.auto()
    SINK = enum.auto()
    SOURCE = BATCH | STREAM
    ALL = SOURCE | SINK


USES = {
    Use.BATCH: "batch reads",
    Use.STREAM: "streams that are read",
    Use.SINK: "writing",
    Use.SOURCE: "reading",
    Use.ALL: "reading and writing",
}
"""In words."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option; names are case-insensitive."""

    name: str
    kind: str
    default: str
    uses: Use
    meaning: str
    difference: str = ""


@dataclass(frozen=True, slots=True)
class RefusedOption:
    """An option of Kafka's clients that a query must not set."""

    name: str
    uses: Use
    why: str


DEFAULT_POLL_TIMEOUT_MS = 120_000
"""Spark's `spark.network.timeout`, where nobody sets that."""

DEFAULT_MAX_TRIGGER_DELAY_MS = 15 * 60 * 1000

_OURS = "Not in the JVM connector"
_OFFSETS = "earliest, latest, -N or JSON"
_TIME = "ms, ISO time or -10m"

OPTIONS = (
    Option(
        "kafka.bootstrap.servers",
        "host:port,…",
        "",
        Use.ALL,
        "Brokers to ask first; required.",
    ),
    Option("servers", "host:port,…", "", Use.ALL, "The same in short.", f"{_OURS}: less to type."),
    # --- What is read ---
    Option(
        "subscribe",
        "topic,…",
        "",
        Use.SOURCE,
        "All partitions of these topics. Exactly one of `subscribe`, `subscribePattern`, `assign` must be given.",
    ),
    Option(
        "path",
        "topic,…",
        "",
        Use.ALL,
        'What `load("clicks")` and `save("clicks")` give: `subscribe` of a read, `topic` of a sink.',
        f"{_OURS}, which ignores it.",
    ),
    Option(
        "subscribePattern",
        "regular expression",
        "",
        Use.SOURCE,
        "The topics in whose names the pattern is found, at any place: `^clicks-.*$` for whole names. Internal "
        "ones are left out.",
        "Python's regular expressions, not Java's: the source runs in Python. The JVM connector, too, looks for the "
        "pattern in names, but with `spark.sql.streaming.kafka.useDeprecatedOffsetFetching` it means whole names.",
    ),
    Option("assign", "JSON", "", Use.SOURCE, 'Exactly these partitions: `{"clicks":[0,1]}`.'),
    # --- From where to where ---
    Option(
        "startingTimestamp",
        _TIME,
        "",
        Use.SOURCE,
        "Begin at the first record that is not older; wins over the two below. `2026-03-01T12:00:00+01:00`, "
        "`2026-03-01`; UTC where no zone is given; `-10m`: that long before the query is planned (ms, s, m, h, d).",
        "The JVM connector takes milliseconds only. A session's time zone is not known where queries are planned.",
    ),
    Option(
        "startingOffsetsByTimestamp",
        "JSON",
        "",
        Use.SOURCE,
        'The same for each partition: `{"clicks":{"0":1700000000000,"1":"-10m","default":"2026-03-01"}}`.',
        "Texts, and a `default` for what is not named, are ours.",
    ),
    Option(
        "startingOffsets",
        _OFFSETS,
        "",
        Use.SOURCE,
        "`earliest` (default of a batch), `latest` (default of a stream, refused in a batch), `-100`: the last hundred "
        'of each partition, or `{"clicks":{"0":23,"1":-2,"2":"-100","default":"earliest"},"default":-1}`. In JSON the '
        "numbers -2 and -1 are earliest and latest. By itself, and as a text in JSON, `-1` is the last record of each "
        "partition and `-2` are the last two. Of a stream only for a new query: "
        "partitions that are found later are read from their beginning.",
        "`-N` and `default` are ours. JSON without a `default` must name all partitions, as there.",
    ),
    Option(
        "startingOffsetsByTimestampStrategy",
        "error or latest",
        "error",
        Use.SOURCE,
        "What to do where no record is young enough for the starting time.",
    ),
    Option(
        "endingTimestamp",
        _TIME,
        "",
        Use.BATCH,
        "End before the first record that is not older; wins over the two below. Ends are refused in streams.",
        "As `startingTimestamp`.",
    ),
    Option(
        "endingOffsetsByTimestamp",
        "JSON",
        "",
        Use.BATCH,
        "The same for each partition; latest where no record is young enough.",
        "As `startingOffsetsByTimestamp`.",
    ),
    Option(
        "endingOffsets",
        _OFFSETS,
        "latest",
        Use.BATCH,
        "Where to end, exclusive; `earliest` and -2 are refused.",
        "As `startingOffsets`.",
    ),
    Option(
        "failOnDataLoss",
        "true or false",
        "true",
        Use.SOURCE,
        "What is asked for and gone fails the query; with `false` it is a warning, and what is left is read.",
        "A topic that was deleted and created anew is told by its id, also where it has grown beyond the old offsets.",
    ),
    Option(
        "isolationLevel",
        "read_uncommitted or read_committed",
        "read_uncommitted",
        Use.SOURCE,
        "Whether records of open and aborted transactions are read. Checked now, has its effect with transactions.",
        f"{_OURS}: there it is `kafka.isolation.level`.",
    ),
    Option("kafka.isolation.level", "as isolationLevel", "", Use.SOURCE, "The same, as Kafka's clients call it."),
    # --- Columns ---
    Option(
        "includeHeaders",
        "true or false",
        "",
        Use.ALL,
        "Reading, `false` by default: a column `headers` more. Writing, `true` by default: the column `headers`, if "
        "there is one, is written.",
        "There the column is written whatever the option says.",
    ),
    Option(
        "columns",
        "name,…",
        "",
        Use.SOURCE,
        "Only these columns, in this order; nothing else is decoded or brought to Spark.",
        f"{_OURS}, which reads all: Spark prunes no columns of a Python source.",
    ),
    Option(
        "where",
        "condition",
        "",
        Use.BATCH,
        "Only rows that meet it, and no more is read than that needs: comparisons of `topic`, `partition`, `offset` or "
        "`timestamp` with constants, joined by AND, such as `partition IN (0, 2) AND timestamp >= '2026-03-01'`. Times "
        "are in UTC where they name no zone.",
        _OURS + ".",
    ),
    Option(
        "pushdown",
        "true or false",
        "false",
        Use.BATCH,
        "Accepted, has no effect: Spark filters by itself, and `where` narrows what is read.",
        f"{_OURS}. Spark keeps one plan of a Python source for all scans of a DataFrame, so filters that it pushed "
        "down would count for other queries, too.",
    ),
    # --- Tasks ---
    Option(
        "minPartitions",
        "integer above 0",
        "",
        Use.SOURCE,
        "About so many tasks, where there are fewer partitions; large ranges are cut.",
    ),
    Option(
        "maxRecordsPerPartition",
        "integer above 0",
        "",
        Use.SOURCE,
        f"No task reads more offsets. Where neither this nor `minPartitions` is given: {DEFAULT_MAX_RECORDS_PER_TASK}.",
        "By resolved offsets: there a read from earliest to latest is never cut. There is no default there.",
    ),
    Option(
        "kafkaConsumer.pollTimeoutMs",
        "integer above 0",
        "",
        Use.SOURCE,
        f"How long a task waits for records; `spark.network.timeout` by default, or {DEFAULT_POLL_TIMEOUT_MS}.",
    ),
    Option(
        "logReads",
        "true or false",
        "true",
        Use.SOURCE,
        "One line in the driver's log for each read and each batch of a stream that is planned: offsets, partitions, "
        "tasks, time, and how far each topic is behind the latest offsets.",
        f"{_OURS}; its source tells the lag in the query's progress, where no source in Python can.",
    ),
    # --- Streams ---
    Option(
        "maxOffsetsPerTrigger",
        "integer above 0",
        "",
        Use.STREAM,
        "A batch takes no more offsets, shared in proportion to what waits.",
    ),
    Option("minOffsetsPerTrigger", "integer above 0", "", Use.STREAM, "A batch waits until so many are there."),
    Option("maxTriggerDelay", "time", "15m", Use.STREAM, "How long it waits at most."),
    Option(
        "maxBytesPerTrigger",
        "integer above 0",
        "",
        Use.STREAM,
        "A batch takes about so many bytes of the log, where records are as their producers compressed them.",
        _OURS + ".",
    ),
    Option(
        "commitGroup",
        "group",
        "",
        Use.STREAM,
        "A consumer group to which the query commits how far it is, for those who watch lag; nothing is read from it.",
        f"{_OURS}, whose progress no lag tool sees.",
    ),
    # --- Accepted for queries that were written for Kafka ---
    Option(
        "groupIdPrefix",
        "text",
        "",
        Use.SOURCE,
        "Accepted, has no effect.",
        "Our reads join no consumer group.",
    ),
    Option(
        "kafka.group.id",
        "text",
        "",
        Use.SOURCE,
        "Accepted with a warning, has no effect.",
        "As above; `commitGroup` shows where a stream is.",
    ),
    Option(
        "fetchOffset.numRetries",
        "integer",
        "3",
        Use.SOURCE,
        "Accepted, has no effect.",
        "Our client repeats what fails until `kafka.default.api.timeout.ms`.",
    ),
    Option(
        "fetchOffset.retryIntervalMs",
        "integer",
        "10",
        Use.SOURCE,
        "Accepted, has no effect.",
        "As above, waiting `kafka.retry.backoff.ms`.",
    ),
    # --- Writing ---
    Option("topic", "topic", "", Use.SINK, "Where all rows go; wins over the column `topic`."),
    Option(
        "exactlyOnce",
        "true or false",
        "true",
        Use.SINK,
        "A task that is tried again, and a batch of a stream that is repeated after a restart, writes nothing twice; "
        "with `false` it writes all its rows again.",
        "There it is always as with `false`.",
    ),
    Option(
        "writeId",
        "text",
        "",
        Use.SINK,
        "Of a batch: a later write with the same `writeId` and `writeVersion` goes on with this one instead of writing "
        "all rows again. Letters, digits, dots, hyphens and underscores.",
        _OURS + ".",
    ),
    Option(
        "writeVersion",
        "integer from 0 on",
        "0",
        Use.SINK,
        "Tells the writes of one `writeId` from one another, and never falls: in `foreachBatch` the batch's number.",
        _OURS + ".",
    ),
    Option("checkpointLocation", "folder", "", Use.SINK, "Of a stream: Spark's own option, which reaches the sink."),
)

REFUSED_OPTIONS = (
    RefusedOption("kafka.auto.offset.reset", Use.SOURCE, "use startingOffsets"),
    RefusedOption("kafka.key.deserializer", Use.SOURCE, "keys are binary; cast the column after load()"),
    RefusedOption("kafka.value.deserializer", Use.SOURCE, "values are binary; cast the column after load()"),
    RefusedOption("kafka.enable.auto.commit", Use.SOURCE, "Spark keeps the offsets, nothing is committed to a group"),
    RefusedOption("kafka.interceptor.classes", Use.SOURCE, "interceptors could change what Spark counts on"),
    RefusedOption("kafka.key.serializer", Use.SINK, "keys are text or binary"),
    RefusedOption("kafka.value.serializer", Use.SINK, "values are text or binary"),
    RefusedOption("kafka.acks", Use.SINK, "what Spark counts as written must be acknowledged by all replicas in sync"),
    RefusedOption("kafka.enable.idempotence", Use.SINK, "records of one task must not be doubled by its own retries"),
    RefusedOption("kafka.transactional.id", Use.SINK, "transactions are not served"),
)

SOURCE_SETTINGS = (
    "bootstrap.timeout.ms",
    "client.id",
    "client.rack",
    "check.crcs",
    "default.api.timeout.ms",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "metadata.max.age.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
)
"""`kafka.<name>` is handed to the consumer as `<name>`."""

SINK_SETTINGS = (
    "batch.size",
    "bootstrap.timeout.ms",
    "buffer.memory",
    "client.id",
    "compression.type",
    "delivery.timeout.ms",
    "linger.ms",
    "max.block.ms",
    "max.request.size",
    "metadata.max.age.ms",
    "request.timeout.ms",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "socket.connection.setup.timeout.ms",
)
"""`kafka.<name>` is handed to the producer as `<name>`."""
