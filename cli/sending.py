"""What becomes of the records that `strandline produce` has sent: counted, shown, and waited for.

Rules: outcomes are taken in the order of the sending, and the first record that fails for good ends the command; its
error names the line. Records are sent some thousand at a time and have one outcome then; where the place of each is to
be shown, each has its own. So many bytes and records are under way at most that the producer always has room for them.

Ctrl-C may come between any two steps, and what was sent counts all the same: records are noted before they are sent,
and an outcome goes into the books at one stroke.
"""

from __future__ import annotations

import collections
import contextlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from strandline.cli.record_format import Header
from strandline.cli.record_input import InputRecord, Records, beginning
from strandline.cli.waits import LOOK_EVERY_S, Waits
from strandline.cli.wording import counted

if TYPE_CHECKING:
    from strandline import Producer

MAX_PENDING = 50_000
"""Records whose outcome is not known yet; beyond it the oldest is waited for."""

MAX_PENDING_BYTES = 16 << 20
"""As well, and never above half of `buffer_memory`, whose other half is for batches that are not full yet."""

RECORD_BYTES = 16
"""What a record takes besides its key, value and headers, about."""


@dataclass(slots=True, eq=False)
class Sent:
    """Records with one outcome, which is missing while they are handed over. `headers`: those that all of them have
    besides their own. `is_own_partition`: the input said where they go."""

    number: int
    lines: Sequence[int]
    records: Sequence[InputRecord]
    headers: Sequence[Header]
    size_bytes: int
    is_own_partition: bool
    outcome: Any = None


class _Books(NamedTuple):
    """What has come of those `Sent` whose number is below `settled`."""

    acked: int = 0
    acked_bytes: int = 0
    lost: int = 0
    is_exact: bool = True
    settled: int = 0


class Tally:
    """What came of the records so far. `waits` is looked at whenever time passes."""

    def __init__(self, producer: Producer, topic: str, waits: Waits, *, verbose: bool, as_json: bool) -> None:
        self.refused: Exception | None = None
        """Why a record was not sent, nor any behind it; names its line."""
        self.sent_records = 0
        self.sent_bytes = 0
        self.partitions: set[int] = set()
        self._books = _Books()
        self._pending: collections.deque[Sent] = collections.deque()
        self._pending_records = 0
        self._pending_bytes = 0
        self._max_pending_bytes = min(MAX_PENDING_BYTES, producer.settings.buffer_memory // 2)
        self._producer = producer
        self._topic = topic
        self._waits = waits
        self._verbose = verbose
        self._as_json = as_json

    @property
    def acked(self) -> int:
        return self._books.acked

    @property
    def acked_bytes(self) -> int:
        return self._books.acked_bytes

    @property
    def is_exact(self) -> bool:
        """The bytes are: where some records of one outcome failed, theirs are an estimate."""
        return self._books.is_exact

    @property
    def lost(self) -> int:
        """Of an end before its time: not acknowledged, as far as anybody knows."""
        return self._books.lost

    @property
    def is_each_shown(self) -> bool:
        return self._verbose or self._as_json

    def send(self, found: Records, partition: int | None, headers: Sequence[Header]) -> None:
        """Give them to the producer, in order, up to the first that it refuses (`refused`). Waits for room, and raises
        what a record failed with then. partition, headers: of all of them, besides what the input says."""
        own_bytes = RECORD_BYTES + sum(len(name) + len(value or b"") for name, value in headers)
        for part in self._parts(found, own_bytes):
            self._make_room(len(part.records), part.size_bytes + len(part.records) * own_bytes)
            if len(part.records) == 1 or self.is_each_shown or not self._send_many(part, partition, headers):
                self._send_each(part, partition, headers)
            if self.refused is not None:
                return

    def _parts(self, found: Records, own_bytes: int) -> Iterator[Records]:
        """As few as there is room for, each by itself."""
        count = len(found.records)
        parts = -(-(found.size_bytes + count * own_bytes) // self._max_pending_bytes)
        if parts <= 1:
            yield found
            return
        step = max(count // parts, 1)
        for start in range(0, count, step):
            yield found.part(start, start + step)

    def _send_many(self, found: Records, partition: int | None, headers: Sequence[Header]) -> bool:
        """With one outcome. False: one of them is refused, and none was sent."""
        from strandline.client.errors import InvalidRecordValue

        records = with_headers(found.records, headers, self._producer)
        sent = self._note(found, headers)
        try:
            sent.outcome = self._producer.send_many(self._topic, records, partition=_first(found.partition, partition))
        except InvalidRecordValue:
            self._forget(sent)
            return False
        return True

    def _send_each(self, found: Records, partition: int | None, headers: Sequence[Header]) -> None:
        from strandline.client.errors import InvalidRecordValue

        for place, record in enumerate(found.records):
            own, stamp = (record[2], record[3]) if len(record) == 4 else ((), None)
            sent = self._note(found if len(found.records) == 1 else found.part(place, place + 1), headers)
            try:
                sent.outcome = self._producer.send(
                    self._topic,
                    record[1],
                    key=record[0],
                    partition=_first(found.partition, partition),
                    headers=[*own, *headers],
                    timestamp_ms=stamp,
                )
            except InvalidRecordValue as error:
                self._forget(sent)
                self.refused = of_line(error, sent, self._producer)
                return

    def _note(self, found: Records, headers: Sequence[Header]) -> Sent:
        """They are about to be sent."""
        number = self._pending[-1].number + 1 if self._pending else self._books.settled
        sent = Sent(number, found.lines, found.records, headers, found.size_bytes, found.partition is not None)
        self._pending.append(sent)
        self._add(sent, 1)
        return sent

    def _forget(self, sent: Sent) -> None:
        """They were not sent; none was noted behind them."""
        self._pending.remove(sent)
        self._add(sent, -1)

    def _add(self, sent: Sent, sign: int) -> None:
        self.sent_records += sign * len(sent.records)
        self.sent_bytes += sign * sent.size_bytes
        self._pending_records += sign * len(sent.records)
        self._pending_bytes += sign * _memory_bytes(sent)

    def reap(self) -> None:
        """Count what is settled; wait for the oldest while too much is not. Raises what a record failed with."""
        while (oldest := self._oldest()) is not None and (oldest.outcome.done() or self._is_full(0, 0)):
            self._await(oldest)
            self._show(self._take(oldest))
        self._waits.look()

    def _make_room(self, records: int, size_bytes: int) -> None:
        while (oldest := self._oldest()) is not None and self._is_full(records, size_bytes):
            self._await(oldest)
            self._show(self._take(oldest))

    def _is_full(self, records: int, size_bytes: int) -> bool:
        """With so many more of them."""
        return (
            self._pending_records + records > MAX_PENDING or self._pending_bytes + size_bytes > self._max_pending_bytes
        )

    def reap_all(self) -> None:
        """Wait for every record. Raises what the first one that failed did so with."""
        while (oldest := self._oldest()) is not None:
            self._await(oldest)
            self._show(self._take(oldest))

    def _await(self, sent: Sent) -> None:
        """Until it is settled, well or badly."""
        while not sent.outcome.done():
            with contextlib.suppress(Exception):  # raised anew by whoever takes it
                sent.outcome.result(LOOK_EVERY_S)
            self._waits.look()

    def reap_rest(self, patience: Callable[[], AbstractContextManager[None]] = contextlib.nullcontext) -> None:
        """After an end before its time: nothing is waited for, and why it ended is told by others. All are counted,
        also where they cannot be shown any more: OSError or KeyboardInterrupt after the last. patience: in it each is
        shown."""
        unseen: BaseException | None = None
        while (oldest := self._oldest()) is not None:
            try:
                where = self._take(oldest, 0)
            except Exception:
                continue
            if unseen is not None:
                continue
            try:
                with patience():
                    self._show(where)
            except (OSError, KeyboardInterrupt) as error:
                unseen = error
        if unseen is not None:
            raise unseen

    def _oldest(self) -> Sent | None:
        """Whose outcome is not in the books."""
        while self._pending and self._pending[0].number < self._books.settled:
            gone = self._pending.popleft()
            self._pending_records -= len(gone.records)
            self._pending_bytes -= _memory_bytes(gone)
        return self._pending[0] if self._pending else None

    def _take(self, sent: Sent, timeout_s: float | None = None) -> Any:
        """Put the outcome of the oldest into the books: where it stands. It stays if the wait is interrupted."""
        try:
            if sent.outcome is None:
                raise NotHandedOver
            where = sent.outcome.result(timeout_s)
        except Exception as error:
            self._count_failed(sent)
            raise of_line(error, sent, self._producer) from error
        self.partitions.update([each.partition for each in (where if isinstance(where, list) else [where])])
        self._settle(sent, len(sent.records), sent.size_bytes)
        return where

    def _count_failed(self, sent: Sent) -> None:
        """Of many with one outcome some may be acknowledged."""
        acked = getattr(sent.outcome, "delivered_records", 0)
        if acked:
            self.partitions.update([batch.partition for batch in sent.outcome.batches])
        self._settle(sent, acked, sent.size_bytes * acked // len(sent.records))

    def _settle(self, sent: Sent, acked: int, acked_bytes: int) -> None:
        """So many of these records are acknowledged."""
        known, lost = self._books, len(sent.records) - acked
        self._books = _Books(
            known.acked + acked,
            known.acked_bytes + acked_bytes,
            known.lost + lost,
            known.is_exact and not (acked and lost),
            sent.number + 1,
        )

    def _show(self, where: Any) -> None:
        if not self.is_each_shown:
            return
        if self._as_json:
            fields = {
                "topic": where.topic,
                "partition": where.partition,
                "offset": where.offset,
                "ts": where.timestamp_ms,
            }
            click.echo(json.dumps(fields, separators=(",", ":")))
        else:
            click.echo(f"{where.partition}@{where.offset}")


class NotHandedOver(Exception):
    """An interrupt came while records were given to the producer: what became of them is not known."""


def _first(own: int | None, given: int | None) -> int | None:
    return given if own is None else own


def _memory_bytes(sent: Sent) -> int:
    """What they take in the producer, about."""
    each_bytes = RECORD_BYTES + sum(len(name) + len(value or b"") for name, value in sent.headers)
    return sent.size_bytes + len(sent.records) * each_bytes


def with_headers(records: list[InputRecord], headers: Sequence[Header], producer: Producer) -> list[Any]:
    """As `send_many` takes them: with headers, if there are any, go timestamps."""
    if not headers and len(records[0]) == 2:
        return records
    now_ms = producer.now_ms()
    full = []
    for record in records:
        own, stamp = (record[2], record[3]) if len(record) == 4 else ((), None)
        full.append((record[0], record[1], [*own, *headers], now_ms if stamp is None else stamp))
    return full


def of_line(error: Exception, sent: Sent, producer: Producer) -> Exception:
    """The error with the line in front whose record it is about; itself where that is all the same."""
    from strandline.client.errors import (
        DeliveryFailed,
        InvalidRecordValue,
        MessageTooLarge,
        RecordTooLarge,
        UnknownTopic,
    )

    is_no_partition = isinstance(error, UnknownTopic) and sent.is_own_partition
    if not (
        is_no_partition or isinstance(error, RecordTooLarge | MessageTooLarge | InvalidRecordValue | DeliveryFailed)
    ):
        return error
    place = 0 if len(sent.records) == 1 or is_no_partition else None
    if isinstance(error, RecordTooLarge):
        large = (place for place, each in enumerate(sent.records) if is_too_large(each, sent.headers, producer))
        place = next(large, place)
    if place is None:
        return click.ClickException(f"one of lines {sent.lines[0]} to {sent.lines[-1]}: {error}")
    key, value = sent.records[place][:2]
    shown = beginning(value if value is not None else key or b"")
    return click.ClickException(f"line {sent.lines[place]}: {error}: {shown}")


def is_too_large(record: InputRecord, headers: Sequence[Header], producer: Producer) -> bool:
    """With these headers besides its own."""
    from strandline.client.record_sizes import batch_bytes

    own = record[2] if len(record) == 4 else ()
    return bool(batch_bytes(record[:2], [*own, *headers]) > producer.settings.max_request_size)


def summary(tally: Tally, topic: str) -> str:
    where = f" in {counted(len(tally.partitions), 'partition')}" if tally.partitions else ""
    lost = f"; {tally.lost} more not acknowledged" if tally.lost else ""
    about = "" if tally.is_exact else "about "
    return (
        f"{counted(tally.acked, 'record')} produced to {topic}{where} "
        f"({about}{counted(tally.acked_bytes, 'byte')}){lost}"
    )
