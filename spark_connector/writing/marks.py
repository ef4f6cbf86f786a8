"""Where each partition ended before a write began with it: from there on its rows are looked for. Pure.

A mark is the committed offset of a consumer group without members (`TaskIdentity.group`), one for each partition of a
topic, with its metadata as text. Each new version of the write overwrites it; it is kept longer than any query is away.

Rules, which the tasks of a version keep without knowing of each other:
* A task reads where the partitions end, then the marks, and only where a mark is of an earlier version it sets one.
  Nobody writes a row before the mark of its version stands. So a mark never lies behind a row of its version, though
  several tasks may set it: who found none had read the end before anybody wrote.
* All tasks and attempts place rows among as many partitions as the mark names, also when the topic has more by then;
  only rows that name one of those go there. A topic that grows between the marks of two tasks gets marks that differ,
  or rows that are not found where they are placed again: both are errors.
"""

from __future__ import annotations

import base64
from typing import NamedTuple

from strandline.client.groups.administration import GroupOffset
from strandline.protocol.types import NO_TOPIC_ID, TopicId

KEPT_MS = 10 * 365 * 24 * 3600 * 1000
"""Ten years: a write that is repeated after its mark is gone looks like a new one."""


class Mark(NamedTuple):
    """Of one partition. `partitions_count`: among how many rows are placed. `started_ms`: when the version began with
    it, wall clock of the task that found it so."""

    version: int
    end_offset: int
    partitions_count: int
    started_ms: int
    topic_id: TopicId
    run: str
    """Of the query, which a restart does not go on with (Spark's job group; of a batch, made up)."""

    def is_of(self, topic_id: TopicId) -> bool:
        """False: the topic was created anew since. An id that is not known differs from none."""
        return NO_TOPIC_ID in (self.topic_id, topic_id) or self.topic_id == topic_id


def to_committed(mark: Mark) -> GroupOffset:
    """As the group holds it."""
    topic_id = base64.urlsafe_b64encode(mark.topic_id).decode()
    metadata = (
        f"version={mark.version} partitions={mark.partitions_count} started={mark.started_ms} topic={topic_id} "
        f"run={mark.run}"
    )
    return GroupOffset(mark.end_offset, metadata=metadata)


def from_committed(committed: GroupOffset) -> Mark:
    """ValueError: somebody else committed that."""
    fields = dict(part.partition("=")[::2] for part in committed.metadata.split(" "))
    try:
        topic_id, run = base64.urlsafe_b64decode(fields["topic"]), fields["run"]
        numbers = [int(fields[name]) for name in ("version", "partitions", "started")]
    except (KeyError, ValueError):
        raise ValueError(f"{committed.metadata!r} is no mark of a write") from None
    version, partitions_count, started_ms = numbers
    if len(topic_id) != len(NO_TOPIC_ID) or version < 0 or partitions_count < 1 or committed.offset < 0:
        raise ValueError(f"{committed.metadata!r} at offset {committed.offset} is no mark of a write")
    return Mark(version, committed.offset, partitions_count, started_ms, topic_id, run)
