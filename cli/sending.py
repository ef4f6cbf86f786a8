"""What becomes of the records that `strandline produce` has sent: counted, shown, and waited for.

Rules: outcomes are taken in the order of the sending, and the first record that fails for good ends the command; its
error names the line. Records are sent some thousand at a time and have one outcome then; where the place of each is to
be shown, each has its own. So many bytes and records are under way at most that the producer always has room for them.
"""

from __future__ import annotations

import collections
import contextlib
import json
from collections.abc import Sequence
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


class Sent(NamedTuple):
    """Records with one outcome."""

    outcome: Any
    lines: Sequence[int]
    records: Sequence[InputRecord]
    size_bytes: int


class Tally:
    """What came of the records so far. `waits` is looked at whenever time passes."""

    def __init__(self, producer: Producer, topic: str, waits: Waits, *, verbose: bool, as_json: bool) -> None:
        self.acked = 0
        self.acked_bytes = 0
        self.is_exact = True
        """The bytes are: where some records of one outcome failed, theirs are an estimate."""
        self.lost = 0
        """Of an end before its time: not acknowledged, as far as anybody knows."""
        self.sent_records = 0
        self.sent_bytes = 0
        self.partitions: set[int] = set()
        self._pending: collections.deque[Sent] = collections.deque()
        self._pending_records = 0
        self._pending_bytes = 0
        self._producer = producer
        self._topic = topic
        self._waits = waits
        self._verbose = verbose
        self._as_json = as_json

    @property
    def is_each_shown(self) -> bool:
        return self._verbose or self._as_json

    def send(self, found: Records, partition: int | None, headers: Sequence[Header]) -> None:
        """Give them to the producer, in order. partition, headers: of all of them, besides what the input says."""
        partition = found.partition if found.partition is not None else partition
        if not self.is_each_shown and len(found.records) > 1:
            records = with_headers(found.records, headers, self._producer)
            together = self._producer.send_many(self._topic, records, partition=partition)
            self._sent(Sent(together, found.lines, found.records, found.size_bytes))
            return
        each_bytes = found.size_bytes // len(found.records)
        for line, record in zip(found.lines, found.records, strict=True):
            size_bytes = each_bytes if len(found.records) == 1 else len(record[0] or b"") + len(record[1] or b"")
            own, stamp = (record[2], record[3]) if len(record) == 4 else ((), None)
            outcome = self._producer.send(
                self._topic,
                record[1],
                key=record[0],
                partition=partition,
                headers=[*own, *headers],
                timestamp_ms=stamp,
            )
            self._sent(Sent(outcome, (line,), (record,), size_bytes))

    def _sent(self, sent: Sent) -> None:
        self._pending.append(sent)
        self.sent_records += len(sent.records)
        self.sent_bytes += sent.size_bytes
        self._pending_records += len(sent.records)
        self._pending_bytes += sent.size_bytes

    def reap(self) -> None:
        """Count what is settled; wait for the oldest while too much is not. Raises what a record failed with."""
        while self._pending and (self._pending[0].outcome.done() or self._is_full):
            self._await_oldest()
            self._count(self._take_oldest())
        self._waits.look()

    @property
    def _is_full(self) -> bool:
        return self._pending_records > MAX_PENDING or self._pending_bytes > MAX_PENDING_BYTES

    def reap_all(self) -> None:
        """Wait for every record. Raises what the first one that failed did so with."""
        while self._pending:
            self._await_oldest()
            self._count(self._take_oldest())

    def _await_oldest(self) -> None:
        """Until it is settled, well or badly."""
        outcome = self._pending[0].outcome
        while not outcome.done():
            with contextlib.suppress(Exception):  # raised anew by whoever takes it
                outcome.result(LOOK_EVERY_S)
            self._waits.look()

    def reap_rest(self) -> None:
        """After an end before its time: nothing is waited for, and why it ended is told by others. All are counted,
        also where they cannot be shown any more: OSError after the last."""
        unseen: OSError | None = None
        while self._pending:
            try:
                settled = self._take_oldest(0)
            except Exception:
                continue
            try:
                self._count(settled)
            except OSError as error:
                unseen = error
        if unseen is not None:
            raise unseen

    def _take_oldest(self, timeout_s: float | None = None) -> tuple[Any, Sent]:
        """Where the oldest stands, and what it is. It stays if the wait is interrupted."""
        sent = self._pending[0]
        try:
            where = sent.outcome.result(timeout_s)
        except Exception as error:
            self._forget_oldest()
            self._count_failed(sent)
            raise of_line(error, sent, self._producer) from error
        self._forget_oldest()
        return where, sent

    def _forget_oldest(self) -> None:
        sent = self._pending.popleft()
        self._pending_records -= len(sent.records)
        self._pending_bytes -= sent.size_bytes

    def _count_failed(self, sent: Sent) -> None:
        """Of many with one outcome some may be acknowledged."""
        acked = getattr(sent.outcome, "delivered_records", 0)
        self.lost += len(sent.records) - acked
        if acked:
            self.acked += acked
            self.acked_bytes += sent.size_bytes * acked // len(sent.records)
            self.is_exact = False
            self.partitions.update(batch.partition for batch in sent.outcome.batches)

    def _count(self, settled: tuple[Any, Sent]) -> None:
        where, sent = settled
        self.acked += len(sent.records)
        self.acked_bytes += sent.size_bytes
        if isinstance(where, list):
            self.partitions.update(batch.partition for batch in where)
            return
        self.partitions.add(where.partition)
        if self._as_json:
            fields = {
                "topic": where.topic,
                "partition": where.partition,
                "offset": where.offset,
                "ts": where.timestamp_ms,
            }
            click.echo(json.dumps(fields, separators=(",", ":")))
        elif self._verbose:
            click.echo(f"{where.partition}@{where.offset}")


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
    from strandline.client.errors import DeliveryFailed, InvalidRecordValue, RecordTooLarge

    if not isinstance(error, RecordTooLarge | InvalidRecordValue | DeliveryFailed):
        return error
    place = 0 if len(sent.records) == 1 else None
    if isinstance(error, RecordTooLarge):
        place = next((place for place, each in enumerate(sent.records) if is_too_large(each, producer)), place)
    if place is None:
        return click.ClickException(f"one of lines {sent.lines[0]} to {sent.lines[-1]}: {error}")
    key, value = sent.records[place][:2]
    shown = beginning(value if value is not None else key or b"")
    return click.ClickException(f"line {sent.lines[place]}: {error}: {shown}")


def is_too_large(record: InputRecord, producer: Producer) -> bool:
    from strandline.client.record_sizes import batch_bytes

    key, value = record[:2]
    headers = record[2] if len(record) == 4 else ()
    return bool(batch_bytes((key, value), headers) > producer.settings.max_request_size)


def summary(tally: Tally, topic: str) -> str:
    where = f" in {counted(len(tally.partitions), 'partition')}" if tally.partitions else ""
    lost = f"; {tally.lost} more not acknowledged" if tally.lost else ""
    about = "" if tally.is_exact else "about "
    return (
        f"{counted(tally.acked, 'record')} produced to {topic}{where} "
        f"({about}{counted(tally.acked_bytes, 'byte')}){lost}"
    )
