"""A log that may be ended between any two disk operations: the base of the state machines of storage.

`model` is what the log should hold (`log_model`). A rule of a subclass does something to the log through `_run`, and
that may be ended in the middle: `arm_crash` lets the next operation die before the n-th disk operation that it makes
(and the start after that one, too); `arm_fault` lets the disk fail once. Then:
* a kill leaves the state before, the one after, or a part of what was appended, cut off or removed from the head;
* a power failure leaves, byte for byte, what was durable (below the recovery point in memory), and as a whole a run
  without a hole of what the log was at some time since it was last flushed: a truncation may be undone by it;
* after a failure the log refuses changes, still answers reads of what it had, and a restart has all of that.

After every step: log and model are equal, log start <= high watermark <= log end, epochs are those of the batches,
indexes are those of a rebuild, what is known of producers is what their batches say (invariants 4, 5, 17, 19, 21, 23,
24).
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from strandline.protocol.records.batch import read_header
from strandline.storage.disk.checkpoints import HIGH_WATERMARKS, RECOVERY_POINTS, read_offsets
from strandline.storage.errors import LogStorageError
from strandline.storage.log.log import Log
from strandline.storage.manager.log_manager import LogManager
from strandline.testkit.disk.model import Fault
from support.crash_points import CHANGES
from support.log_audit import check_log, is_run_of, state_of
from support.log_model import Lawful, Model, longer_or_shorter, replaced, untouched
from support.storage_site import TOPIC_ID, TP, StorageSite, produced

FAULTS = [
    ("pwritev", "/logs/t-0/*.log"),
    ("pwritev", "*.*index"),
    ("fsync", "/logs/t-0/*"),
    ("rename", "/logs/*"),
    ("open", "/logs/t-0/*"),
    ("fsync_dir", "/logs*"),
    ("truncate", "/logs/t-0/*"),
    ("unlink", "/logs/t-0/*"),
]


class PowerCut(BaseException):
    """The program ends here."""


class LogUnderCrashes(RuleBasedStateMachine):
    """A log, its model, and what may happen between any two disk operations. Subclasses bring the operations."""

    examples = steps = crashes = 0
    """Over all runs of this process."""

    def __init__(self) -> None:
        super().__init__()
        LogUnderCrashes.examples += 1
        self.site = StorageSite()
        self.model = Model()
        self.former: list[Model] = []
        """What the log was since it was last flushed; a power failure may bring a part of it back."""
        self.below: tuple[bytes, ...] = ()
        """Batches below the log start that a restart may bring back: the start inside a segment waits for a
        checkpoint."""
        self.compacted_below = 0
        """Up to where the cleaner has been, at most."""
        self.epoch = 0
        self.high_watermark = 0
        self.clock_ms = 0
        self.crash_after: int | None = None
        self.loses_power = False
        self.fault: Any = None
        self.data: Any = None
        self.plan: Any = None
        """A flush that was planned and not run yet, with its log."""
        self.manager: LogManager
        self.log: Log

    # --- what may end an operation ------------------------------------------------------------------------------------

    @precondition(lambda self: self.crash_after is None and self.fault is None)
    @rule(operations=st.integers(0, 25), loses_power=st.booleans())
    def arm_crash(self, operations: int, loses_power: bool) -> None:
        self.crash_after, self.loses_power = operations, loses_power

    @precondition(lambda self: self.crash_after is None and self.fault is None)
    @rule(fault=st.sampled_from(FAULTS), number=st.sampled_from([errno.ENOSPC, errno.EIO]), after=st.integers(0, 3))
    def arm_fault(self, fault: tuple[str, str], number: int, after: int) -> None:
        self.fault = (*fault, number, after)

    def _watch(self, operation: str, path: str) -> None:
        if self.crash_after is not None and operation in CHANGES:
            self.crash_after -= 1
            if self.crash_after < 0:
                raise PowerCut

    def _run(
        self,
        operate: Callable[[], Any],
        wanted: Model | None = None,
        lawful: Lawful = untouched,
        forgets: bool = False,
    ) -> bool:
        """Let `operate` change the log to `wanted` (None: not at all). Whether it came to its end. lawful: what a kill
        may leave. forgets: a power failure brings nothing back from before."""
        before = self.model
        self.site.disk.on_operation = self._watch
        fault = self._let_fail()
        try:
            operate()
        except PowerCut:
            fault.cancel()
            self._crash(before, wanted or before, lawful)
            return False
        except (LogStorageError, OSError):
            assert fault.hits == 1, "nobody let the disk fail"
            fault.cancel()
            self._failed(before, wanted or before, lawful)
            return False
        finally:
            self.site.disk.on_operation = None
            fault.cancel()
            if fault.hits:
                self.fault = None
        if fault.hits and self.log.failure is not None:  # told to others, not to this caller
            self._failed(before, wanted or before, lawful)
            return False
        if fault.hits:  # it may have been a checkpoint, for want of room: there is room again
            self.manager.directories.look_for_room("/logs")
        if wanted is not None:
            self._adopt(wanted)
        if forgets:
            self.former.clear()
        return True

    def _let_fail(self) -> Fault:
        """The armed fault, active; one that never strikes where none is armed."""
        operation, pattern, number, after = self.fault or ("nothing", "", 0, 0)
        return self.site.disk.fail(operation, pattern, number, after=after, times=1)

    def _adopt(self, wanted: Model) -> None:
        if wanted.batches[: len(self.model.batches)] != self.model.batches:
            self.former.append(self.model)
        self.model = wanted
        self.high_watermark = max(min(self.high_watermark, wanted.end), wanted.start)

    def _failed(self, before: Model, wanted: Model, lawful: Lawful) -> None:
        """The disk failed under the operation, as was armed."""
        self.site.disk.on_operation = None
        # What is appended one after the other may have been taken in part.
        assert self.log.failure is not None or before.end <= self.log.log_end_offset <= max(before.end, wanted.end)
        if self.log.failure is not None:
            try:
                self.log.append_as_leader(produced(), self.epoch)
                raise AssertionError("a failed log takes appends")
            except LogStorageError:
                pass
            if len(wanted.batches) > len(before.batches):
                state = state_of(self.log)
                assert longer_or_shorter(self.below, before, wanted, Model(state.start, state.end, state.batches))
        self._crash(before, wanted, lawful)

    # --- crash, start, what is found ----------------------------------------------------------------------------------

    def _crash(self, before: Model, wanted: Model, lawful: Lawful) -> None:
        """The program or the machine ends; starts are ended, too, as long as the data says so."""
        self.site.disk.on_operation = None
        LogUnderCrashes.crashes += 1
        sure = self._sure(before, wanted)
        promised = max(
            read_offsets(self.site.disk, f"/logs/{name}").get(TP, 0) for name in (RECOVERY_POINTS, HIGH_WATERMARKS)
        )
        versions = [*self.former, before, wanted]
        lost_power = False
        for _ in range(3):
            lost_power |= self.loses_power
            if self.loses_power:
                self.site.disk.crash(lambda options: self.data.draw(st.integers(0, options - 1), "survives"))
            else:
                self.site.disk.kill()
            self.crash_after = self.data.draw(st.none() | st.integers(0, 15), "crash the start, too, after")
            self.site.disk.on_operation = self._watch
            try:
                self._start()
                break
            except PowerCut:
                self.loses_power = self.data.draw(st.booleans(), "the start loses power")
            finally:
                self.site.disk.on_operation = None
        else:
            self.crash_after = None
            self.site.disk.kill()
            self._start()
        self.crash_after, self.loses_power = None, False
        if TP not in self.manager.logs:
            assert lost_power and not sure
            self.manager.create(TP, TOPIC_ID)
        self.log = self.manager.logs[TP]
        state = state_of(self.log)
        found = Model(state.start, state.end, state.batches)
        if lost_power:
            assert [each for each in found.batches if each in sure] == sure, (
                f"of {len(sure)} durable batches {len(found.batches)} are there"
            )
            assert any(is_run_of(found.batches, version.with_head(self.below)) for version in versions)
            self.former = [each for each in versions if each.batches != found.batches]
            self.below = ()
        else:
            explained = found.end < promised or self._is_doubted(lawful)
            assert not self.manager.may_have_lost_data or explained, "a kill loses nothing"
            story = f"{found.describe()} where {before.describe()} was to become {wanted.describe()}"
            assert lawful(self.below, before, wanted, found), story
            self.former.append(before)
        self.model = found
        self.manager.mark_loss_handled()
        self.epoch = max(self.epoch, self.log.last_epoch)
        self.high_watermark = self.manager.high_watermarks.get(TP, self.model.start)

    def _is_doubted(self, lawful: Lawful) -> bool:
        """A log that begins anew lowers its checkpoints and drops its newest segments first. A compacted one may be the
        last of them after a kill: its last batch jumps, as one does whose offset flipped, and nobody vouches for it any
        more. A start cannot tell the two apart. So what was to go anyway is kept aside, and counts as lost."""
        cuts = self.site.reports.of("log-truncated")
        jumps = bool(cuts) and all(cut["kept_aside"] and "the last batch jumps" in cut["why"] for cut in cuts)
        return lawful is replaced and self.compacted_below > 0 and jumps

    def _sure(self, before: Model, wanted: Model) -> list[bytes]:
        """What no power failure may take: durable, and neither cut off nor removed from the head meanwhile."""
        durable, start = self.log.recovery_point, self.log.log_start_offset
        kept = [batch for batch in before.batches if batch in wanted.batches]
        return [b for b in kept if read_header(b).next_offset <= durable and read_header(b).base_offset >= start]

    def _start(self) -> None:
        self.manager = self.site.start()
        assert not self.manager.refused, self.manager.refused

    # --- what always holds --------------------------------------------------------------------------------------------

    @invariant()
    def the_log_is_the_model(self) -> None:
        if not hasattr(self, "log"):
            return
        LogUnderCrashes.steps += 1
        state = state_of(self.log)
        assert Model(state.start, state.end, state.batches) == self.model
        assert self.model.start <= self.high_watermark <= self.model.end
        assert self.log.recovery_point <= max(self.log.log_end_offset, self.log.log_start_offset)
        interval, compacted = self.site.config.index_interval_bytes, self.compacted_below > 0
        check_log(self.log, interval, short_indexes=True, compacted=compacted)

    @classmethod
    def report(cls) -> str:
        return f"log machine: {cls.examples} examples, {cls.steps} steps, {cls.crashes} of them ended by a crash"
