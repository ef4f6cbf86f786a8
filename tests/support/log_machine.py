"""The log against a list, under any sequence of operations: a hypothesis state machine.

`LogMachine.TestCase` is what pytest runs. Crashes and faults in the middle of an operation, and what is checked after
each, are the base class's (`log_crashes`); here is what a broker does to a log and what it asks of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import initialize, precondition, rule

from strandline.protocol.records.batch import assign_offset, read_header
from strandline.protocol.records.validation import validate_produced
from strandline.storage.cleaning.facts import last_offsets_of_producers
from strandline.storage.cleaning.takeover import LentSegments
from strandline.storage.disk.removal import remove
from strandline.storage.log.checked_append import Appended, append_checked
from strandline.storage.log.log_start import check_retention, raise_log_start, take_off_head
from strandline.storage.log.timestamps import batch_for_timestamp, largest_timestamp
from strandline.storage.producers.states import SEQUENCES
from support.cleaning import clean, foreseen, newest_of, plan_for
from support.log_audit import state_of
from support.log_crashes import LogUnderCrashes
from support.log_model import Batches, Model, longer_or_shorter, replaced, untouched
from support.storage_site import TOPIC_ID, TP, produced

PRODUCERS = st.integers(1, 3)
CODECS = st.sampled_from(["none", "none", "none", "gzip", "lz4"])


class LogMachine(LogUnderCrashes):
    """Small segments and index intervals, so that every border is crossed."""

    @initialize(
        segment_bytes=st.sampled_from([200, 500, 2000, 100_000]),
        index_interval_bytes=st.sampled_from([0, 100, 1000]),
        max_open_files=st.sampled_from([1, 3, 100]),
        retention_bytes=st.sampled_from([-1, 300, 1500]),
        data=st.data(),
    )
    def begin(
        self, segment_bytes: int, index_interval_bytes: int, max_open_files: int, retention_bytes: int, data: Any
    ) -> None:
        self.data = data
        self.site.config = replace(
            self.site.config,
            segment_bytes=segment_bytes,
            index_interval_bytes=index_interval_bytes,
            retention_bytes=retention_bytes,
            retention_ms=2000,
            segment_ms=300,
        )
        self.site.max_open_files = max_open_files
        self._start()
        self.manager.mark_loss_handled()
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
        wanted = self._stamped(wave)
        self._run(lambda: self.log.append_as_leader(wave, self.epoch), wanted, longer_or_shorter)

    def _stamped(self, wave: list[Any]) -> Model:
        offset = self.model.end
        for batch in wave:
            assign_offset(batch.view, offset, self.epoch)
            offset += batch.records_count
        return self.model.append([bytes(batch.view) for batch in wave])

    @rule(
        producer_id=st.integers(1, 3), counts=st.lists(st.integers(1, 5), min_size=1, max_size=6), again=st.booleans()
    )
    def produce(self, producer_id: int, counts: list[int], again: bool) -> None:
        """Batches of an idempotent producer, the last one of which it may send once more."""
        known = self.log.producers.states.get(producer_id)
        sequence = (known.batches[-1].last_sequence + 1) % SEQUENCES if known is not None and known.batches else 0
        entries = []
        for count in counts:
            entries.append(produced(count, 1000 + self.clock_ms, producer=(producer_id, 0, sequence)))
            sequence += count
        wave = [bytes(entry[0].view) for entry in entries]
        wanted = self._stamped([entry[0] for entry in entries])
        if again:
            entries.append(validate_produced(memoryview(bytearray(wave[-1])), max_batch_bytes=2**30))
        outcomes: list[Any] = []
        if self._run(lambda: outcomes.extend(append_checked(self.log, entries, self.epoch)), wanted, longer_or_shorter):
            assert [each.is_repetition for each in outcomes] == [False] * len(counts) + [True] * again

    @rule(producer_id=PRODUCERS, back=st.integers(1, 5))
    def repeat(self, producer_id: int, back: int) -> None:
        """A producer that got no answer sends one of its last batches again: it is never appended twice."""
        known = self.log.producers.states.get(producer_id)
        if known is None or len(known.batches) < back or self.crash_after is not None or self.fault is not None:
            return
        batch = known.batches[-back]
        count = batch.last_sequence - batch.base_sequence + 1
        entry = produced(count, producer=(producer_id, known.epoch, batch.base_sequence))
        (outcome,) = append_checked(self.log, [entry], self.epoch)
        assert isinstance(outcome, Appended) and outcome.is_repetition and outcome.base_offset == batch.base_offset

    @rule(counts=st.lists(st.integers(1, 5), min_size=1, max_size=8), new_epochs=st.integers(0, 2))
    def append_as_follower(self, counts: list[int], new_epochs: int) -> None:
        sent: list[bytes] = []
        model = self.model
        for place, count in enumerate(counts):
            if place >= len(counts) - new_epochs:
                self.epoch += 1
            (batch,) = produced(count, 1000 + self.clock_ms)
            assign_offset(batch.view, model.end, self.epoch)
            sent.append(bytes(batch.view))
            model = model.append(sent[-1:])
        data = memoryview(bytearray(b"".join(sent)))
        self._run(lambda: self.log.append_as_follower(data, self.epoch), model, longer_or_shorter)

    @rule()
    def elect(self) -> None:
        self.epoch += 1
        self.log.epochs.assign(self.epoch, self.log.log_end_offset)

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        offset = self.model.start + int((self.model.end - self.model.start + 2) * fraction)
        offset = max(offset, min(self.compacted_below, self.model.end))  # what is compacted was committed
        self._run(lambda: self.log.truncate_to(offset), self.model.cut(offset), longer_or_shorter)

    @rule(fraction=st.floats(0, 1), counts=st.lists(st.integers(1, 5), min_size=1, max_size=8))
    def diverge(self, fraction: float, counts: list[int]) -> None:
        """The tail is replaced by that of another leader."""
        crashes = self.crashes
        self.truncate(fraction)
        if crashes == self.crashes:
            self.epoch += 1
            self.append_as_follower(counts, 0)

    @rule(jump=st.integers(-3, 50))
    def start_anew(self, jump: int) -> None:
        offset = max(0, self.model.end + jump)
        if self._run(lambda: self.log.truncate_fully_and_start_at(offset), Model(offset, offset), replaced):
            self.below = ()
            self.compacted_below = 0

    @rule(fraction=st.floats(0, 1))
    def commit(self, fraction: float) -> None:
        self.high_watermark += int((self.model.end - self.high_watermark) * fraction)
        self._run(lambda: self.manager.checkpoints.write_high_watermarks({TP: self.high_watermark}))

    @rule(fraction=st.floats(0, 1))
    def delete_records(self, fraction: float) -> None:
        offset = self.model.start + int((self.high_watermark - self.model.start) * fraction)
        self._take_head(lambda: raise_log_start(self.log, offset, self.high_watermark))

    @rule(age_ms=st.integers(0, 4000))
    def retain(self, age_ms: int) -> None:
        self._take_head(lambda: None, 1000 + self.clock_ms + age_ms)

    def _take_head(self, first: Callable[[], Any], now_ms: int | None = None) -> None:
        def operate() -> None:
            first()
            decision = check_retention(self.log, self.site.disk, self.high_watermark, now_ms)
            take_off_head(self.log, decision, self.high_watermark)

        before = self.model
        if self._run(operate):
            self.model = before.begin_at(self.log.log_start_offset)
            if len(self.model.batches) < len(before.batches):
                self.former.append(before)
                self.below += before.batches[: len(before.batches) - len(self.model.batches)]
            assert self.model.start <= self.high_watermark

    @rule()
    def unlink(self) -> None:
        self.manager.removals.due(0)
        doomed = self.manager.removals.due(10**9)
        self._run(lambda: remove(self.site.disk, doomed, self.site.reports.warning))

    @rule(
        fraction=st.sampled_from([0.5, 1]),
        joins=st.booleans(),
        entries=st.sampled_from([3, 100]),
        crash_after=st.none() | st.integers(0, 60),
    )
    def compact(self, fraction: float, joins: bool, entries: int, crash_after: int | None) -> None:
        """Sealed segments below the high watermark; ended anywhere, each group is the old one or the new one."""
        self.high_watermark += int((self.model.end - self.high_watermark) * fraction)
        lent = LentSegments(self.log, self.high_watermark)
        settings: dict[str, Any] = {
            "segment_bytes": 2000 if joins else 1,
            "map_entries": entries,
            "last_of_producer": last_offsets_of_producers(self.log, self.high_watermark),
        }
        versions = foreseen(self.log, lent, self.site.disk, plan_for(self.log, lent, **settings))
        assert newest_of(versions[-1]) == newest_of(versions[0])
        start = self.model.start
        parts = [
            (tuple(b for b in whole if read_header(b).next_offset <= start), Model(start, self.model.end, tuple(whole)))
            for whole in versions
        ]
        models = [(below, model.begin_at(start)) for below, model in parts]

        def one_of_them(_: Batches, before: Model, wanted: Model, found: Model) -> bool:
            return found.start <= start and any(untouched(below, model, model, found) for below, model in models)

        crashes = self.crashes
        if self.crash_after is None and self.fault is None and len(versions) > 1:
            self.crash_after = crash_after
        self.former += [model for _, model in parts]
        if self._run(
            lambda: clean(self.log, self.site.disk, end_offset=self.high_watermark, **settings),
            models[-1][1],
            one_of_them,
        ):
            self.below = models[-1][0]
        elif crashes != self.crashes:
            self.below = ()
            self.site.disk.fsync_dir(self.log.segments.folder)  # names become durable sooner or later
        if lent.sources:
            self.compacted_below = max(self.compacted_below, lent.sources[-1].end_offset)

    @rule()
    def roll(self) -> None:
        self._run(self.log.roll)

    @rule(checkpoints=st.booleans())
    def flush(self, checkpoints: bool) -> None:
        if self._run(lambda: self.log.flushed(self.log.flush_plan()()), forgets=True):
            assert self.log.recovery_point == self.model.end
            if checkpoints:
                self.checkpoint()

    @rule()
    def plan_a_flush(self) -> None:
        """Its thread is slow: other things happen to the log before it runs."""
        if self.fault is None and self.crash_after is None:
            self.plan = (self.log, self.log.flush_plan())

    @precondition(lambda self: self.plan is not None)
    @rule()
    def run_the_planned_flush(self) -> None:
        (log, plan), self.plan = self.plan, None
        if log is self.log:
            self._run(lambda: log.flushed(plan()))

    @rule()
    def checkpoint(self) -> None:
        self._run(self.manager.checkpoints.write_recovery_points)

    @precondition(lambda self: self.fault is None)
    @rule(clean=st.booleans())
    def stop_and_start(self, clean: bool) -> None:
        if self._run(lambda: self.manager.close(clean=clean), forgets=clean):
            self._start()
            assert self.manager.was_clean == clean
            self.manager.mark_loss_handled()  # the log may have been cut below the high watermark on disk
            self.log = self.manager.logs[TP]
            self._take_up_start()

    @rule()
    def kill_and_start(self) -> None:
        self.loses_power = False
        self._crash(self.model, self.model, untouched)

    @rule()
    def lose_power_and_start(self) -> None:
        self.loses_power = True
        self._crash(self.model, self.model, untouched)

    def _take_up_start(self) -> None:
        """A log start that was in memory only may be lower again."""
        state = state_of(self.log)
        found = Model(state.start, state.end, state.batches)
        assert untouched(self.below, self.model, self.model, found)
        self.model = found
        self.high_watermark = self.manager.high_watermarks.get(TP, self.model.start)

    # --- what is asked of it -----------------------------------------------------------------------------------------

    @rule(offset=st.floats(0, 1), end=st.floats(0, 1), max_bytes=st.integers(0, 700))
    def read_anywhere(self, offset: float, end: float, max_bytes: int) -> None:
        span = self.model.end - self.model.start
        first, limit = (self.model.start + int(span * fraction) for fraction in (offset, end))
        region = self.log.read(first, max_bytes, limit)
        headers = [(batch, read_header(batch).next_offset) for batch in self.model.batches]
        wanted = [batch for batch, next_offset in headers if first < next_offset <= limit]
        if first >= limit or not wanted:
            assert region is None
            return
        assert region is not None
        data = region.file.pread(region.length, region.position)
        assert b"".join(wanted).startswith(data)
        assert data.startswith(wanted[0]) and (len(data) <= max_bytes or data == wanted[0])

    @rule(timestamp_ms=st.integers(900, 3000))
    def find_a_timestamp(self, timestamp_ms: int) -> None:
        headers = map(read_header, self.model.batches)
        expected = next((each.base_offset for each in headers if each.max_timestamp_ms >= timestamp_ms), None)
        found = batch_for_timestamp(self.log, timestamp_ms, self.model.start, self.model.end)
        assert (found and found[0].base_offset) == expected

    @rule(offset=st.floats(0, 1), end=st.floats(0, 1))
    def find_the_largest_timestamp(self, offset: float, end: float) -> None:
        span = self.model.end - self.model.start
        first, limit = (self.model.start + int(span * fraction) for fraction in (offset, end))
        within = [
            each.max_timestamp_ms
            for each in map(read_header, self.model.batches)
            if each.base_offset < limit and each.last_offset >= first
        ]
        if first < limit:
            assert largest_timestamp(self.log, first, limit) == max(within, default=-1)
