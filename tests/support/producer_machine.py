"""A state machine for hypothesis: idempotent producers on a log, against the list of batches that the log holds.

What must hold (invariant 17): of each producer and epoch a sequence lands at most once and in order, whatever happens
in between: repetitions within a wave and later, rolls, cuts, clean stops, kills, power failures, a log that starts
anew, batches that came from a leader.

The model is the log's own batches. Of a producer with a batch in the log: its latest batch is always recognised, with
its offset; the one that follows is always taken; of the four before the latest each is recognised with its offset as
long as the log was neither cut nor loaded since, and never appended again. All the rest is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from strandline.protocol.errors import ErrorCode
from strandline.protocol.records.batch import BatchHeader
from strandline.protocol.records.validation import ProducedBatch
from strandline.storage.log.checked_append import Appended, Outcome, append_checked
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.storage.producers.states import SEQUENCES
from strandline.storage.segments.scan import walk_headers
from support.storage_site import TOPIC_ID, TP, StorageSite, produced, raw

FIRST_SEQUENCES = (0, 5, SEQUENCES - 3)
REFUSALS = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)


@dataclass(frozen=True)
class Sent:
    """A batch of a producer, as it was or would be appended."""

    epoch: int
    sequence: int
    count: int
    offset: int = -1

    @property
    def next_sequence(self) -> int:
        return (self.sequence + self.count) % SEQUENCES


Entry = tuple[int, str, int]
"""(producer id, what it sends, a number): 'next' batch of so many records, 'again' the latest but so many, 'gap',
'epoch' a new one, 'stale' an old one; id −1: no idempotent producer."""

ENTRIES = st.tuples(
    st.sampled_from([-1, 1, 1, 1, 2, 3]),
    st.sampled_from(["next", "next", "next", "again", "again", "gap", "epoch", "stale"]),
    st.integers(0, 7),
)


class ProducerMachine(RuleBasedStateMachine):
    """Segments are small, so that a few batches cross every border."""

    def __init__(self) -> None:
        super().__init__()
        self.site = StorageSite()
        self.history: dict[int, list[Sent]] = {}
        """Of each producer what the log holds of its latest epoch."""
        self.is_whole = True
        """Nothing was cut or loaded since the log was made."""
        self.end_offset = 0
        self.manager: LogManager
        self.log: Log

    @initialize(segment_bytes=st.sampled_from([300, 1000, 100_000]))
    def begin(self, segment_bytes: int) -> None:
        self.site.config = replace(self.site.config, segment_bytes=segment_bytes, segment_ms=10**9)
        self.manager = self.site.start()
        self.manager.mark_loss_handled()
        self.log = self.manager.create(TP, TOPIC_ID)

    # --- appends ------------------------------------------------------------------------------------------------------

    @rule(entries=st.lists(ENTRIES, min_size=1, max_size=8))
    def append(self, entries: list[Entry]) -> None:
        sent = [self._make(*entry) for entry in entries]
        for (producer_id, _, _), each, outcome in zip(entries, sent, self._send(entries, sent), strict=True):
            self._judge(producer_id, each, outcome)
        assert self.log.log_end_offset == self.end_offset

    def _make(self, producer_id: int, what: str, number: int) -> Sent:
        """What a producer sends now, by what the log held before the wave."""
        if producer_id < 0:
            return Sent(-1, -1, 1 + number)
        known = self.history.get(producer_id)
        if not known:
            return Sent(0, FIRST_SEQUENCES[number % 3], 1 + number)
        latest = known[-1]
        if what == "again":
            return replace(known[max(0, len(known) - 1 - number)], offset=-1)
        if what == "gap":
            return Sent(latest.epoch, (latest.next_sequence + 1 + number) % SEQUENCES, 1)
        if what == "epoch":
            return Sent(latest.epoch + 1, number // 4, 1 + number % 4)
        if what == "stale" and latest.epoch > 0:
            return Sent(latest.epoch - 1, latest.next_sequence, 1)
        return Sent(latest.epoch, latest.next_sequence, 1 + number)

    def _send(self, entries: list[Entry], sent: list[Sent]) -> list[Outcome]:
        wave: list[list[ProducedBatch]] = []
        for (producer_id, _, _), each in zip(entries, sent, strict=True):
            producer = None if producer_id < 0 else (producer_id, each.epoch, each.sequence)
            wave.append(produced(each.count, producer=producer))
        return append_checked(self.log, wave, 0)

    def _judge(self, producer_id: int, sent: Sent, outcome: Outcome) -> None:
        """Whether the outcome is right after all that was appended before it; note it if it was appended."""
        known = self.history.get(producer_id, [])
        if isinstance(outcome, Appended) and not outcome.is_repetition:
            assert (outcome.base_offset, outcome.next_offset) == (self.end_offset, self.end_offset + sent.count)
            self.end_offset = outcome.next_offset
            if producer_id >= 0:
                assert _may_follow(known, sent), f"{sent} landed after {known[-1:]}"
                kept = known if known and known[-1].epoch == sent.epoch else []
                self.history[producer_id] = [*kept, replace(sent, offset=outcome.base_offset)]
            return
        assert producer_id >= 0
        places = [place for place, each in enumerate(known) if _is_same(each, sent)]
        if isinstance(outcome, Appended):
            assert places and outcome.base_offset == known[places[-1]].offset
            assert outcome.next_offset == outcome.base_offset + sent.count
            return
        assert known, f"{sent} of an unknown producer was refused: {outcome}"
        assert sent.epoch >= known[-1].epoch or outcome.code is ErrorCode.INVALID_PRODUCER_EPOCH
        assert sent.epoch < known[-1].epoch or outcome.code in REFUSALS
        assert not _may_follow(known, sent), f"{sent} follows {known[-1]} and was refused: {outcome}"
        if places:
            surely_known = 5 if self.is_whole else 1
            assert len(known) - places[-1] > surely_known, f"{sent} was not recognised: {outcome}"
        if outcome.code is ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            assert places, f"{sent} never landed, and its producer was told that it had"

    @rule(entries=st.lists(ENTRIES, min_size=1, max_size=4))
    def append_as_follower(self, entries: list[Entry]) -> None:
        """A leader that has the same log checked and appended these."""
        leader = StorageSite().log(segment_bytes=10**6)
        leader.truncate_fully_and_start_at(self.end_offset)
        for producer_id, what, number in entries:
            sent = self._make(producer_id, "next" if what == "gap" else what, number)
            known = self.history.get(producer_id, [])
            if producer_id >= 0 and not _may_follow(known, sent):
                continue
            producer = None if producer_id < 0 else (producer_id, sent.epoch, sent.sequence)
            offset = leader.append_as_leader(produced(sent.count, producer=producer), 0)
            if producer_id >= 0:
                kept = known if known and known[-1].epoch == sent.epoch else []
                self.history[producer_id] = [*kept, replace(sent, offset=offset)]
        self.log.append_as_follower(memoryview(raw(leader)))
        self.end_offset = leader.log_end_offset

    # --- what happens to the log --------------------------------------------------------------------------------------

    @rule()
    def roll(self) -> None:
        self.log.roll()

    @rule()
    def flush(self) -> None:
        self.log.flushed(self.log.flush_plan()())

    @rule(fraction=st.floats(0, 1))
    def flush_that_is_overtaken_by_a_cut(self, fraction: float) -> None:
        plan = self.log.flush_plan()
        offset = plan()
        self.truncate(fraction)
        self.log.flushed(offset)

    @rule()
    def checkpoint(self) -> None:
        self.manager.checkpoints.write_recovery_points()

    @rule(fraction=st.floats(0, 1))
    def truncate(self, fraction: float) -> None:
        self.log.truncate_to(self.log.log_start_offset + int((self.end_offset - self.log.log_start_offset) * fraction))
        self._learn()

    @rule(jump=st.integers(0, 9))
    def start_anew(self, jump: int) -> None:
        self.log.truncate_fully_and_start_at(self.end_offset + jump)
        self._learn()

    @rule(clean=st.booleans())
    def stop_and_start(self, clean: bool) -> None:
        self.manager.close(clean=clean)
        self._start()

    @rule()
    def kill_and_start(self) -> None:
        self.site.disk.kill()
        self._start()

    @rule(data=st.data())
    def lose_power_and_start(self, data: st.DataObject) -> None:
        self.site.disk.crash(lambda options: data.draw(st.integers(0, options - 1)))
        self._start()

    def _start(self) -> None:
        self.manager = self.site.start()
        self.manager.mark_loss_handled()
        if TP not in self.manager.logs:
            self.manager.create(TP, TOPIC_ID)
        self.log = self.manager.logs[TP]
        assert not self.site.reports.of("producer-snapshot-damaged")
        self._learn()

    def _learn(self) -> None:
        """The log was cut or loaded: what its files hold is what counts, below the log start, too (a power failure
        that undid the removal of segments leaves such)."""
        self.is_whole = False
        self.end_offset = self.log.log_end_offset
        self.history = {}
        for header in self._headers():
            if header.producer_id >= 0:
                known = self.history.setdefault(header.producer_id, [])
                if known and known[-1].epoch != header.producer_epoch:
                    known.clear()
                known.append(_as_sent(header))

    def _headers(self) -> Iterator[BatchHeader]:
        for segment in self.log.segments:
            yield from (header for _, header in walk_headers(segment.file.get(), 0, segment.size_bytes))

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def the_latest_batch_of_each_producer_is_known(self) -> None:
        if not hasattr(self, "log"):
            return
        states = self.log.producers.states
        assert sorted(states) == sorted(self.history)
        for producer_id, known in self.history.items():
            producer = states.get(producer_id)
            assert producer is not None
            mine = [Sent(producer.epoch, b.base_sequence, b.last_offset - b.base_offset + 1, b.base_offset)
                    for b in producer.batches]  # fmt: skip
            assert mine and mine == known[-len(mine) :]
            assert not self.is_whole or len(mine) == min(5, len(known))

    @invariant()
    def no_snapshot_tells_of_what_is_not_there(self) -> None:
        if not hasattr(self, "log"):
            return
        snapshots = self.log.producers.snapshots
        assert all(offset <= self.log.log_end_offset for offset in snapshots.offsets)


def _may_follow(known: list[Sent], sent: Sent) -> bool:
    if not known:
        return True
    if sent.epoch != known[-1].epoch:
        return sent.epoch > known[-1].epoch and sent.sequence == 0
    return sent.sequence == known[-1].next_sequence


def _is_same(one: Sent, other: Sent) -> bool:
    return replace(one, offset=-1) == replace(other, offset=-1)


def _as_sent(header: BatchHeader) -> Sent:
    return Sent(header.producer_epoch, header.base_sequence, header.records_count, header.base_offset)
