"""Sinks: rows of every kind into a topic of the case's own, by one sink, and read back by the other source."""

from __future__ import annotations

from compat.spark_conformance.cases import Case
from compat.spark_conformance.running import OWN, Write, WriteStream

TO_OWN = {"topic": OWN}
NOWHERE = {"kafka.linger.ms": "5"}
"""The option topic is left out."""
NUMBER = "cast(id as string)"
VALUE = f"{NUMBER} as value"
HEADERS = (
    "case when id % 3 = 0 then array(named_struct('key', 'n', 'value', cast(cast(id as string) as binary)), "
    "named_struct('key', 'null', 'value', cast(null as binary))) when id % 3 = 1 then array() end as headers"
)
WRITTEN_AT = "timestamp_millis(1700000000000 + id * 1000) as timestamp"


def batch(
    name: str,
    *select: str,
    rows: int | None = 10,
    words: tuple[str, ...] = (),
    mode: str = "append",
    partitions: int = 1,
    compares: str = "",
    count: int = 10,
    **options: str,
) -> Case:
    """`compares`: columns that the sink sets itself unless the rows say otherwise."""
    given = {key.replace("__", "."): value for key, value in (options or TO_OWN).items()}
    return Case(name, Write(select or (VALUE,), given, mode, partitions, tuple(compares.split()), count), rows, words)


def stream(
    name: str,
    *select: str,
    rows: int | None = 90,
    words: tuple[str, ...] = (),
    mode: str = "append",
    counts: bool = False,
    compares: str = "",
    partitions: int = 1,
    **options: str,
) -> Case:
    given = {key.replace("__", "."): value for key, value in (options or TO_OWN).items()}
    return Case(name, WriteStream(select, given, mode, counts, partitions, tuple(compares.split())), rows, words)


def refused(name: str, select: str, *words: str, **options: str) -> Case:
    return batch(name, *select.split("; "), rows=None, words=words, **options)


CASES: tuple[Case, ...] = (
    # --- columns ---
    batch("sink: values as text"),
    batch("sink: values as binary", f"cast({NUMBER} as binary) as value"),
    batch("sink: keys as text go to the same partitions", VALUE, "cast(id % 7 as string) as key", partitions=3),
    batch(
        "sink: keys as binary go to the same partitions", VALUE, "cast(string(id % 7) as binary) as key", partitions=3
    ),
    batch(
        "sink: null keys, null values",
        f"if(id % 2 = 0, null, {NUMBER}) as value",
        f"if(id % 3 = 0, null, {NUMBER}) as key",
    ),
    batch("sink: headers, null ones and empty ones", VALUE, HEADERS, includeHeaders="true", **TO_OWN),
    batch("sink: headers without includeHeaders", VALUE, HEADERS),
    batch("sink: headers with includeHeaders=false", VALUE, HEADERS, includeHeaders="false", **TO_OWN),
    refused(
        "sink: headers of a wrong type without includeHeaders",
        f"{VALUE}; 'x' as headers",
        "headers attribute unsupported type string",
    ),
    refused(
        "sink: a header without a key",
        f"{VALUE}; array(named_struct('key', string(null), 'value', X'00')) as headers",
        "null",
        includeHeaders="true",
        **TO_OWN,
    ),
    batch("sink: kafka.acks", VALUE, kafka__acks="1", **TO_OWN),
    batch("sink: partitions", VALUE, "cast(2 - id % 3 as int) as partition", partitions=3),
    batch(
        "sink: null partitions leave it to the key",
        VALUE,
        "cast(id as string) as key",
        "cast(if(id % 2 = 0, null, 1) as int) as partition",
        partitions=3,
    ),
    batch("sink: timestamps", VALUE, WRITTEN_AT, compares="timestamp"),
    batch("sink: other columns are not written", VALUE, "id", "id * 2 as offset"),
    batch("sink: topics by row", VALUE, f"'{OWN}' as topic", **NOWHERE),
    batch("sink: the option topic goes before the column", VALUE, "'nowhere' as topic"),
    batch("sink: the option topic goes before a null in the column", VALUE, "cast(null as string) as topic"),
    batch("sink: names of options in any case", VALUE, TOPIC=OWN, INCLUDEHEADERS="true"),
    batch("sink: kafka.compression.type", VALUE, kafka__compression__type="zstd", **TO_OWN),
    batch("sink: no rows", VALUE, "id", rows=0, count=0),
    # --- what is refused ---
    refused("sink: no topic", VALUE, "topic option required when no 'topic' attribute is present", **NOWHERE),
    refused("sink: null topics", f"{VALUE}; cast(null as string) as topic", "null topic", **NOWHERE),
    refused("sink: no value", "'x' as key", "Required attribute 'value' not found"),
    refused("sink: values of a wrong type", "id as value", "value attribute unsupported type bigint"),
    refused("sink: keys of a wrong type", f"{VALUE}; 1.5D as key", "key attribute unsupported type double"),
    refused("sink: topics of a wrong type", f"{VALUE}; 1 as topic", "topic attribute unsupported type int", **NOWHERE),
    refused(
        "sink: partitions of a wrong type", f"{VALUE}; 1L as partition", "partition attribute unsupported type bigint"
    ),
    refused(
        "sink: headers of a wrong type",
        f"{VALUE}; 'x' as headers",
        "headers attribute unsupported type string",
        includeHeaders="true",
        **TO_OWN,
    ),
    batch("sink: timestamps that are text", VALUE, "'now' as timestamp"),
    refused(
        "sink: a partition that does not exist", f"{VALUE}; 7 as partition", "7", kafka__max__block__ms="1000", **TO_OWN
    ),
    refused("sink: a negative partition", f"{VALUE}; -1 as partition", "-1"),
    refused("sink: a topic that cannot exist", VALUE, "un heard of", topic="un heard of"),
    refused("sink: no brokers", VALUE, "bootstrap.servers", kafka__bootstrap__servers="", **TO_OWN),
    refused(
        "sink: kafka.key.serializer", VALUE, "key.serializer", "not supported", kafka__key__serializer="x", **TO_OWN
    ),
    refused(
        "sink: kafka.value.serializer",
        VALUE,
        "value.serializer",
        "not supported",
        kafka__value__serializer="x",
        **TO_OWN,
    ),
    # --- modes ---
    batch("sink: mode error, the default", mode="error"),
    refused("sink: mode overwrite", VALUE, "overwrite", "not allowed", mode="overwrite"),
    refused("sink: mode ignore", VALUE, "ignore", mode="ignore"),
    # --- streams ---
    stream(
        "sink: a stream in mode append",
        "key",
        "value",
        "partition",
        "timestamp",
        "headers",
        partitions=3,
        compares="timestamp",
        includeHeaders="true",
        **TO_OWN,
    ),
    stream(
        "sink: a stream in mode complete", "key", "cast(count as string) as value", mode="complete", counts=True, rows=6
    ),
    stream(
        "sink: a stream in mode update", "key", "cast(count as string) as value", mode="update", counts=True, rows=6
    ),
    stream("sink: a stream without a topic", "value", rows=None, words=("topic option required",), **NOWHERE),
    stream(
        "sink: a stream of null topics",
        "value",
        "cast(null as string) as topic",
        rows=None,
        words=("null topic",),
        **NOWHERE,
    ),
    stream("sink: a stream without values", "key", rows=None, words=("Required attribute 'value' not found",)),
)
