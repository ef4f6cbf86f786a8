"""Runs the cases: the cluster with its topics, the queries, and how what Spark raises becomes text.

Two queries run at the same time. A case that changes a topic has topics of its own, one for each source.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from compat.jars import KAFKA_OF_SPARK
from compat.spark_conformance import topics
from compat.spark_conformance.cases import KAFKA, SOURCES, STRANDLINE, Case, Outcome, Row, condition_of, plain_offset
from strandline import Admin, TopicPartition
from strandline.cli.cluster import EmbeddedCluster
from support.spark import spark_session

AT_A_TIME = 2
"""More gain nothing: Spark starts its processes of Python one after another."""
TASKS = 4
NOT_SPARKS_DAY = "Python worker failed to connect back"
"""Spark gives a process of Python ten seconds to start, which a busy machine may need: the query is asked again."""
_NUMBERS = itertools.count()
PATIENCE_S = 180
OWN = "{topic}"
"""In options and columns: the topic that the case has for itself."""

Options = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Site:
    """One session of Spark and one cluster with the topics of `topics.py`."""

    spark: Any
    bootstrap: str
    folder: Path

    def options(self, options: Options, own: str = "") -> dict[str, str]:
        """And where the cluster is, unless the case says that itself."""
        found = {
            "kafka.bootstrap.servers": self.bootstrap,
            **{name: value.replace(OWN, own) for name, value in options.items()},
        }
        return {name: value for name, value in found.items() if value}

    def create(self, topic: str, partitions: int) -> None:
        with Admin(self.bootstrap) as admin:
            admin.create_topic(topic, partitions, 3, topics.KEPT)


@contextmanager
def site(folder: Path) -> Iterator[Site]:
    """Everything that cases need, up and filled."""
    KAFKA_OF_SPARK.class_path()
    jars = ",".join(map(str, sorted(KAFKA_OF_SPARK.folder.glob("*.jar"))))
    settings = {"spark__jars": jars, "spark__master": f"local[{TASKS}]", "spark__ui__showConsoleProgress": "false"}
    with (
        EmbeddedCluster(folder / "cluster", 3, properties=topics.BROKERS) as cluster,
        spark_session(folder / "spark", **settings) as spark,
    ):
        spark.sparkContext.setLogLevel("OFF")  # what is refused is compared, not shown
        topics.build(cluster)
        yield Site(spark, cluster.bootstrap_servers, folder)


class Runner:
    """Begins with all cases, in their order, when it is made; `outcomes` waits for one."""

    def __init__(self, site: Site, cases: list[Case]) -> None:
        # Spark looks for a sink in Python only in the session that is the thread's own.
        sessions = site.spark._jvm.org.apache.spark.sql.classic.SparkSession
        self._pool = ThreadPoolExecutor(
            AT_A_TIME, initializer=sessions.setActiveSession, initargs=(site.spark._jsparkSession,)
        )
        self._running: dict[str, dict[str, Future[Outcome]]] = {
            case.name: {source: self._pool.submit(_outcome, case, site, source) for source in SOURCES} for case in cases
        }

    def outcomes(self, case: Case) -> tuple[Outcome, Outcome]:
        """(of Spark's Kafka connector, of ours)."""
        found = self._running[case.name]
        return found[KAFKA].result(), found[STRANDLINE].result()

    def __enter__(self) -> Runner:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)


def _outcome(case: Case, site: Site, source: str) -> Outcome:
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    while True:
        try:
            return case.query.run(site, source)
        except (PySparkException, Py4JJavaError) as error:
            found = failure(error)
            if NOT_SPARKS_DAY not in found.error:
                return found


def own_topic(source: str) -> str:
    """A name that nobody had before: a case may have to be run again."""
    return f"of-{source}-{next(_NUMBERS)}"


# --- What Spark raises -------------------------------------------------------------------------------------------


def failure(error: Any) -> Outcome:
    """All that an exception and its causes say, and the condition of the innermost that has one."""
    texts, condition = ["" if hasattr(error, "java_exception") else str(error)], ""  # which has its whole stack
    throwable = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while throwable is not None:
        message = str(throwable.getMessage())
        texts.append(f"{throwable.getClass().getName()}: {message}")
        if hasattr(throwable, "getCondition") and (found := _condition(throwable)):
            condition = found
        throwable = throwable.getCause()
    text = "\n".join(texts)
    if raised := re.search(r"errors\.\w+: (\[[A-Z].*)", text):  # by ours: without the code around it
        text = raised[1]
    return Outcome(error=text, condition=condition or condition_of(text))


def _condition(throwable: Any) -> str:
    try:
        found = str(throwable.getCondition() or "")
    except Exception:  # no SparkThrowable
        return ""
    return "" if found.startswith(("_LEGACY", "STREAM_FAILED", "PYTHON_")) else found


# --- Queries -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Read:
    """A batch: all of it, every column. `schema`: what a user gives."""

    options: Options
    schema: str = ""

    def run(self, site: Site, source: str) -> Outcome:
        reader = site.spark.read.format(source).options(**site.options(self.options))
        frame = (reader.schema(self.schema) if self.schema else reader).load()
        return Outcome(schema_of(frame), rows_of(frame), tasks=frame.rdd.getNumPartitions())


@dataclass(frozen=True, slots=True)
class ReadAgain:
    """One DataFrame, asked before and after more was written to the topic that the case has for itself."""

    options: Options
    partitions: int = 2
    count: int = 10

    def run(self, site: Site, source: str) -> Outcome:
        topic = own_topic(source)
        site.create(topic, self.partitions)
        topics.write(site.bootstrap, topic, range(self.count), self.partitions)
        frame = site.spark.read.format(source).options(**site.options(self.options, topic)).load()
        rows_of(frame)
        topics.write(site.bootstrap, topic, range(self.count, 2 * self.count), self.partitions)
        # A query of its own: what was asked of `frame` itself Spark does not ask again, whatever the source.
        return Outcome(schema_of(frame), rows_of(frame.select("*"), {topic: OWN}))


@dataclass(frozen=True, slots=True)
class Stream:
    """A query into Parquet, from one checkpoint through all `steps` (methods of `RunningStream`, by helpers below).
    `partitions`: of the topic that it has for itself."""

    options: Options
    steps: tuple[Callable[[Any], None], ...]
    partitions: int = 0
    schema: str = ""

    def run(self, site: Site, source: str) -> Outcome:
        topic = own_topic(source)
        running = RunningStream(site, source, topic, dict(self.options), self.partitions, self.schema)
        if self.partitions:
            site.create(topic, self.partitions)
        try:
            for step in self.steps:
                step(running)
        finally:
            running.halt()
        return running.outcome()


@dataclass(frozen=True, slots=True)
class Progress:
    """The names of what a query tells of its source, in its schema's place."""

    options: Options

    def run(self, site: Site, source: str) -> Outcome:
        running = RunningStream(site, source, own_topic(source), dict(self.options), 0)
        running.run()
        told = json.loads(running.progress[0].json)["sources"][0]
        names = [name for name, value in told.items() if value is not None]
        described = ["the topics in its description"] if "plain" in told["description"] else []
        return Outcome(schema=tuple(sorted([*names, *told.get("metrics", {}), *described])))


@dataclass(slots=True)
class RunningStream:
    site: Site
    source: str
    topic: str
    options: dict[str, str]
    partitions: int
    schema: str = ""
    written: int = 0
    query: Any = None
    progress: list[Any] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.site.folder / "streams" / self.topic

    def begin(self, **trigger: Any) -> None:
        reader = self.site.spark.readStream.format(self.source)
        reader = reader.options(**self.site.options(self.options, self.topic))
        frame = (reader.schema(self.schema) if self.schema else reader).load()
        writer = frame.writeStream.format("parquet").option("path", str(self.folder / "written"))
        writer = writer.option("checkpointLocation", str(self.folder / "checkpoint"))
        self.query = writer.trigger(**(trigger or {"processingTime": "0 seconds"})).start()

    def run(self) -> None:
        """Until everything that is there has been read."""
        self.begin(availableNow=True)
        assert self.query.awaitTermination(PATIENCE_S), "the stream has not come to its end"
        self.halt()

    def catch_up(self) -> None:
        self.query.processAllAvailable()

    def until_rows(self, count: int) -> None:
        """While the query runs: for batches that time starts, not records."""
        while sum(each.numInputRows for each in self.query.recentProgress) < count and self.query.isActive:
            self.query.awaitTermination(0.1)

    def halt(self) -> None:
        if self.query is not None:
            self.query.stop()
            self.progress += self.query.recentProgress
            self.query = None

    def write(self, count: int) -> None:
        numbers = range(self.written, self.written + count)
        topics.write(self.site.bootstrap, self.topic, numbers, self.partitions)
        self.written += count

    def delete_records(self, partition: int, upto: int) -> None:
        with Admin(self.site.bootstrap) as admin:
            admin.delete_records({TopicPartition(self.topic, partition): upto})

    def grow(self, partitions: int) -> None:
        self.partitions = partitions
        with Admin(self.site.bootstrap) as admin:
            admin.create_partitions(self.topic, partitions)

    def delete(self) -> None:
        topics.delete(self.site.bootstrap, self.topic)

    def create(self, partitions: int) -> None:
        self.partitions = partitions
        self.site.create(self.topic, partitions)

    def set(self, **options: str) -> None:
        self.options |= options

    def become(self, source: str) -> None:
        """The next run is the other source's, with the same checkpoint."""
        self.source = source

    def outcome(self) -> Outcome:
        frame = self.site.spark.read.parquet(str(self.folder / "written"))
        batches = [each for each in self.progress if each.numInputRows]
        return Outcome(
            schema_of(frame),
            rows_of(frame, {self.topic: OWN}),
            batches=tuple(each.numInputRows for each in batches),
            offsets=tuple(plain_offset(each.sources[0].endOffset, {self.topic: OWN}) for each in batches),
        )


@dataclass(frozen=True, slots=True)
class Write:
    """Ten rows, made of `id` by `select`, into a topic that the case has for itself, and read back. `mode`: as Spark
    names it."""

    select: tuple[str, ...]
    options: Options
    mode: str = "append"
    partitions: int = 1
    compares: tuple[str, ...] = ()
    count: int = 10

    def run(self, site: Site, source: str) -> Outcome:
        topic = own_topic(source)
        site.create(topic, self.partitions)
        frame = site.spark.range(self.count).coalesce(1).selectExpr(*(each.replace(OWN, topic) for each in self.select))
        frame.write.format(source).options(**site.options(self.options, topic)).mode(self.mode).save()
        return written(site, source, topic, self.compares)


@dataclass(frozen=True, slots=True)
class WriteStream:
    """The topic `plain`, read by the same connector, into a topic that the case has for itself. `counts`: the records
    of each key."""

    select: tuple[str, ...]
    options: Options
    mode: str = "append"
    counts: bool = False
    partitions: int = 1
    compares: tuple[str, ...] = ()

    def run(self, site: Site, source: str) -> Outcome:
        topic = own_topic(source)
        site.create(topic, self.partitions)
        read = {"subscribe": "plain", "startingOffsets": "earliest", "includeHeaders": "true"}
        frame = site.spark.readStream.format(source).options(**site.options(read)).load()
        frame = (frame.groupBy("key").count() if self.counts else frame).selectExpr(*self.select)
        writer = frame.writeStream.format(source).options(**site.options(self.options, topic)).outputMode(self.mode)
        writer = writer.option("checkpointLocation", str(site.folder / "streams" / topic)).trigger(availableNow=True)
        query = writer.start()
        try:
            assert query.awaitTermination(PATIENCE_S), "the stream has not come to its end"
        finally:
            query.stop()
        return written(site, source, topic, self.compares)


def written(site: Site, source: str, topic: str, compares: tuple[str, ...]) -> Outcome:
    """What the other source reads, but for offsets, and for times that the sink set."""
    other = KAFKA if source == STRANDLINE else STRANDLINE
    frame = site.spark.read.format(other).options(**site.options({"subscribe": topic, "includeHeaders": "true"})).load()
    frame = frame.drop("offset", "topic", *({"timestamp"} - set(compares)))
    return Outcome(schema_of(frame), rows_of(frame))


# --- Rows --------------------------------------------------------------------------------------------------------


def schema_of(frame: Any) -> tuple[str, ...]:
    return tuple(f"{each.name} {each.dataType.simpleString()} {each.nullable}" for each in frame.schema.fields)


def rows_of(frame: Any, names: Mapping[str, str] | None = None) -> tuple[Row, ...]:
    """By topic, partition and offset; topics by the names that both sources share."""
    shared = names or {}
    rows = []
    for row in frame.collect():
        found = row.asDict(recursive=True)
        found = {name: bytes(each) if isinstance(each, bytearray) else each for name, each in found.items()}
        if "topic" in found:
            found["topic"] = shared.get(found["topic"], found["topic"])
        if found.get("headers") is not None:
            found["headers"] = tuple(
                (each["key"], None if each["value"] is None else bytes(each["value"])) for each in found["headers"]
            )
        rows.append(tuple(found.values()))
    return tuple(sorted(rows, key=repr))
