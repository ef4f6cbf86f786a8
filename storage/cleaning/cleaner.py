"""One cleaning of one log: the work of a worker process, in steps of a bounded number of bytes.

    1 remove what an earlier cleaning left        `.cleaned` files of this folder
    2 index    dirty segments, oldest first  ──>  offset map: key hash → newest offset; ends where the map is full
    3 rewrite  segments from the log's beginning up to there, in groups  ──>  one `.cleaned` segment per group

Nothing that the log uses is touched: after each group the caller takes the result over (`takeover`) or throws it away,
and only then goes on. Groups go oldest first, so that a value never outlives the tombstone that deleted it.

A group's last batch stays, without records if need be. So what a group becomes covers exactly the offsets of what it
was made from: there are no gaps between segments, and a start after a crash knows from the file alone which segments it
replaces (`recovery`).

What cannot be read ends the cleaning: before that segment while the map is filled (what stands before it is cleaned all
the same); while segments are rewritten, for good (`Unreadable`). Nothing is thrown away that was not understood.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import numpy as np

from strandline.protocol.records.batch import HEADER_BYTES, BatchHeader, read_header
from strandline.runtime.disk import Buffer, Disk, File
from strandline.storage.cleaning.columns import ChunkReader, Columns
from strandline.storage.cleaning.grouping import Source, group
from strandline.storage.cleaning.key_hash import hash_keys
from strandline.storage.cleaning.offset_map import OffsetMap
from strandline.storage.cleaning.output import Output, remove_unfinished
from strandline.storage.cleaning.plan import Done, Plan, Result, Step, Unreadable
from strandline.storage.cleaning.rewrite import NO_BATCH, Rewritten, Rules, rewrite
from strandline.storage.segments.segment import LOG_SUFFIX

MAX_BATCH_BYTES = 2**28
"""A length field above this is taken for damage."""
DECODED_BYTES = 32 * 2**20
"""Decoded records that are held at once, beyond those of one batch."""


class Cleaner:
    """Iterate over `run`; a step with a result has to be dealt with before the next one."""

    def __init__(self, disk: Disk, plan: Plan) -> None:
        self._disk = disk
        self._plan = plan
        dirty = [source for source in plan.sources if source.end_offset > plan.first_dirty_offset]
        self._dirty = dirty
        offsets = dirty[-1].end_offset - plan.first_dirty_offset if dirty else 0
        self._map = OffsetMap(plan.map_bytes, plan.map_load_factor, offsets)
        self._end_offset = plan.first_dirty_offset
        self._unreadable: Unreadable | None = None
        self._records_read = self._records_kept = 0

    def run(self) -> Iterator[Step]:
        # 1
        remove_unfinished(self._disk, self._plan.folder)
        # 2
        yield from self._index()
        # 3
        if self._end_offset > self._plan.first_dirty_offset:
            plan = self._plan
            for sources in group(
                plan.sources,
                end_offset=self._end_offset,
                segment_bytes=plan.segment_bytes,
                segment_index_bytes=plan.segment_index_bytes,
            ):
                yield from self._rewrite(sources)
        unreadable = self._unreadable
        yield Step(
            0,
            0,
            done=Done(
                self._end_offset,
                self._records_read,
                self._records_kept,
                unreadable.offset if unreadable else -1,
                unreadable.why if unreadable else "",
                self._map.used,
            ),
        )

    # --- 2 -----------------------------------------------------------------------------------------------------------

    def _index(self) -> Iterator[Step]:
        for source in self._dirty:
            try:
                with closing(self._open(source)) as file:
                    for data, batches in read_chunks(file, source, self._plan.chunk_bytes):
                        full = self._index_chunk(data, batches)
                        yield Step(len(data), 0)
                        if full:
                            return
            except Unreadable as error:
                self._unreadable = error
                self._end_offset = max(source.base_offset, self._plan.first_dirty_offset)
                return
            self._end_offset = source.end_offset

    def _index_chunk(self, data: bytes, batches: list[tuple[int, BatchHeader]]) -> bool:
        """Whether the map is full now; it ends at `_end_offset` then."""
        reader = ChunkReader(data, self._plan.max_decompressed_bytes)
        for position, header in batches:
            if header.last_offset >= self._plan.first_dirty_offset:
                reader.add(header, position)
                if reader.decoded_bytes > DECODED_BYTES:
                    if self._put(reader.columns()):
                        return True
                    reader = ChunkReader(data, self._plan.max_decompressed_bytes)
        return self._put(reader.columns())

    def _put(self, columns: Columns) -> bool:
        rows = np.flatnonzero((columns.key_lengths >= 0) & (columns.offsets >= self._plan.first_dirty_offset))
        low, high = hash_keys(
            columns.bytes_array, columns.key_starts[rows], columns.key_lengths[rows], self._plan.hash_seed
        )
        offsets = columns.offsets[rows]
        done = 0
        while done < len(rows):  # of one wave some may be keys that are known, so there is room for more afterwards
            room = self._map.capacity - self._map.size
            if not room:
                self._end_offset = int(offsets[done])
                return True
            self._map.put(low[done : done + room], high[done : done + room], offsets[done : done + room])
            done += room
        return False

    # --- 3 -----------------------------------------------------------------------------------------------------------

    def _rewrite(self, sources: list[Source]) -> Iterator[Step]:
        plan = self._plan
        rules = Rules(
            self._map,
            plan.hash_seed,
            self._end_offset,
            plan.now_ms,
            plan.delete_retention_ms,
            plan.last_of_producer,
            plan.first_dirty_offset,
        )
        is_changed = len(sources) > 1
        mtime_ms = 0
        with closing(Output(self._disk, plan.folder, sources[0].base_offset, plan.index_interval_bytes)) as output:
            for source in sources:
                with closing(self._open(source)) as file:
                    mtime_ms = max(mtime_ms, self._disk.stat_mtime_ms(file.path))
                    end = 0
                    for data, batches in read_chunks(file, source, plan.chunk_bytes):
                        before = output.size_bytes
                        end += batches[-1][0] + batches[-1][1].size_bytes
                        last = batches[-1][0] if source is sources[-1] and end == source.size_bytes else NO_BATCH
                        for reader in self._readers(data, batches):
                            columns = reader.columns()
                            rewritten = rewrite(columns, rules, last)
                            is_changed |= rewritten.is_changed
                            self._records_read += len(columns.starts)
                            self._records_kept += rewritten.records_kept
                            output.append(*_pieces(columns, rewritten))
                        yield Step(len(data), output.size_bytes - before)
            if is_changed:
                output.finish(mtime_ms, plan.segment_index_bytes)
            else:
                output.discard()
        if is_changed:
            bases = [source.base_offset for source in sources]
            largest_ms = output.indexes.max_timestamp_ms
            yield Step(0, 0, result=Result(bases[0], output.size_bytes, largest_ms, bases))

    def _readers(self, data: bytes, batches: list[tuple[int, BatchHeader]]) -> Iterator[ChunkReader]:
        """All of the batches; several readers where they decode to much."""
        reader = ChunkReader(data, self._plan.max_decompressed_bytes)
        for position, header in batches:
            reader.add(header, position, with_records=header.base_offset < self._end_offset)
            if reader.decoded_bytes > DECODED_BYTES:
                yield reader
                reader = ChunkReader(data, self._plan.max_decompressed_bytes)
        yield reader

    def _open(self, source: Source) -> File:
        return self._disk.open(f"{self._plan.folder}/{source.base_offset:020d}{LOG_SUFFIX}", read_only=True)


def _pieces(columns: Columns, rewritten: Rewritten) -> tuple[list[BatchHeader], list[Buffer]]:
    """Headers and bytes of a chunk's result; neighbours that stay as they were are one piece."""
    view = memoryview(columns.buffer)
    headers: list[BatchHeader] = []
    pieces: list[Buffer] = []
    kept = iter(rewritten.kept)
    run_start = run_end = 0
    for header, content in rewritten.batches:
        headers.append(header)
        if content is None:
            start, end = next(kept)
            if start == run_end:
                run_end = end
                continue
        if run_end > run_start:
            pieces.append(view[run_start:run_end])
        run_start = run_end = 0
        if content is None:
            run_start, run_end = start, end
        else:
            pieces.append(content)
    if run_end > run_start:
        pieces.append(view[run_start:run_end])
    return headers, pieces


def read_chunks(file: File, source: Source, chunk_bytes: int) -> Iterator[tuple[bytes, list[tuple[int, BatchHeader]]]]:
    """(bytes, [(position in them, header)]) of a segment, whole batches, about `chunk_bytes` at a time. Unreadable:
    no batch stands where one should."""
    position, wanted = 0, chunk_bytes
    next_offset = source.base_offset
    while position < source.size_bytes:
        size = min(wanted, source.size_bytes - position)
        data = file.pread(size, position)
        if len(data) < size:
            raise Unreadable(next_offset, "the file is shorter than it was")
        batches: list[tuple[int, BatchHeader]] = []
        at, need = 0, HEADER_BYTES
        while size - at >= HEADER_BYTES:
            header = read_header(data, at)
            need = header.size_bytes
            offsets_fit = next_offset <= header.base_offset <= header.last_offset < source.end_offset
            if not HEADER_BYTES <= need <= MAX_BATCH_BYTES or not offsets_fit:
                raise Unreadable(next_offset, f"no batch stands at byte {position + at}")
            if need > size - at:
                break
            batches.append((at, header))
            next_offset = header.next_offset
            at += need
        if batches:
            yield data[:at], batches
            position, wanted = position + at, chunk_bytes
        elif need > source.size_bytes - position:
            raise Unreadable(next_offset, "the file ends inside of a batch")
        else:
            wanted = need
