"""The log against a list (`tests/support/log_machine`), a short run; `make soak` is the long one."""

from __future__ import annotations

from typing import Any

from hypothesis import settings

from support.log_machine import LogMachine

TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


class NothingElse:
    """Draws: no start is ended, too, and of what was not flushed nothing survives."""

    def draw(self, strategy: Any, label: str) -> int | None:
        return 0 if label == "survives" else None


def test_a_compacted_segment_that_is_left_of_a_log_that_begins_anew_is_kept_aside_and_counts_as_lost() -> None:
    kept = []
    for operations in range(26):
        machine = LogMachine()
        machine.begin(
            segment_bytes=2000, index_interval_bytes=0, max_open_files=1, retention_bytes=-1, data=NothingElse()
        )
        machine.append_as_follower(counts=[3, 3, 4, 3, 1], new_epochs=0)
        machine.roll()
        machine.append_as_leader(codec="none", counts=[2, 4, 5], size=300, timestamp_step_ms=94)
        machine.compact(crash_after=None, entries=3, fraction=1, joins=True)
        machine.arm_crash(operations=operations, loses_power=False)
        machine.start_anew(jump=20)
        machine.the_log_is_the_model()
        kept += [name for name in machine.site.disk.content() if name.endswith(".damaged")]
    assert kept


def test_a_head_that_a_kill_brought_back_is_there_once_when_the_power_fails_later() -> None:
    machine = LogMachine()
    machine.begin(segment_bytes=2000, index_interval_bytes=0, max_open_files=1, retention_bytes=-1, data=NothingElse())
    machine.append_as_leader(codec="none", counts=[1, 1, 5], size=20, timestamp_step_ms=0)
    machine.commit(fraction=1)
    machine.delete_records(fraction=0.5)
    assert machine.below
    machine.kill_and_start()
    assert machine.model.start == 0
    machine.stop_and_start(clean=True)
    machine.lose_power_and_start()
    machine.the_log_is_the_model()
