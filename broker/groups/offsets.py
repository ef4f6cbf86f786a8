"""Where one group goes on: its committed offsets, and what is about to be. Pure.

    begin ── the commit's records are appended ──> settle: visible once they are committed
                                                          as before where they are not
    remove, expired ── tombstones

Rules:
* What is read is what is committed. Several commits of one partition are settled in the order of the log, so the last
  one stays. One that timed out is under way until it is known what became of it: what is read is what another
  coordinator would find.
* A removal counts at once, also for commits under way: their records stand before the tombstone. Who is told of it
  waits until the tombstones are committed.
* Expiry is KIP-211's: a group that has members keeps what it is subscribed to, however old; an empty one keeps all for
  `offsets.retention.minutes` after its last member left; one that never had members keeps each offset for so long after
  its commit. A commit with an expire timestamp of its own (of an old client) goes by that instead. Commits under way
  keep their partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from strandline.broker.steps import in_pieces
from strandline.protocol.group_records import NO_TIMESTAMP_MS, CommittedOffset, offset_key, offset_value

CONSUMER_PROTOCOL = "consumer"
"""The protocol type of consumers: what they are subscribed to can be read."""

Offsets = Mapping[str, Mapping[int, CommittedOffset]]
"""By topic and partition."""
Record = tuple[bytes, bytes | None]
"""Key and value; no value: a tombstone."""


class Standing(NamedTuple):
    """What expiry asks of the group itself. `protocol_type`: None where no member ever joined. `since_ms`: when it came
    into its state, −1 not known. `subscribed_topics`: None where they cannot be told."""

    protocol_type: str | None = None
    is_empty: bool = True
    is_stable: bool = False
    since_ms: int = NO_TIMESTAMP_MS
    subscribed_topics: Collection[str] | None = None


class PendingCommit:
    """A commit whose records are on their way into the log."""

    __slots__ = ("offsets",)

    def __init__(self, offsets: Offsets) -> None:
        self.offsets = {topic: dict(partitions) for topic, partitions in offsets.items()}


class GroupOffsets:
    """See the module."""

    def __init__(self, group: str, committed: dict[str, dict[int, CommittedOffset]] | None = None) -> None:
        """committed: as it was loaded; it is this object's from now on."""
        self.group = group
        self.committed = {} if committed is None else committed
        """By topic and partition, no topic without any. Read only: changes come through methods."""
        self._pending: dict[PendingCommit, None] = {}

    def __bool__(self) -> bool:
        """Whether anything is committed or about to be: such a group is not forgotten."""
        return bool(self.committed or self._pending)

    def get(self, topic: str, partition: int) -> CommittedOffset | None:
        partitions = self.committed.get(topic)
        return None if partitions is None else partitions.get(partition)

    @property
    def count(self) -> int:
        """How many are committed."""
        return sum(map(len, self.committed.values()))

    def is_pending(self, topic: str, partition: int) -> bool:
        return any(partition in pending.offsets.get(topic, ()) for pending in self._pending)

    def topics(self) -> list[str]:
        """Of which the log may have anything."""
        return list(dict.fromkeys(topic for holder in self._holders() for topic in holder))

    def partitions(self, topic: str) -> list[int]:
        """Those of it."""
        return list(dict.fromkeys(partition for holder in self._holders() for partition in holder.get(topic, ())))

    # --- commits -----------------------------------------------------------------------------------------------------

    def begin(self, offsets: Offsets) -> tuple[PendingCommit, list[Record]]:
        """A commit, and the records to append for it. InvalidGroupRecord: they cannot be written, nothing happened."""
        records: list[Record] = [
            (offset_key(self.group, topic, partition), offset_value(committed))
            for topic, partitions in offsets.items()
            for partition, committed in partitions.items()
        ]
        pending = PendingCommit(offsets)
        self._pending[pending] = None
        return pending, records

    def settle(self, pending: PendingCommit, *, is_committed: bool) -> None:
        """Its records are below the high watermark, or nobody will say so any more. In the order of the log."""
        del self._pending[pending]
        if is_committed:
            for topic, partitions in pending.offsets.items():
                if partitions:
                    self.committed.setdefault(topic, {}).update(partitions)

    # --- removals ----------------------------------------------------------------------------------------------------

    def remove(self, topic: str, partitions: Iterable[int]) -> list[Record]:
        """Forget these partitions of a topic. Returns the tombstones of those of which the log may have anything."""
        holders = [holder for holder in self._holders() if topic in holder]
        asked = dict.fromkeys(partitions)
        removed = [partition for partition in asked if any(partition in holder[topic] for holder in holders)]
        for holder in holders:
            for partition in removed:
                holder[topic].pop(partition, None)
            if not holder[topic]:
                del holder[topic]
        return [(offset_key(self.group, topic, partition), None) for partition in removed]

    def remove_deleted(self, deleted: Mapping[str, Collection[int]]) -> list[Record]:
        """The same of partitions that are deleted."""
        records: list[Record] = []
        for topic in self.topics():
            if topic in deleted:
                records += self.remove(topic, [each for each in self.partitions(topic) if each in deleted[topic]])
        return records

    def _holders(self) -> list[dict[str, dict[int, CommittedOffset]]]:
        return [self.committed, *(pending.offsets for pending in self._pending)]

    def expired(self, standing: Standing, retention_ms: int, now_ms: int) -> Iterator[tuple[str, list[int]]]:
        """(topic, partitions to remove), some after the other, so that others may run in between; each is as of its
        turn."""
        if not _may_expire(standing):
            return
        kept = () if standing.is_empty or standing.subscribed_topics is None else standing.subscribed_topics
        since_ms = standing.since_ms if standing.is_empty and standing.protocol_type is not None else NO_TIMESTAMP_MS
        for topic in list(self.committed):
            if topic in kept:
                continue
            for some in in_pieces(list(self.committed.get(topic, ()))):
                yield (
                    topic,
                    [
                        partition
                        for partition in some
                        if (committed := self.get(topic, partition)) is not None
                        and not self.is_pending(topic, partition)
                        and _expires_ms(committed, since_ms, retention_ms) <= now_ms
                    ],
                )


def _may_expire(standing: Standing) -> bool:
    if standing.protocol_type is None or standing.is_empty:
        return True
    is_known = standing.protocol_type == CONSUMER_PROTOCOL and standing.subscribed_topics is not None
    return is_known and standing.is_stable


def _expires_ms(committed: CommittedOffset, since_ms: int, retention_ms: int) -> int:
    """since_ms: when the group became empty; −1 counts from the commit."""
    if committed.expire_timestamp_ms != NO_TIMESTAMP_MS:
        return committed.expire_timestamp_ms
    base_ms = committed.commit_timestamp_ms if since_ms == NO_TIMESTAMP_MS else since_ms
    return base_ms + retention_ms
