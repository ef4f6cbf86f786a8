"""Whether a write that an earlier run began went to other topics then, or was divided into tasks otherwise: a row that
has moved from one task or topic to another is looked for by neither task, and stands twice; and a task without any row
looks for none. The driver notices that, once all tasks have written."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from strandline.protocol.types import TopicPartition
from strandline.spark_connector.errors import RowsChanged, WrittenRowsGone
from strandline.spark_connector.writing.identity import TaskIdentity
from strandline.spark_connector.writing.marks import Mark
from strandline.spark_connector.writing.once import NOT_SURE, SinkCluster, may_be_forgotten, unchanged
from strandline.spark_connector.writing.patience import Patience


def check_tasks(cluster: SinkCluster, identity: TaskIdentity, topics_of: Mapping[int, Collection[str]]) -> None:
    """topics_of: by task, to which topics it has rows now. Those with which the write began are found by its marks.
    Raises RowsChanged where the write has rows of a task in a topic of which it has none now; WrittenRowsGone and
    WriteFailed where nobody can tell; ClientError."""
    marks = {at: mark for at, mark in cluster.marks(None).items() if mark.version == identity.version}
    topics = {topic for topics in topics_of.values() for topic in topics} | {at.topic for at in marks}
    for topic in sorted(topics):
        for task in sorted(_tasks_that_wrote(cluster, topic, marks)):
            if topic not in topics_of.get(task, ()):
                raise RowsChanged(
                    f"task {task} of an earlier run wrote rows to {topic!r} and has none of it now, so the rows are "
                    "others, go elsewhere or are divided otherwise, and some may stand twice. What was written stays; "
                    "go on with another checkpoint or writeId, or set exactlyOnce to false"
                )


def _tasks_that_wrote(cluster: SinkCluster, topic: str, marks: Mapping[TopicPartition, Mark]) -> set[int]:
    """Marks without rows tell of none: who set them may have died before it wrote."""
    topic_id = cluster.topic_id(topic)
    if topic_id is None:
        return set()  # it was deleted, and all rows with it
    partitions = [TopicPartition(topic, number) for number in range(cluster.partitions_count(topic))]
    found = cluster.tasks_known(partitions)
    for at in partitions:
        mark = marks.get(at)
        if mark is not None and mark.is_of(topic_id) and may_be_forgotten(cluster, mark):
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
