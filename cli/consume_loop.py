"""The loop of `strandline consume`: prints what comes until every partition has reached its stop, enough records were
printed, or none came for too long.

Rules: a partition is finished when the *position* reaches its stop offset, so gaps left by compaction do no harm;
records count before they are written, since who interrupts after a line came must find it counted; they are *printed*
only once they are out, and a group commits nothing else.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Mapping, Set
from typing import IO, TYPE_CHECKING

from strandline.cli.fetched_rows import rows_of
from strandline.cli.idle_readers import Speaking, bring_out
from strandline.cli.record_format import Writer
from strandline.cli.session import Session
from strandline.cli.waits import Waits
from strandline.protocol.types import TopicPartition

if TYPE_CHECKING:
    from strandline import Consumer
    from strandline.cli.group_commits import GroupCommits
    from strandline.cli.lost_offsets import LostOffsets
    from strandline.client.assignment import FetchedBatches

POLL_MS = 500
"""How long one poll waits: also how soon --timeout-ms is noticed."""

Stops = Mapping[TopicPartition, int | None]
"""Partition → the offset to stop before; None: go on for ever."""


class ConsumeLoop:
    """Of one command."""

    def __init__(
        self,
        write: Writer,
        out: IO[bytes],
        *,
        max_messages: int | None,
        timeout_ms: int | None,
        session: Session,
    ) -> None:
        self.count = 0
        self.bytes_out = 0
        self.reached: dict[TopicPartition, int] = {}
        """Partition → the offset behind all that has come of it."""
        self.printed: dict[TopicPartition, int] = {}
        """Partition → the offset behind the last record that was printed."""
        self.look: Callable[[], None] = lambda: None
        """Called whenever a poll has come back, for who has to do something now and then."""
        self.lost: LostOffsets | None = None
        """Is told where each partition goes on."""
        self.gone: Set[TopicPartition] = frozenset()
        """Of these nothing comes any more, for good."""
        self.cut: set[TopicPartition] = set()
        """Of these the rest that was wanted does not exist any more: something else has these offsets."""
        self.unfinished: dict[TopicPartition, int] = {}
        """Partition → the stop that it had not reached when none came for too long."""
        self.unknown: Set[TopicPartition] = frozenset()
        """These no broker knows, for a while or for good, which is told by `look`."""
        self.check_crcs = True
        """Whether a batch with another checksum than its own ends the command."""
        self.is_cut = False
        """A line may have been cut in two, where its writing was interrupted."""
        self.speaking: Speaking = contextlib.nullcontext
        """What is said on stderr is said within it: who was interrupted does not wait for somebody to read it."""
        self._write = write
        self._out = out
        self._max_messages = max_messages
        self._timeout_ms = timeout_ms
        self._session = session

    def run(self, consumer: Consumer, stops: Stops | None, commits: GroupCommits | None = None) -> None:
        """Print records as they come. stops: None for whatever comes, without an end. Raises OSError when the output is
        closed."""
        remaining = {each: stop for each, stop in (stops or {}).items() if stop is not None}
        is_endless = stops is None or len(remaining) < len(stops)
        self._finish_by_position(consumer, remaining)
        quiet_since = self._session.monotonic()
        waits = Waits(consumer, self._session.monotonic)
        waits.also, waits.left_out = self.look, self.unknown
        while (is_endless or remaining) and not self._enough():
            fetched = self._fetched(consumer)
            self._note_lost(fetched, remaining)
            self._leave_cut(consumer, remaining)
            fetched = [each for each in fetched if TopicPartition(each.topic, each.partition) not in self.cut]
            printed = self._print(fetched, stops or {})
            for each in fetched:
                partition = TopicPartition(each.topic, each.partition)
                self.reached[partition] = each.next_offset
                if each.next_offset >= remaining.get(partition, each.next_offset + 1):
                    del remaining[partition]
            if not fetched:
                self._finish_by_position(consumer, remaining)
            if self.lost is not None:
                self.lost.look()
                self._leave_cut(consumer, remaining)
            if commits is not None:
                commits.commit_now_and_then()
            waits.look()
            for gone in self.gone & remaining.keys():
                del remaining[gone]
            now = self._session.monotonic()
            if printed:
                quiet_since = now
            elif self._timeout_ms is not None and (now - quiet_since) * 1000 >= self._timeout_ms:
                if self.lost is not None:
                    self.lost.look(at_once=True)
                    self._leave_cut(consumer, remaining)
                self.unfinished = remaining
                return

    def _fetched(self, consumer: Consumer) -> list[FetchedBatches]:
        from strandline.client.errors import UnknownTopic

        try:
            return consumer.fetch_batches(timeout_ms=min(POLL_MS, self._timeout_ms or POLL_MS))
        except UnknownTopic:  # who looks after topics decides whether it has gone; the others are read on
            return []

    def fraction(self, ranges: Mapping[TopicPartition, tuple[int, int | None]]) -> float | None:
        """How much of these ranges has come, or of the records that are wanted; None where there is no end."""
        if self._max_messages is not None:
            return min(1.0, self.count / self._max_messages)
        total = come = 0
        for partition, (start, stop) in ranges.items():
            if stop is None:
                return None
            total += stop - start
            come += min(self.reached.get(partition, start), stop) - start
        return come / total if total else None

    def _finish_by_position(self, consumer: Consumer, remaining: dict[TopicPartition, int]) -> None:
        """It moves without records, too."""
        for partition, stop in list(remaining.items()):
            position = consumer.position(partition)
            if self.lost is not None:
                self.lost.note(partition, position, position, stop)
            if position >= stop and (self.lost is None or partition not in self.lost.cut):
                del remaining[partition]
        if self.lost is not None:
            self.lost.tell()
            self._leave_cut(consumer, remaining)

    def _leave_cut(self, consumer: Consumer, remaining: dict[TopicPartition, int]) -> None:
        """A range ends where its log was cut: its stop may never come, and what comes is not of it."""
        for partition in self.lost.cut & remaining.keys() if self.lost is not None else ():
            del remaining[partition]
            self.cut.add(partition)
            consumer.pause(partition)

    def _note_lost(self, fetched: list[FetchedBatches], stops: Stops) -> None:
        if self.lost is None:
            return
        for each in fetched:
            partition = TopicPartition(each.topic, each.partition)
            self.lost.note(partition, each.position, each.next_offset, stops.get(partition))
        self.lost.tell()

    def _enough(self) -> bool:
        return self._max_messages is not None and self.count >= self._max_messages

    def _print(self, fetched: list[FetchedBatches], stops: Stops) -> int:
        """Write what lies below the stops; returns how many records that were. OSError: the output is closed or full;
        then what was not out before does not count as printed."""
        before = self.count
        written: dict[TopicPartition, int] = {}
        waiting_bytes = 0
        try:
            for each in fetched:
                partition = TopicPartition(each.topic, each.partition)
                for rows in rows_of(each, stops.get(partition), check_crcs=self.check_crcs):
                    if self._max_messages is not None:
                        rows = rows.cut(0, self._max_messages - self.count)
                        if not rows.offsets:
                            return self.count - before
                    text = self._write(rows._replace(first_count=self.count + 1))
                    self.count += len(rows.offsets)  # first: who interrupts after the line came must find it counted
                    self._write_out(text)
                    written[partition] = rows.offsets[-1] + 1
                    waiting_bytes += len(text)
                    if waiting_bytes >= io.DEFAULT_BUFFER_SIZE:  # most of it is out by itself
                        bring_out(self._out, lambda: self._note_printed(written))
                        waiting_bytes = 0
        finally:  # also when interrupted: what is in the buffer comes out in the end
            if written:
                bring_out(self._out, lambda: self._note_printed(written))
        return self.count - before

    def _write_out(self, text: bytes) -> None:
        try:
            self._out.write(text)
        except KeyboardInterrupt:  # of a long write the rest is lost then
            self.is_cut = True
            raise
        self.bytes_out += len(text)

    def _note_printed(self, written: dict[TopicPartition, int]) -> None:
        self.printed.update(written)
        written.clear()
