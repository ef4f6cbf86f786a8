"""What Spark sees of the sink: a writer for batches and one for streams, which write the same way.

Tasks write; there is nothing to commit, since rows stand in the topic as soon as their task has written them. What is
left to the driver is to notice that a write which an earlier run began had other rows, or was divided into tasks
otherwise then (`division`), and to put away the marks of one that nobody can repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage

from strandline.runtime.client_environment import production_client_environment
from strandline.spark_connector.errors import UnsupportedTrigger, WriteFailed
from strandline.spark_connector.options.sink_options import SinkOptions
from strandline.spark_connector.sentences import in_one_sentence
from strandline.spark_connector.worker import spare_modules
from strandline.spark_connector.writing.identity import MAX_TASKS, TaskIdentity

if TYPE_CHECKING:
    import pyarrow

    from strandline.spark_connector.writing.task import TaskReport

try:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter
except ImportError:  # before Spark 4.1
    DataSourceStreamArrowWriter = object

CAN_WRITE_STREAMS = DataSourceStreamArrowWriter is not object

QUERY_ID, BATCH_ID, RUN_ID = "sql.streaming.queryId", "streaming.sql.batchId", "spark.jobGroup.id"
"""Properties that Spark hands to the tasks of a stream. The first is kept in the checkpoint, the last changes with
every start of the query."""


class StrandlineWriter(DataSourceArrowWriter):  # type: ignore[misc]  # pyspark has no types
    """One batch."""

    def __init__(self, options: SinkOptions) -> None:
        """On the driver; all tasks get copies."""
        self.options = options
        self.run = f"{production_client_environment().random.getrandbits(128):032x}"
        self.scope = f"write.{options.write_id or self.run}"

    @in_one_sentence()
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        return _written(iterator, self.options, self.scope, self.options.write_version, self.run)

    @in_one_sentence()
    def commit(self, messages: Sequence[Any]) -> None:
        check_division(messages, self.options, can_be_repeated=self.options.write_id is not None)
        self._forget_marks()

    def abort(self, messages: Sequence[Any]) -> None:
        """What was written stays: a log takes nothing back."""
        self._forget_marks()

    def _forget_marks(self) -> None:
        """Of a write that nobody can repeat under its id, which was made up."""
        if not self.options.is_exactly_once or self.options.write_id is not None:
            return
        from strandline.spark_connector.writing.cluster import SinkClusterClient

        identity = TaskIdentity(self.scope, self.options.write_version, 0)
        with closing(SinkClusterClient(self.options, identity, has_timestamps=False)) as cluster:
            cluster.delete_marks()


class StrandlineStreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]  # pyspark has no types
    """The micro-batches of a stream."""

    def __init__(self, options: SinkOptions) -> None:
        self.options = options

    @in_one_sentence()
    def write(self, iterator: Iterator[pyarrow.RecordBatch]) -> WriterCommitMessage:
        context = TaskContext.get()
        query, batch, run = (context.getLocalProperty(name) for name in (QUERY_ID, BATCH_ID, RUN_ID))
        if self.options.is_exactly_once and (query is None or batch is None):
            raise WriteFailed(
                "Spark does not tell which query and batch this task belongs to, so a repeated row cannot be told from "
                "a new one; set exactlyOnce to false"
            )
        return _written(iterator, self.options, f"query.{query}", int(batch or 0), run or "")

    @in_one_sentence()
    def commit(self, messages: Sequence[Any], batchId: int) -> None:
        """Raises UnsupportedTrigger where no task was given rows."""
        if None in messages:
            raise UnsupportedTrigger
        check_division(messages, self.options, can_be_repeated=True)

    def abort(self, messages: Sequence[Any], batchId: int) -> None:
        """What was written stays: a log takes nothing back, and the next attempt finds it there."""


def _written(
    iterator: Iterator[pyarrow.RecordBatch], options: SinkOptions, scope: str, version: int, run: str
) -> TaskReport:
    from strandline.spark_connector.writing.task import write_again, write_once

    spare_modules("writing")
    if not options.is_exactly_once:
        return write_again(iterator, options)
    task = TaskContext.get().partitionId()
    if task >= MAX_TASKS:
        raise WriteFailed(
            f"a write has at most {MAX_TASKS} tasks, and this is number {task}; divide the rows into fewer (coalesce, "
            "repartition), or set exactlyOnce to false"
        )
    return write_once(iterator, options, TaskIdentity(scope, version, task), run)


def check_division(reports: Sequence[TaskReport], options: SinkOptions, *, can_be_repeated: bool) -> None:
    """Where an earlier run has begun this write, or where nobody had a row and so nobody has looked. can_be_repeated: a
    later run would go on with this write. Raises as `division.check_tasks`, and WriteFailed."""
    topics_of = {each.identity.task: each.topics for each in reports if each.identity is not None}
    nobody_looked = can_be_repeated and not any(topics_of.values())
    identity = next((each.identity for each in reports if each.is_repeated or nobody_looked), None)
    if identity is None:
        return
    from strandline.client.errors import ClientError
    from strandline.spark_connector.writing.cluster import SinkClusterClient
    from strandline.spark_connector.writing.division import check_tasks

    try:
        with closing(SinkClusterClient(options, identity, has_timestamps=False)) as cluster:
            check_tasks(cluster, identity, topics_of)
    except ClientError as error:
        raise WriteFailed(f"{error}; all rows are written, but whether some stand twice is not known") from error
