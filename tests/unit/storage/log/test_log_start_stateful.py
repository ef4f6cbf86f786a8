"""The head of a log against a list: appends, commits, deletions, retention, checkpoints; killed or without power at any
disk operation of any of them.

The model is a list of batches and three offsets. A kill keeps every record at or above the log start; the start itself
is at least what was checkpointed and at most what was asked for. A power failure keeps at least what lies below the
recovery point. Nothing at or above the high watermark ever leaves at the head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from strandline.protocol.records.batch import read_header, scan
from strandline.storage.log.log import Log
from strandline.storage.log.log_start import check_retention, raise_log_start, take_off_head
from strandline.storage.log.segment_times import note_times, read_times, times_wanted
from strandline.storage.manager.log_manager import LogManager
from support.storage_site import TOPIC_ID, TP, StorageSite, epochs, produced, raw

BATCH_BYTES = produced()[0].size_bytes


class Killed(BaseException):
    """Here the process ends."""


class HeadMachine(RuleBasedStateMachine):
    """Segments of a few batches; `hurt` wraps each rule that touches the disk."""

    def __init__(self) -> None:
        super().__init__()
        self.site = StorageSite()
        self.batches: list[bytes] = []
        """From offset 0 on, also those that are gone: a kill may bring some back."""
        self.start_offset = 0
        self.promised_start = 0
        """As checkpointed; a start may come back lower than `start_offset`, never lower than this."""
        self.high_watermark = 0
        self.end_offset = 0
        self.now_ms = 10_000
        self.now_removing_ms = 0
        self.epoch = 0
        self.manager: LogManager
        self.log: Log

    @initialize(
        per_segment=st.integers(1, 4),
        retention_ms=st.sampled_from([-1, 0, 50, 300]),
        retention_batches=st.sampled_from([-1, 0, 3, 8]),
        policy=st.sampled_from([("delete",), ("compact",), ("compact", "delete")]),
        max_open_files=st.sampled_from([1, 100]),
    )
    def begin(
        self,
        per_segment: int,
        retention_ms: int,
        retention_batches: int,
        policy: tuple[str, ...],
        max_open_files: int,
    ) -> None:
        self.site.config = replace(
            self.site.config,
            segment_bytes=per_segment * BATCH_BYTES,
            retention_ms=retention_ms,
            retention_bytes=retention_batches * BATCH_BYTES if retention_batches >= 0 else -1,
            cleanup_policy=policy,
        )
        self.site.max_open_files = max_open_files
        self.manager = self.site.start()
        self.log = self.manager.create(TP, TOPIC_ID)
        self.site.disk.sync_everything()

    def hurt(self, act: Callable[[], None], stop_before: int | None, choose: Callable[[int], int] | None) -> None:
        """Do it; with `stop_before`, end before that disk operation, by a kill or (choose) a power failure."""
        disk, count = self.site.disk, 0

        def on_operation(operation: str, path: str) -> None:
            nonlocal count
            if count == stop_before:
                raise Killed
            count += 1

        disk.on_operation = on_operation
        try:
            act()
        except Killed:
            pass
        finally:
            disk.on_operation = None
        if stop_before is not None:
            self.restart(choose)

    def restart(self, choose: Callable[[int], int] | None) -> None:
        sure_below = self.end_offset if choose is None else self.log.recovery_point
        if choose is None:
            self.site.disk.kill()
        else:
            self.site.disk.crash(choose)
        self.manager = self.site.start()
        log = self.log = self.manager.logs[TP]
        assert self.promised_start <= log.log_start_offset <= self.start_offset
        assert sure_below <= log.log_end_offset <= self.end_offset or log.log_end_offset == self.start_offset
        self.start_offset, self.end_offset = log.log_start_offset, log.log_end_offset
        self.batches = [batch for batch in self.batches if read_header(batch).next_offset <= self.end_offset]
        self.high_watermark = max(self.start_offset, min(self.high_watermark, self.end_offset))
        self.epoch = max(self.epoch, log.last_epoch)

    # --- what happens -------------------------------------------------------------------------------------------------

    @rule(counts=st.lists(st.integers(1, 3), min_size=1, max_size=5), step_ms=st.integers(-20, 100))
    def append(self, counts: list[int], step_ms: int) -> None:
        self.now_ms = max(5_000, self.now_ms + step_ms)
        wave = [batch for count in counts for batch in produced(count, self.now_ms)]
        assert self.log.append_as_leader(wave, self.epoch) == self.end_offset
        self.batches += [bytes(batch.view) for batch in wave]
        self.end_offset += sum(counts)

    @rule(fraction=st.floats(0, 1))
    def commit(self, fraction: float) -> None:
        self.high_watermark += round((self.end_offset - self.high_watermark) * fraction)

    @rule()
    def elect(self) -> None:
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.log_end_offset)

    @rule(fraction=st.floats(0, 1))
    def delete_records(self, fraction: float) -> None:
        offset = self.start_offset + round((self.high_watermark - self.start_offset) * fraction)
        assert raise_log_start(self.log, offset, self.high_watermark) == (offset > self.start_offset)
        self.start_offset = offset

    @rule(stop_before=st.none() | st.integers(0, 25), power=st.booleans(), data=st.data())
    def retain(self, stop_before: int | None, power: bool, data: st.DataObject) -> None:
        choose = (lambda options: data.draw(st.integers(0, options - 1))) if power else None
        expected = self.expected_start()

        def act() -> None:
            while True:
                decision = check_retention(self.log, self.site.disk, self.high_watermark, self.now_ms)
                if decision.removed:
                    self.start_offset = max(self.start_offset, decision.log_start_offset)
                    assert self.start_offset <= self.high_watermark
                    take_off_head(self.log, decision, self.high_watermark)
                elif decision.needs_time_of is not None:
                    wanted = times_wanted(self.log, decision.needs_time_of)
                    note_times(self.log, wanted, read_times(self.site.disk, wanted))
                else:
                    return

        self.hurt(act, stop_before, choose)
        if stop_before is None:
            assert self.log.log_start_offset == expected
            first = next(iter(self.log.segments))
            assert first.base_offset <= self.log.log_start_offset or not self.batches

    def expected_start(self) -> int:
        """Kafka's three passes over what the log has."""
        log, config = self.log, self.site.config
        segments = list(log.segments)
        ends = [segment.base_offset for segment in segments[1:]] + [self.end_offset]
        left = list(zip(segments, ends, strict=True))
        start = self.start_offset

        def may_go() -> bool:
            return (
                bool(left) and left[0][1] <= self.high_watermark and not (len(left) == 1 and not left[0][0].size_bytes)
            )

        def youngest_ms() -> int:
            inside = [read_header(b) for b in self.batches if left[0][0].base_offset <= read_header(b).base_offset]
            return max((h.max_timestamp_ms for h in inside if h.base_offset < left[0][1]), default=-1)

        while may_go() and left[0][1] <= start:
            left.pop(0)
        if "delete" in config.cleanup_policy and config.retention_bytes >= 0:
            while may_go() and sum(segment.size_bytes for segment, _ in left[1:]) >= config.retention_bytes:
                start = max(start, left.pop(0)[1])
        if "delete" in config.cleanup_policy and config.retention_ms >= 0:
            while may_go() and self.now_ms - youngest_ms() > config.retention_ms:
                start = max(start, left.pop(0)[1])
        return start

    @rule(stop_before=st.none() | st.integers(0, 12), power=st.booleans(), data=st.data())
    def checkpoint(self, stop_before: int | None, power: bool, data: st.DataObject) -> None:
        choose = (lambda options: data.draw(st.integers(0, options - 1))) if power else None

        def act() -> None:
            self.manager.checkpoints.write_log_starts()
            self.promised_start = self.start_offset

        self.hurt(act, stop_before, choose)

    @rule()
    def flush(self) -> None:
        self.log.flushed(self.log.flush_plan()())
        self.manager.checkpoints.write_recovery_points()

    @rule(stop_before=st.none() | st.integers(0, 12), waited_ms=st.sampled_from([0, 60_000]))
    def unlink(self, stop_before: int | None, waited_ms: int) -> None:
        self.now_removing_ms += waited_ms
        doomed = self.manager.removals.due(self.now_removing_ms)
        self.hurt(lambda: self.manager.remove(doomed), stop_before, None)

    @rule()
    def kill_and_start(self) -> None:
        self.restart(None)

    @rule(clean=st.booleans())
    def stop_and_start(self, clean: bool) -> None:
        self.manager.close(clean=clean)
        if clean:
            self.promised_start = self.start_offset
        self.restart(None)

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def the_log_is_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        log = self.log
        assert (log.log_start_offset, log.log_end_offset) == (self.start_offset, self.end_offset)
        assert log.log_start_offset <= self.high_watermark <= log.log_end_offset
        left = [batch for batch in self.batches if read_header(batch).next_offset > self.start_offset]
        found = memoryview(raw(log))
        assert [bytes(found[at : at + header.size_bytes]) for at, header in scan(found)] == left
        entries = epochs(log)
        assert not entries or entries[0][1] >= self.start_offset

    @rule()
    def sizes_add_up(self) -> None:
        assert self.log.size_bytes == sum(segment.size_bytes for segment in self.log.segments)

    @rule(offset=st.floats(0, 1))
    def below_the_start_nothing_is_found(self, offset: float) -> None:
        found: Any = self.log.epochs.end_offset(self.epoch, self.end_offset)
        assert found.end_offset == -1 or found.end_offset >= self.start_offset


TestHeadMachine = HeadMachine.TestCase
TestHeadMachine.settings = settings(max_examples=100, stateful_step_count=30)
