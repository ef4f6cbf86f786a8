"""Walking over the batches of a .log file: headers only, or with every check that recovery makes.

Both read in chunks and never load a payload that they do not need. `scan_segments` is the job of checking whole
segments after an unclean stop, or of looking through their headers for what is not served (`unserved`): it is given
paths and returns plain values, so that a worker process can do it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, NamedTuple

import crc32c

from strandline.protocol.records.batch import (
    CRC_START,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC,
    BatchHeader,
    read_header,
)
from strandline.runtime.disk import Disk, File
from strandline.storage.segments.offset_index import MAX_RELATIVE_OFFSET, OffsetIndex
from strandline.storage.segments.time_index import NO_TIMESTAMP, TimeIndex
from strandline.storage.segments.unserved import TRANSACTION, is_intact, is_of_transaction, old_message
from strandline.storage.segments.whole_batches import is_followed, passes_crc

_NO_LIMIT = 2**63 - 1
HEADER_CHUNK_BYTES = 16 * 2**10
_CHECK_CHUNK_BYTES = 2**20


def walk_headers(file: File, position: int, end: int) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each whole batch in [position, end); stops at the first that is not whole.

    Small batches are read many at a time, of large ones only the header."""
    chunk = b""
    chunk_position = position
    size_bytes = 0
    while end - position >= HEADER_BYTES:
        if position + HEADER_BYTES > chunk_position + len(chunk):
            chunk_position = position
            wanted = HEADER_BYTES if size_bytes > HEADER_CHUNK_BYTES // 8 else HEADER_CHUNK_BYTES
            chunk = file.pread(min(wanted, end - position), position)
            if len(chunk) < HEADER_BYTES:
                return
        header = read_header(chunk, position - chunk_position)
        size_bytes = header.batch_length + LENGTH_PREFIX_BYTES
        if size_bytes < HEADER_BYTES or position + size_bytes > end:
            return
        yield position, header
        position += size_bytes


def walk_segment(
    file: File, base_offset: int, position: int, end: int, next_offset: int = 0
) -> Iterator[tuple[int, BatchHeader]]:
    """As `walk_headers`, of a segment: stops, too, at an offset that cannot be in it or lies below the end of the batch
    before: no CRC covers a base offset. Gaps are right. next_offset: behind the batch before `position`."""
    limit = base_offset + MAX_RELATIVE_OFFSET
    least = max(base_offset, next_offset)
    for found, header in walk_headers(file, position, end):
        if not least <= header.base_offset <= header.last_offset <= limit:
            return
        yield found, header
        least = header.next_offset


def read_batch(file: File, position: int, header: BatchHeader) -> memoryview:
    """The bytes of one batch."""
    return memoryview(file.pread(header.batch_length + LENGTH_PREFIX_BYTES, position))


@dataclass(slots=True)
class CheckedPrefix:
    """How far a file is sound: filled while `check_batches` is iterated."""

    end_position: int
    next_offset: int
    epoch: int
    fault: str = ""
    """Why the rest is not; empty when the file is sound to its end."""
    fell: bool = False
    """The fault is an offset or epoch that lies before the one of the last sound batch: one of the two is wrong."""
    max_offset: int = _NO_LIMIT
    """No offset above it can stand there."""


def check_batches(file: File, end: int, prefix: CheckedPrefix) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of each batch from `prefix` on that is whole, passes its CRC, and follows the one before in
    offset and epoch. `prefix` is moved along, and says at the end what is wrong with the rest."""
    buffer = bytearray(_CHECK_CHUNK_BYTES)
    start = prefix.end_position  # file position of buffer[0]
    filled = file.pread_into(memoryview(buffer)[: min(len(buffer), end - start)], start)
    while prefix.end_position < end:
        at = prefix.end_position - start
        need = HEADER_BYTES
        if filled - at >= HEADER_BYTES:
            header = read_header(buffer, at)
            need = header.batch_length + LENGTH_PREFIX_BYTES
            prefix.fault = _header_fault(header, need, end - prefix.end_position)
            if not prefix.fault and header.last_offset > prefix.max_offset:
                prefix.fault = _place_fault(header, prefix)
            elif not prefix.fault:
                prefix.fault = _order_fault(header, prefix)
                prefix.fell = bool(prefix.fault)
            if prefix.fault:
                return
            if filled - at >= need:
                body = memoryview(buffer)[at + CRC_START : at + need]
                if crc32c.crc32c(body) != header.crc:
                    prefix.fault = "the CRC does not match"
                    return
                yield prefix.end_position, header
                prefix.end_position += need
                prefix.next_offset = header.base_offset + header.last_offset_delta + 1
                prefix.epoch = header.partition_leader_epoch
                continue
        elif end - prefix.end_position < HEADER_BYTES:
            prefix.fault = "the file ends inside a batch header"
            return
        if need > len(buffer):
            buffer = bytearray(need)
        start = prefix.end_position
        filled = file.pread_into(memoryview(buffer)[: min(len(buffer), end - start)], start)
        if filled < need:
            prefix.fault = "the file is shorter than its size said"
            return


def _header_fault(header: BatchHeader, size_bytes: int, available: int) -> str:
    """Why a header cannot be one; empty when it can."""
    if size_bytes < HEADER_BYTES:
        return f"the length field says {header.batch_length}"
    if header.magic != MAGIC:
        return f"the format version (magic) is {header.magic}, not {MAGIC}"
    if size_bytes > available:
        return f"the batch needs {size_bytes} bytes, {available} are there"
    if header.last_offset_delta < 0:
        return f"the last offset delta is {header.last_offset_delta}"
    return ""


def _place_fault(header: BatchHeader, prefix: CheckedPrefix) -> str:
    """Why a header cannot be one of this segment, or not the next; empty when it can."""
    if header.last_offset > prefix.max_offset:
        return f"offset {header.last_offset} is too high for this segment"
    return _order_fault(header, prefix)


def _order_fault(header: BatchHeader, prefix: CheckedPrefix) -> str:
    """Why a header cannot be the next one; empty when it can."""
    if header.base_offset < prefix.next_offset:
        return f"offset {header.base_offset} stands after {prefix.next_offset - 1}"
    if header.partition_leader_epoch < prefix.epoch:
        return f"leader epoch {header.partition_leader_epoch} stands after {prefix.epoch}"
    return ""


class IndexBuilder:
    """Builds both indexes of one segment from its batch headers, exactly as appending them would have."""

    def __init__(self, base_offset: int, index_interval_bytes: int) -> None:
        self.offset_index = OffsetIndex(base_offset)
        self.time_index = TimeIndex(base_offset)
        self.max_timestamp_ms = NO_TIMESTAMP
        self.max_timestamp_offset = base_offset
        self.unindexed_bytes = 0
        self.end_position = 0
        """Behind the last batch taken, as the next one."""
        self.next_offset = base_offset
        self._interval = index_interval_bytes

    def resume(self, max_timestamp_ms: int, max_timestamp_offset: int) -> None:
        """Go on behind indexes that are sound up to the last batch noted, which is fed next (again)."""
        self.max_timestamp_ms = max_timestamp_ms
        self.max_timestamp_offset = max_timestamp_offset
        self.unindexed_bytes = 0

    def add(self, position: int, header: BatchHeader) -> None:
        """The next batch of the segment."""
        last_offset = header.base_offset + header.last_offset_delta
        if header.max_timestamp_ms > self.max_timestamp_ms:
            self.max_timestamp_ms = header.max_timestamp_ms
            self.max_timestamp_offset = last_offset
        if self.unindexed_bytes > self._interval:
            self.offset_index.append(last_offset, position)
            self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)
            self.unindexed_bytes = 0
        self.unindexed_bytes += header.batch_length + LENGTH_PREFIX_BYTES
        self.end_position = position + header.batch_length + LENGTH_PREFIX_BYTES
        self.next_offset = last_offset + 1

    def add_all(self, file: File, end: int, at_most: int = _NO_LIMIT) -> None:
        """The batches of the .log file that follow, up to byte `end` or to what cannot be there; of `at_most` bytes, or
        one."""
        stop = self.end_position + at_most
        base_offset = self.offset_index.base_offset
        for position, header in walk_segment(file, base_offset, self.end_position, end, self.next_offset):
            self.add(position, header)
            if self.end_position >= stop:
                return

    def finish(self) -> None:
        """The segment takes no more appends: its largest timestamp gets the last entry."""
        self.time_index.maybe_append(self.max_timestamp_ms, self.max_timestamp_offset)


def build_indexes(file: File, base_offset: int, end: int, index_interval_bytes: int) -> IndexBuilder:
    """Both indexes from the headers of a whole .log file of `end` bytes, as of a segment that takes appends."""
    builder = IndexBuilder(base_offset, index_interval_bytes)
    builder.add_all(file, end)
    return builder


# --- whole segments ---------------------------------------------------------------------------------------------------


class ScanTask(NamedTuple):
    """One segment to be checked from its beginning."""

    path: str
    """Of the .log file."""
    base_offset: int
    size_bytes: int
    index_interval_bytes: int
    is_last: bool
    """Of its log."""
    vouched_ends: Sequence[int] = ()
    """Log end offsets that the checkpoints tell of: recovery point, high watermark."""
    headers_only: bool = False
    """Nothing is checked, only what is not served is looked for."""


class ScannedSegment(NamedTuple):
    """What a check found, in plain values: it comes from a worker process."""

    end_position: int
    """Where the sound part ends; the file's size where all of it is sound."""
    next_offset: int
    """Behind the last sound batch; the base offset where there is none."""
    fault: str
    """Why the rest is not sound; empty where all is."""
    offset_index: bytes
    """Built anew, of the sound part, as the next one."""
    time_index: bytes
    epochs: list[list[int]]
    """[epoch, behind the last batch of the one before, its first batch that is there], rising: it began in between."""
    last_epoch: int
    """Of the last sound batch, −1 where there is none."""
    has_gaps: bool
    """Offsets are missing in the sound part: the cleaner was here."""
    is_doubt: bool = False
    """The fault is no more than a doubt: a whole batch at the end, which may be what it says."""
    unserved: Sequence[int] = ()
    """(magic, offset) of the first batch that is not served; empty where there is none."""
    contradiction: str = ""
    """Of a look-through: why a batch that is whole cannot stand where it does; empty where all can."""
    is_followed: bool = False
    """Of a check: whole batches stand behind the fault, or are part of it (`whole_batches`)."""


class _SoundPart:
    """What is sound of a segment so far, one batch behind: base offset and epoch lie outside of the CRC, and which of
    two neighbours has a wrong one shows only at the second."""

    def __init__(self, task: ScanTask) -> None:
        self.builder = IndexBuilder(task.base_offset, task.index_interval_bytes)
        self.end_position = 0
        self.next_offset = task.base_offset
        self.epochs: list[list[int]] = []
        self.last_epoch = -1
        self.has_gaps = False

    def add(self, position: int, header: BatchHeader) -> None:
        self.builder.add(position, header)
        self.has_gaps |= self.leaves_gap(header) or header.records_count <= header.last_offset_delta
        if header.partition_leader_epoch != self.last_epoch:
            self.last_epoch = header.partition_leader_epoch
            self.epochs.append([self.last_epoch, self.next_offset, header.base_offset])
        self.end_position = position + header.size_bytes
        self.next_offset = header.next_offset

    def leaves_gap(self, header: BatchHeader) -> bool:
        return header.base_offset != self.next_offset

    def contradiction(self, last: BatchHeader, prefix: CheckedPrefix) -> str:
        """Why the last batch that passed its checks is as doubtful as the one behind; empty where it is not."""
        jumps = self.leaves_gap(last)
        if prefix.fell and (jumps or (self.epochs and last.partition_leader_epoch != self.last_epoch)):
            jump = f"offset {last.base_offset}" if jumps else f"epoch {last.partition_leader_epoch}"
            return f"{prefix.fault}; the batch before jumps to {jump}"
        return ""

    def doubt(self, last: BatchHeader, vouched_ends: Sequence[int]) -> str:
        """Whether the last batch of a log may have a wrong base offset; empty where that is not so.

        A follower of a compacted log has such jumps, and with the first one nothing tells it from damage, unless a
        checkpoint knows an end within this batch. (One in the gap is no witness: it may be the end that the batch had
        before its offset was damaged.)"""
        if not self.leaves_gap(last) or self.has_gaps:
            return ""
        if any(last.base_offset < end <= last.next_offset for end in vouched_ends):
            return ""
        return f"the last batch jumps from offset {self.next_offset} to {last.base_offset}"


def scan_segment(disk: Disk, task: ScanTask) -> ScannedSegment:
    """Check one segment by itself: what stands before it is not known. OSError from the disk."""
    sound = _SoundPart(task)
    prefix = CheckedPrefix(0, task.base_offset, -1, max_offset=task.base_offset + MAX_RELATIVE_OFFSET)
    held: tuple[int, BatchHeader] | None = None
    unserved: Sequence[int] = ()
    with closing(disk.open(task.path, read_only=True)) as file:
        for found in check_batches(file, task.size_bytes, prefix):
            if held is not None:
                sound.add(*held)
            held = found
            if not unserved and is_of_transaction(found[1]):
                unserved = (TRANSACTION, found[1].base_offset)
        unserved = unserved or _old_format(file, prefix.end_position, task.size_bytes)
        followed = bool(prefix.fault) and is_followed(file, task.base_offset, prefix.end_position, task.size_bytes)
    fault, doubt = prefix.fault, ""
    if held is not None:
        contradiction = sound.contradiction(held[1], prefix)
        followed |= bool(contradiction)
        if task.is_last and not fault:
            doubt = sound.doubt(held[1], task.vouched_ends)
        fault = contradiction or doubt or fault
        if not (contradiction or doubt):
            sound.add(*held)
    sound.builder.finish()
    return ScannedSegment(
        sound.end_position,
        sound.next_offset,
        fault,
        sound.builder.offset_index.encode(),
        sound.builder.time_index.encode(),
        sound.epochs,
        sound.last_epoch,
        sound.has_gaps,
        bool(doubt),
        unserved,
        is_followed=followed,
    )


def look_through(disk: Disk, task: ScanTask) -> ScannedSegment:
    """Look at the headers of one segment for what is not served, or cannot be true, as far as they can be followed:
    `end_position` is where that ends. OSError from the disk."""
    unserved: Sequence[int] = ()
    contradiction = ""
    before = CheckedPrefix(0, task.base_offset, -1, max_offset=task.base_offset + MAX_RELATIVE_OFFSET)
    epochs: list[list[int]] = []
    with closing(disk.open(task.path, read_only=True)) as file:
        for found, header in walk_headers(file, 0, task.size_bytes):
            if header.magic != MAGIC:
                if header.magic > MAGIC and before.next_offset <= header.base_offset <= before.max_offset:
                    contradiction = f"a batch of format {header.magic} stands at offset {header.base_offset}"
                break
            why = _place_fault(header, before)
            if (why or is_of_transaction(header)) and not passes_crc(file, found, header):
                break
            if why or is_of_transaction(header):
                contradiction, unserved = why, () if why else (TRANSACTION, header.base_offset)
                break
            before.end_position, before.next_offset = found + header.size_bytes, header.next_offset
            before.epoch = header.partition_leader_epoch
            epochs = epochs or [[before.epoch, task.base_offset, header.base_offset]]
        position = before.end_position
        unserved = unserved or _old_format(file, position, task.size_bytes)
    fault = f"no whole batch stands at byte {position}" if position < task.size_bytes else ""
    return ScannedSegment(
        position, before.next_offset, fault, b"", b"", epochs, before.epoch, False, False, unserved, contradiction
    )


def _old_format(file: File, position: int, end: int) -> Sequence[int]:
    """`ScannedSegment.unserved`, where an intact message of an old format stands at `position`."""
    message = old_message(file, position, end)
    return (message.magic, message.offset) if message is not None and is_intact(file, position, message) else ()


def scan_segments(disk: Disk, tasks: Sequence[Sequence[Any]]) -> list[list[Any]]:
    """`look_through` or `scan_segment` of each, as a job for a worker process: tasks and results are lists. OSError."""
    return [list((look_through if task.headers_only else scan_segment)(disk, task)) for task in map(_task, tasks)]


def _task(values: Sequence[Any]) -> ScanTask:
    return ScanTask(*values)
