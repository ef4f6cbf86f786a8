"""The log against a list: any sequence of appends, truncations, flushes, kills and power failures.

The model is a list of batches. A kill must keep all of them. A power failure must keep, byte for byte, those below the
recovery point and then a part without a hole of what the log was at some time since it was last flushed: a truncation
may be undone by it, since epochs tell the old tail from the new one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from strandline.protocol.record_batch import read_header, scan
from strandline.storage.checkpoints import RECOVERY_POINTS, read_offsets
from strandline.storage.epoch_check import epochs_agree
from strandline.storage.log import Log
from strandline.storage.log_manager import LogManager
from strandline.storage.scan import build_indexes
from strandline.testkit.storage_site import (
    TOPIC_ID,
    TP,
    StorageSite,
    epochs,
    offset_for_timestamp,
    produced,
    raw,
    records,
)

CODECS = st.sampled_from(["none", "none", "none", "gzip", "lz4"])


class LogMachine(RuleBasedStateMachine):
    """Small segments and index intervals, so that every border is crossed."""

    def __init__(self) -> None:
        super().__init__()
        self.site = StorageSite()
        self.batches: list[bytes] = []
        self.former: list[list[bytes]] = []
        """What the log was before each cut and crash since it was last flushed."""
        self.start_offset = 0
        self.end_offset = 0
        self.epoch = 0
        self.clock_ms = 0
        self.manager: LogManager
        self.log: Log

    @initialize(
        segment_bytes=st.sampled_from([200, 500, 2000, 100_000]),
        index_interval_bytes=st.sampled_from([0, 100, 1000]),
        max_open_files=st.sampled_from([1, 3, 100]),
    )
    def begin(self, segment_bytes: int, index_interval_bytes: int, max_open_files: int) -> None:
        self.site.config = replace(
            self.site.config, segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes, segment_ms=300
        )
        self.site.max_open_files = max_open_files
        self.manager = self.site.start()
        self.log = self.manager.create(TP, TOPIC_ID)

    # --- what happens to the log --------------------------------------------------------------------------------------

    @rule(
        counts=st.lists(st.integers(1, 5), min_size=1, max_size=8),
        size=st.sampled_from([0, 20, 300]),
        timestamp_step_ms=st.integers(-50, 200),
        codec=CODECS,
    )
    def append_as_leader(self, counts: list[int], size: int, timestamp_step_ms: int, codec: str) -> None:
        self.clock_ms = max(0, self.clock_ms + timestamp_step_ms)
        wave = [batch for count in counts for batch in produced(count, 1000 + self.clock_ms, size, codec)]
        assert self.log.append_as_leader(wave, self.epoch) == self.end_offset
        self.batches += [bytes(batch.view) for batch in wave]
        self.end_offset += sum(counts)

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=8), new_epochs=st.integers(0, 2))
    def append_as_follower(self, counts: list[int], new_epochs: int) -> None:
        leader = StorageSite().log(segment_bytes=10**6)
        leader.truncate_fully_and_start_at(self.end_offset)
        for place, count in enumerate(counts):
            if place >= len(counts) - new_epochs:
                self.epoch += 1
            leader.append_as_leader(produced(count, 1000 + self.clock_ms), self.epoch)
        data = raw(leader)
        assert self.log.append_as_follower(memoryview(data), self.epoch) == leader.log_end_offset
        self.batches += [data[position : position + header.size_bytes] for position, header in scan(memoryview(data))]
        self.end_offset = leader.log_end_offset

    @rule()
    def elect(self) -> None:
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.log_end_offset)

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        offset = self.start_offset + int((self.end_offset - self.start_offset + 2) * fraction)
        self.former.append(list(self.batches))
        self.log.truncate_to(offset)
        self._cut_model(offset)

    @rule(jump=st.integers(-3, 50))
    def start_anew(self, jump: int) -> None:
        offset = max(0, self.end_offset + jump)
        self.former.append(list(self.batches))
        self.log.truncate_fully_and_start_at(offset)
        self.batches, self.start_offset, self.end_offset = [], offset, offset

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flushed(self.log.flush_plan()())
        assert self.log.recovery_point == self.end_offset
        self.former.clear()

    @rule()
    def checkpoint(self) -> None:
        self.manager.checkpoint_recovery_points()

    @rule(clean=st.booleans())
    def stop_and_start(self, clean: bool) -> None:
        self.manager.close(clean=clean)
        if clean:
            self.former.clear()
        self._start()
        assert self.manager.was_clean == clean

    @rule()
    def kill_and_start(self) -> None:
        self.site.disk.kill()
        self._start()

    @rule(data=st.data())
    def lose_power_and_start(self, data: st.DataObject) -> None:
        on_disk = read_offsets(self.site.disk, f"/logs/{RECOVERY_POINTS}").get(TP, 0)
        assert on_disk <= max(self.log.recovery_point, self.start_offset)
        sure = [batch for batch in self.batches if read_header(batch).next_offset <= self.log.recovery_point]
        self.site.disk.crash(lambda options: data.draw(st.integers(0, options - 1)))
        self.manager = self.site.start()
        if TP not in self.manager.logs:
            assert not sure
            self.manager.create(TP, TOPIC_ID)
        self.log = self.manager.logs[TP]
        whole = memoryview(raw(self.log))
        found = [bytes(whole[at : at + header.size_bytes]) for at, header in scan(whole)]
        assert found[: len(sure)] == sure
        self.former.append(self.batches)
        assert not found or any(_is_run_of(found, version) for version in self.former)
        self.batches = found
        self.start_offset, self.end_offset = self.log.log_start_offset, self.log.log_end_offset
        self.epoch = max(self.epoch, self.log.last_epoch)

    def _start(self) -> None:
        self.manager = self.site.start()
        self.log = self.manager.logs[TP]
        assert not self.site.reports.of("log-truncated") and not self.site.reports.of("log-segment-dropped")

    def _cut_model(self, offset: int) -> None:
        while self.batches and read_header(self.batches[-1]).next_offset > offset:
            self.end_offset = max(self.start_offset, read_header(self.batches.pop()).base_offset)

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def the_log_is_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start_offset, self.end_offset)
        assert log.recovery_point <= log.log_end_offset or not self.batches
        assert raw(log) == b"".join(self.batches)
        assert log.size_bytes >= sum(map(len, self.batches))

    @invariant()
    def epochs_are_those_of_the_batches(self) -> None:
        if not hasattr(self, "log"):
            return
        written: list[tuple[int, int]] = []
        for header in map(read_header, self.batches):
            if not written or written[-1][0] != header.partition_leader_epoch:
                written.append((header.partition_leader_epoch, max(self.start_offset, header.base_offset)))
        entries = epochs(self.log)
        if entries and entries[-1][1] == self.end_offset:  # elected, nothing appended yet
            entries.pop()
        assert entries == written
        assert not written or epochs_agree(
            self.log.segments, type(self.log.epochs)(self.log.epochs.entries[: len(written)]),
            self.start_offset, self.end_offset, thorough=True,
        )  # fmt: skip

    @rule(offset=st.floats(0, 1), end=st.floats(0, 1), max_bytes=st.integers(0, 700))
    def read_anywhere(self, offset: float, end: float, max_bytes: int) -> None:
        span = self.end_offset - self.start_offset
        first, limit = (self.start_offset + int(span * fraction) for fraction in (offset, end))
        region = self.log.read(first, max_bytes, limit)
        wanted = [
            batch
            for batch in self.batches
            if read_header(batch).next_offset > first and read_header(batch).next_offset <= limit
        ]
        if first >= limit or not wanted:
            assert region is None
            return
        assert region is not None
        data = region.file.pread(region.length, region.position)
        assert b"".join(wanted).startswith(data)
        assert data.startswith(wanted[0]) and (len(data) <= max_bytes or data == wanted[0])

    @rule(timestamp_ms=st.integers(900, 3000))
    def find_a_timestamp(self, timestamp_ms: int) -> None:
        expected: Any = next((r for r in records(self.log) if r.timestamp_ms >= timestamp_ms), None)
        found = offset_for_timestamp(self.log, timestamp_ms, self.end_offset)
        assert (found and found[:2]) == (expected and (expected.offset, expected.timestamp_ms))

    @rule()
    def indexes_equal_a_rebuild(self) -> None:
        interval = self.site.config.index_interval_bytes
        for segment in self.log.segments:
            built = build_indexes(segment.log.get(), segment.base_offset, segment.size_bytes, interval, finish=True)
            assert segment.indexes.offset.encode() == built.offset_index.encode()
            if segment is not self.log.segments.active:
                assert segment.indexes.time.last_timestamp_ms == built.time_index.last_timestamp_ms


def _is_run_of(found: list[bytes], version: list[bytes]) -> bool:
    """Whether `found` stands in `version` in one piece."""
    return found[0] in version and version[version.index(found[0]) :][: len(found)] == found


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=100, stateful_step_count=30)
