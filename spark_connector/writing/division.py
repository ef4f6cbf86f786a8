"""Whether a write that an earlier run began was divided into tasks otherwise then: a row that has moved from one task
to another is looked for by neither, and stands twice. The driver notices that, once all tasks have written."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import RowsChanged, WrittenRowsGone
from strandline.spark_connector.writing.identity import TaskIdentity
from strandline.spark_connector.writing.once import NOT_SURE, Patience, SinkCluster, may_be_forgotten, unchanged


def check_tasks(cluster: SinkCluster, identity: TaskIdentity, topics_of: Mapping[int, Collection[str]]) -> None:
    """topics_of: by task, to which topics it has rows now. Raises RowsChanged where the write has rows of a task that
    has none of that topic now; WrittenRowsGone and WriteFailed where nobody can tell; ClientError."""
    for topic in sorted({topic for topics in topics_of.values() for topic in topics}):
        for task in sorted(_tasks_that_wrote(cluster, identity, topic)):
            if topic not in topics_of.get(task, ()):
                raise RowsChanged(
                    f"task {task} of an earlier run wrote rows to {topic!r} and has none of it now, so the rows are "
                    "divided otherwise, and some may stand twice. What was written stays; go on with another "
                    "checkpoint, or set exactlyOnce to false"
                )


def _tasks_that_wrote(cluster: SinkCluster, identity: TaskIdentity, topic: str) -> set[int]:
    partitions = [TopicPartition(topic, number) for number in range(cluster.partitions_count(topic))]
    found = cluster.tasks_known(partitions)
    for at, mark in sorted(cluster.marks(partitions).items()):
        if mark.version == identity.version and may_be_forgotten(cluster, mark):
            found |= _tasks_in_log(cluster, at, mark.end_offset)
    return found


def _tasks_in_log(cluster: SinkCluster, at: TopicPartition, start: int) -> set[int]:
    patience = Patience(cluster)
    while (found := cluster.tasks_in_log(at, start, end := cluster.ends([at])[at])) is None:
        patience.wait(unchanged(f"offsets up to {end} of {at} cannot be read"))
    if found.log_start > start or found.has_gaps:
        raise WrittenRowsGone(
            f"{at} does not have all records from offset {start} on any more, and its leader has forgotten which tasks "
            f"wrote them, so nobody can tell whether the rows are divided into tasks as they were{NOT_SURE}"
        )
    return found.tasks
