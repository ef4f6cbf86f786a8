"""Followers that copy a compacted log: fetch by fetch, cut back, flushed, checkpointed and killed at any point.

A kill loses nothing of a log, with one exception: a last batch behind the first gap that no checkpoint knows. That one
is kept aside, and the broker counts as one that lost data."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from strandline.protocol.records.batch import assign_offset, read_header
from support.log_audit import check_log, state_of
from support.storage_site import FOLDER, TOPIC_ID, TP, StorageSite, file_names, produced

LENGTHS = st.lists(st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 0, 1, 7, 40])), min_size=1, max_size=25)


class CopiedGaps(RuleBasedStateMachine):
    """`leader`: the batches of the leader's log, what the cleaner left of it."""

    @initialize(
        lengths=LENGTHS,
        first_gap=st.sampled_from([0, 5]),
        epoch_every=st.integers(2, 9),
        segment_bytes=st.sampled_from([150, 400, 100_000]),
        index_interval_bytes=st.sampled_from([0, 100, 1000]),
    )
    def begin(
        self, lengths: list[Any], first_gap: int, epoch_every: int, segment_bytes: int, index_interval_bytes: int
    ) -> None:
        self.leader: list[bytes] = []
        offset = first_gap
        for place, (count, gap) in enumerate(lengths):
            (batch,) = produced(count, 1000 + place)
            assign_offset(batch.view, offset, place // epoch_every)
            self.leader.append(bytes(batch.view))
            offset += count + gap
        self.site = StorageSite()
        self.site.config = replace(
            self.site.config, segment_bytes=segment_bytes, index_interval_bytes=index_interval_bytes
        )
        self.manager = self.site.start()
        self.manager.mark_loss_handled()
        self.log = self.manager.create(TP, TOPIC_ID)
        self.high_watermark = 0

    @rule(count=st.integers(1, 6))
    def fetch(self, count: int) -> None:
        rest = [batch for batch in self.leader if read_header(batch).base_offset >= self.log.log_end_offset]
        if rest:
            self.log.append_as_follower(memoryview(bytearray(b"".join(rest[:count]))))

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        """Anywhere above the high watermark, in a gap, too."""
        end_offset = self.log.log_end_offset
        self.log.truncate_to(self.high_watermark + int((end_offset - self.high_watermark) * fraction))
        assert self.log.recovery_point <= self.log.log_end_offset <= end_offset

    @rule(checkpoints=st.booleans())
    def flush(self, checkpoints: bool) -> None:
        self.log.flushed(self.log.flush_plan()())
        if checkpoints:
            self.manager.checkpoints.write_recovery_points()

    @rule(fraction=st.sampled_from([0.5, 1]))
    def commit(self, fraction: float) -> None:
        """The follower's high watermark lies at the end of one of its batches."""
        ends = [read_header(batch).next_offset for batch in state_of(self.log).batches]
        if ends:
            self.high_watermark = max(self.high_watermark, ends[int((len(ends) - 1) * fraction)])
            self.manager.checkpoints.write_high_watermarks({TP: self.high_watermark})

    @rule(clean=st.booleans())
    def stop_and_start(self, clean: bool) -> None:
        before = state_of(self.log)
        if clean:
            self.manager.close(clean=True)
        else:
            self.site.disk.kill()
        self.manager = self.site.start()
        self.log = self.manager.logs[TP]
        found = state_of(self.log)
        kept = file_names(self.site.disk, ".damaged")
        if found.batches == before.batches:
            assert not self.manager.may_have_lost_data and not kept and found == before
        else:
            assert not clean and found.batches == before.batches[:-1]
            header = read_header(before.batches[-1])
            assert header.base_offset > found.end and self.high_watermark <= found.end
            assert self.manager.may_have_lost_data
            assert [self.site.disk.read(f"{FOLDER}/{name}") for name in kept] == [before.batches[-1]]
            self.site.disk.unlink(f"{FOLDER}/{kept[0]}")
            self.manager.mark_loss_handled()
        check_log(self.log, self.site.config.index_interval_bytes)


TestCopiedGaps = CopiedGaps.TestCase
