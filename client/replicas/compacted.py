"""Where the replicas of a compacted partition differ: by their records, since each broker cleans its own.

What cleaning may take away is known: a record whose key has a later record in the same log, a tombstone that is old
enough, a record without a key. So replicas of one partition hold different records, in batches with different bytes,
and both are right. What must hold nevertheless, and is compared here:

    a record that two replicas have is the same in both
    a record that one replica has and another lacks has been overtaken in that one: it holds a later record of the key

The latter is looked for up to the newest committed record of the replica, also behind the end of the comparison: what
overtook it may just have been written. Not proven: that a tombstone has not gone too early, and that a record which is
gone had its successor already when it went.

What is open (records that one replica lacks, until a later one of their key is met there) is kept in memory; where that
is too much, the partition is read again, each time for a part of the keys.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple
from zlib import crc32

from strandline.client.replicas.comparison import DAMAGED, DIFFERENT, MISSING, Compared, held_by_most, run
from strandline.client.replicas.streams import Batch, BatchStream, Group
from strandline.protocol.records.batch import InvalidBatch
from strandline.protocol.records.codec import Record, decode_batch

MAX_OPEN_BYTES = 64 << 20
ENTRY_BYTES = 200
"""What an open record costs beside its key."""

END_OF_LOG = 2**63 - 1


class TooManyOpen(Exception):
    """The keys of this part are more than can be kept; take a smaller one."""


class Open(NamedTuple):
    """The newest record of a key that a replica lacks, and which broker has it."""

    offset: int
    is_tombstone: bool
    found_on: int


def compare_compacted(
    open_streams: Callable[[], Mapping[int, BatchStream]],
    start: int,
    end: int,
    max_open_bytes: int = MAX_OPEN_BYTES,
) -> dict[int, Compared]:
    """Broker → what became of its replica in [start, end); what overtook its records may stand anywhere behind `start`,
    since cleaning keeps the borders of batches. open_streams: begins to read at `start`, as often as it is called, the
    leader's first."""
    results: dict[int, Compared] = {}
    left = [(0, 1)]
    while left:
        part, parts = left.pop()
        comparison = Comparison(open_streams(), part, parts, max_open_bytes)
        try:
            found = comparison.run(start, end)
        except TooManyOpen:
            left += [(part + parts, 2 * parts), (part, 2 * parts)]
            continue
        for broker, compared in found.items():
            known = set(results[broker].findings) if broker in results else set()
            compared.findings = sorted(known.union(compared.findings), key=lambda each: (each.start, each.kind))
        results = found
    return results


class Comparison:
    """One reading of all replicas, for the keys of one part."""

    def __init__(self, streams: Mapping[int, BatchStream], part: int, parts: int, max_open_bytes: int) -> None:
        self._streams = streams
        self._part = part
        self._parts = parts
        self._max_open_bytes = max_open_bytes
        self._open_bytes = 0
        self._open: dict[int, dict[bytes, Open]] = {broker: {} for broker in streams}

    def run(self, start: int, end: int) -> dict[int, Compared]:
        results = run(self._streams, start, end, self._look, lambda: not any(self._open.values()))
        for broker, stream in self._streams.items():
            self._look_behind(broker, stream, results[broker])
            if stream.failure or stream.damage:
                continue  # what it could not show may be what overtook them
            for lacking in sorted(self._open[broker].values()):
                if not lacking.is_tombstone and self._should_have(stream, lacking.offset):
                    text = f"lacks the newest record of its key, which broker {lacking.found_on} has"
                    results[broker].add(MISSING, lacking.offset, lacking.offset + 1, text)
        return results

    def _look(self, group: Group, results: Mapping[int, Compared]) -> None:
        first = group.batches[0]
        is_same = all(_headers(batches) == _headers(first) for batches in group.batches)
        if is_same and all(batch.is_sound for batch in first) and not any(self._open.values()):
            return
        found: dict[int, dict[int, Record]] = {}
        for (broker, stream), batches in zip(self._streams.items(), group.batches, strict=True):
            if all(batch.is_sound for batch in batches):
                records = self._records(batches, results[broker])
                if records is not None:
                    found[broker] = {each.offset: each for each in records if each.offset >= stream.floor}
            if broker not in found:
                self._forget(broker)
        for offset in sorted(set().union(*found.values())):
            self._look_at(offset, found, results)

    def _look_at(self, offset: int, found: Mapping[int, Mapping[int, Record]], results: Mapping[int, Compared]) -> None:
        """One offset of those replicas whose records are known there."""
        model_of = held_by_most({broker: records[offset] for broker, records in found.items() if offset in records})
        model = found[model_of][offset]
        for broker, records in found.items():
            record = records.get(offset)
            if record is not None:
                self._close(broker, record)
                if record != model:
                    text = f"the record is not that of broker {model_of} (key {_shown(model.key)})"
                    results[broker].add(DIFFERENT, offset, offset + 1, text)
            elif model.key is not None and self._should_have(self._streams[broker], offset):
                self._lacks(broker, model.key, Open(offset, model.value is None, model_of))

    def _records(self, batches: tuple[Batch, ...], result: Compared) -> list[Record] | None:
        records: list[Record] = []
        for batch in batches:
            try:
                records += decode_batch(batch.data, check_crc=False)
            except InvalidBatch as error:
                result.add(DAMAGED, batch.start, batch.end, str(error))
                return None
        return records

    def _look_behind(self, broker: int, stream: BatchStream, result: Compared) -> None:
        """Successors of what is open may stand behind the end."""
        stream.continue_to(END_OF_LOG)
        while self._open[broker] and (batch := stream.head(END_OF_LOG)) is not None:
            stream.take()
            records = self._records((batch,), result) if batch.is_sound else None
            if records is None:
                self._forget(broker)
            for record in records or ():
                self._close(broker, record)

    @staticmethod
    def _should_have(stream: BatchStream, offset: int) -> bool:
        return stream.floor <= offset < stream.end

    def _lacks(self, broker: int, key: bytes, lacking: Open) -> None:
        if crc32(key) % self._parts != self._part:
            return
        opened = self._open[broker]
        if key not in opened:
            self._open_bytes += len(key) + ENTRY_BYTES
            if self._open_bytes > self._max_open_bytes and len(opened) > 1:
                raise TooManyOpen
        opened[key] = lacking

    def _close(self, broker: int, record: Record) -> None:
        if record.key is None or (lacking := self._open[broker].get(record.key)) is None:
            return
        if lacking.offset < record.offset:
            del self._open[broker][record.key]
            self._open_bytes -= len(record.key) + ENTRY_BYTES

    def _forget(self, broker: int) -> None:
        """It showed a damaged batch, which may hold what overtook them; the damage is told anyway."""
        self._open_bytes -= sum(len(key) + ENTRY_BYTES for key in self._open[broker])
        self._open[broker].clear()


def _headers(batches: tuple[Batch, ...]) -> list[object]:
    return [batch.header for batch in batches]


def _shown(key: bytes | None) -> str:
    return "null" if key is None else repr(key[:40])
