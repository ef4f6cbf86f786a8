"""One look of `strandline watch` at a living cluster: who leads, who is in sync, and how far each replica has come.

Metadata is asked for first, then each leader for its high watermark, then every replica for its log's end: a log that
is shown to end below the high watermark does lag, and was not only asked too early.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from strandline.cli.log_bounds import of_each_leader
from strandline.cli.watch_seen import PartitionSeen, TopicSeen, missing_text
from strandline.client.errors import ClientError, UnknownTopic
from strandline.client.replicas.reading import Replica
from strandline.protocol.messages import LATEST_TIMESTAMP
from strandline.protocol.types import NO_BROKER, NO_EPOCH, TopicPartition
from strandline.protocol.znodes import encode_uuid

if TYPE_CHECKING:
    from strandline import Admin, Consumer
    from strandline.cli.session import Session
    from strandline.client.metadata import PartitionView, TopicView

PATIENCE_MS = 1_000
"""How long a look waits for brokers that do not answer; they are shown as such. Meanwhile nothing else is seen."""
FIRST_PATIENCE_MS = 10_000


class Looker:
    """Asks about one topic, again and again. numbers: which of its partitions; empty: all."""

    def __init__(
        self, session: Session, admin: Admin, consumer: Consumer, topic: str, numbers: frozenset[int] = frozenset()
    ) -> None:
        self._session = session
        self._admin = admin
        self._consumer = consumer
        self._topic = topic
        self._numbers = numbers
        self._was_reached = False
        self._was_there = False
        self._silent: set[int] = set()
        """Brokers that did not answer the last look: they are not waited for twice in one."""

    def look(self) -> TopicSeen:
        """What the cluster says now. Once it has answered, it is shown, not raised, that it does not. ClientError
        before."""
        try:
            view = self._admin.describe_topics(
                [self._topic], timeout_ms=PATIENCE_MS if self._was_reached else FIRST_PATIENCE_MS
            )
        except UnknownTopic:
            self._was_reached = True
            create = f"('strandline topics create {self._topic}' makes it)"
            return self._seen("", {}, "was deleted" if self._was_there else f"does not exist {create}")
        except ClientError as error:
            if not self._was_reached:
                raise
            return self._seen("", None, str(error))
        self._was_reached = self._was_there = True
        return self._look_at(view[self._topic])

    def _seen(self, topic_id: str, partitions: Mapping[int, PartitionSeen] | None, problem: str) -> TopicSeen:
        return TopicSeen(self._session.now_ms(), self._topic, topic_id, partitions, problem)

    def _look_at(self, view: TopicView) -> TopicSeen:
        wanted = {number: view.partitions[number] for number in sorted(view.partitions)}
        if self._numbers:
            wanted = {number: each for number, each in wanted.items() if number in self._numbers}
        missing = sorted(self._numbers - set(view.partitions))
        marks = self._high_watermarks(wanted)
        ends, silent = self._ends(wanted)
        partitions = {
            number: _partition(each, marks.get(number), ends.get(number, {}), silent.get(number, {}))
            for number, each in wanted.items()
        }
        problem = missing_text(self._topic, missing, len(view.partitions)) if missing else ""
        return self._seen(encode_uuid(view.topic_id), partitions, problem)

    def _high_watermarks(self, wanted: Mapping[int, PartitionView]) -> dict[int, int]:
        leaders = {
            TopicPartition(self._topic, number): each.leader
            for number, each in wanted.items()
            if each.leader not in (NO_BROKER, *each.offline_replicas, *self._silent)
        }
        told = of_each_leader(
            lambda led, limit_ms: self._consumer.end_offsets(led, timeout_ms=limit_ms),
            leaders,
            self._session.monotonic,
            PATIENCE_MS,
        )
        return {each.partition: mark for each, mark in told.items() if isinstance(mark, int)}

    def _ends(self, wanted: Mapping[int, PartitionView]) -> tuple[dict[int, dict[int, int]], dict[int, dict[int, str]]]:
        """Partition → broker → where its log ends, and why it does not say."""
        asked = {
            Replica(TopicPartition(self._topic, number), broker): NO_EPOCH
            for number, each in wanted.items()
            for broker in each.replicas
            if broker not in each.offline_replicas and broker not in each.refused_replicas
        }
        ends: dict[int, dict[int, int]] = {}
        silent: dict[int, dict[int, str]] = {}
        told = self._admin.replica_offsets(asked, LATEST_TIMESTAMP, timeout_ms=PATIENCE_MS)
        self._silent = {replica.broker_id for replica, end in told.items() if not isinstance(end, int)}
        for replica, end in told.items():
            if isinstance(end, int):
                ends.setdefault(replica.partition.partition, {})[replica.broker_id] = end
            else:
                why = f"broker {replica.broker_id} does not answer ({type(end).__name__})"
                silent.setdefault(replica.partition.partition, {})[replica.broker_id] = why
        return ends, silent


def _partition(
    view: PartitionView, mark: int | None, ends: Mapping[int, int], silent: Mapping[int, str]
) -> PartitionSeen:
    away = dict(silent)
    for broker in view.replicas:
        if broker in view.offline_replicas:
            away[broker] = f"broker {broker} is not running"
        elif broker in view.refused_replicas:
            away[broker] = f"broker {broker} does not serve it: {view.refused_replicas[broker]}"
    return PartitionSeen(view.leader, view.leader_epoch, view.in_sync_replicas, view.replicas, mark, ends, away)
