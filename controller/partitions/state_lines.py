"""What the controller writes into the state-change log about the states that it wrote into ZooKeeper.

`protocol/history/lines.py` reads it: each line has the topic's id and the assigned replicas beside the state, so that
the history of a partition can be told from the logs alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import structlog

from strandline.controller.controller_context import ControllerContext, PartitionChange
from strandline.protocol.history.lines import packed_state
from strandline.protocol.znodes import encode_uuid

DETAILED_CHANGES = 1000
"""Above so many changes in a wave no partition gets a line of its own: that would take half a second for 10,000."""
STATES_PER_LINE = 1000
"""Some 50 KB."""


class StateLines:
    """One term's."""

    def __init__(self, context: ControllerContext, log: structlog.typing.FilteringBoundLogger) -> None:
        self._context = context
        self._log = log

    def write(self, changes: Sequence[PartitionChange]) -> None:
        """One wave of changes, as ZooKeeper has taken them."""
        if len(changes) <= DETAILED_CHANGES:
            for change in changes:
                self._log.info("partition state changed", **self.fields(change))
            return
        for why, some in _by_reason(changes):
            self._log.info("partition states changed", why=why, count=len(some), **self._packed(some))

    def fields(self, change: PartitionChange) -> dict[str, Any]:
        """What a line about one partition holds."""
        topic, partition = change.topic_partition
        before, after = change.before, change.after
        return {
            "topic": topic,
            "topic_id": self._topic_id(topic),
            "partition": partition,
            "leader": after.leader,
            "leader_epoch": after.leader_epoch,
            "isr": list(after.isr),
            "replicas": list(self._context.replicas(change.topic_partition)),
            "eligible": list(after.elr),
            "previous_leader": None if before is None else before.leader,
            "previous_isr": None if before is None else list(before.isr),
            "zk_version": after.zk_version,
            "why": change.why,
        }

    def _packed(self, changes: Sequence[PartitionChange]) -> dict[str, Any]:
        states: dict[str, list[str]] = {}
        for change in changes:
            (topic, partition), after = change.topic_partition, change.after
            replicas = self._context.replicas(change.topic_partition)
            states.setdefault(topic, []).append(
                packed_state(partition, after.leader, after.leader_epoch, after.zk_version, after.isr, replicas)
            )
        return {"topic_ids": {topic: self._topic_id(topic) for topic in states}, "states": states}

    def _topic_id(self, name: str) -> str:
        topic = self._context.topics.get(name)
        return "" if topic is None else encode_uuid(topic.topic_id)


def _by_reason(changes: Sequence[PartitionChange]) -> Iterator[tuple[str, Sequence[PartitionChange]]]:
    """At most `STATES_PER_LINE` at a time, all for the same reason."""
    grouped: dict[str, list[PartitionChange]] = {}
    for change in changes:
        grouped.setdefault(change.why, []).append(change)
    for why, some in grouped.items():
        for first in range(0, len(some), STATES_PER_LINE):
            yield why, some[first : first + STATES_PER_LINE]
