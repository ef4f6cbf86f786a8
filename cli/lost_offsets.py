"""What `strandline consume` was to read and never will, because the log has lost it meanwhile: told on stderr.

Rules: records follow each other without a gap in what is fetched (compaction leaves none there), so a partition that
goes on elsewhere has lost its place: retention, `delete-records` or an unclean election took records away, or the topic
was deleted and made anew. Each time is told once, whether records come then or not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import click

from strandline.cli.waits import MOST_NAMED
from strandline.protocol.types import NO_TOPIC_ID, TopicId, TopicPartition

if TYPE_CHECKING:
    from strandline import Consumer

LOOK_EVERY_S = 5.0
"""How soon it is told where no records come, each partition being asked for its position."""

NO_WAIT_MS = 0


class LostOffsets:
    """Follows the partitions of one consumer. `starts`: where each begins; those that come later and are not told by
    `follow` are followed from their first records on. `reset_policy`: that of the consumer."""

    def __init__(
        self,
        consumer: Consumer,
        starts: Mapping[TopicPartition, int],
        reset_policy: object,
        monotonic: Callable[[], float],
    ) -> None:
        self._consumer = consumer
        self.cut: set[TopicPartition] = set()
        """What comes of these is not what was to come: their log was cut, or their topic made anew."""
        self._expected: dict[TopicPartition, int] = {}
        self._skips_to_end = reset_policy == "latest"
        self._monotonic = monotonic
        self._due_at = monotonic() + LOOK_EVERY_S
        self._lines: list[str] = []
        self._topic_ids: dict[TopicPartition, TopicId | None] = {}
        self.follow(starts)

    def follow(self, starts: Mapping[TopicPartition, int]) -> None:
        """These are read from there on; what is followed already is not touched."""
        new = [each for each in starts if each not in self._expected]
        by_name = {topic: self._topic_id(topic) for topic in sorted({each.topic for each in new})}
        for each in new:
            self._expected[each] = starts[each]
            self._topic_ids[each] = by_name[each.topic]

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """These are read no more."""
        for each in partitions:
            self._expected.pop(each, None)
            self._topic_ids.pop(each, None)
            self.cut.discard(each)

    def note(self, partition: TopicPartition, position: int, next_offset: int, stop: int | None = None) -> None:
        """It goes on at `position`, and what comes reaches to `next_offset`; nothing from `stop` on is wanted."""
        expected = self._expected.get(partition)
        self._expected[partition] = next_offset
        if position == expected:
            return
        known_id, topic_id = self._topic_ids.get(partition), self._topic_id(partition.topic)
        self._topic_ids[partition] = topic_id or known_id
        if expected is None:
            return
        if known_id is not None and topic_id not in (None, known_id):
            self.cut.add(partition)
            self._lines.append(
                f"topic {partition.topic} was deleted and made anew: {partition} goes on at offset {position}, "
                f"after {expected} of the old one"
            )
        elif position < expected:
            self.cut.add(partition)
            self._lines.append(
                f"{partition} goes on at offset {position}, though {expected} was next: its log was cut there "
                "(an unclean election)"
            )
        elif (last := min(position, position if stop is None else stop) - 1) >= expected:
            self._lines.append(f"{_offsets(expected, last)} of {partition} {self._why(expected, last)}")

    def _why(self, first: int, last: int) -> str:
        verb = "is" if first == last else "are"
        if self._skips_to_end:
            return f"{verb} skipped: the log lost its place, and auto.offset.reset is latest"
        return f"{verb} gone from the log, unread"

    def look(self, *, at_once: bool = False) -> None:
        """Where nothing comes: whether positions have moved all the same. Cheap, unless it is time."""
        from strandline.client.errors import ClientError, NotAssigned

        now = self._monotonic()
        if now >= self._due_at or at_once:
            self._due_at = now + LOOK_EVERY_S
            for partition in list(self._expected):
                try:
                    position = self._consumer.position(partition, timeout_ms=NO_WAIT_MS)
                except NotAssigned:  # its topic has gone
                    continue
                except ClientError as error:
                    if not error.retriable:
                        raise
                    continue  # it is being looked for
                self.note(partition, position, position)
        self.tell()

    def tell(self) -> None:
        """Write down what was noted."""
        lines, self._lines = self._lines, []
        if (left_out := len(lines) - MOST_NAMED) > 0:
            lines[MOST_NAMED:] = [f"{left_out} more partitions do not go on where they were, either"]
        for line in lines:
            click.echo(f"strandline: {line}", err=True)

    def _topic_id(self, topic: str) -> TopicId | None:
        """Which of the topics that had this name it is; None where that is not known."""
        from strandline.client.errors import ClientError

        try:
            found = self._consumer.topic_id(topic, timeout_ms=NO_WAIT_MS)
        except ClientError:
            return None
        return None if found == NO_TOPIC_ID else found


def _offsets(first: int, last: int) -> str:
    return f"offset {first}" if first == last else f"offsets {first} to {last}"
