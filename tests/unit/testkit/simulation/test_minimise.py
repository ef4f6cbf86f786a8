"""Scripts cut shorter, over runs that only pretend."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strandline.testkit.simulation.minimise import Case, Shows, minimised
from strandline.testkit.simulation.script import Fault

SCRIPT = tuple(Fault(float(number), "kill", str(number), 8.0) for number in range(32))
CASE = Case(SCRIPT, 64.0)


class Runs:
    """Counts; what shows it is what it is made with."""

    def __init__(self, shows: Shows) -> None:
        self.count = 0
        self._shows = shows

    def __call__(self, case: Case) -> bool:
        self.count += 1
        return self._shows(case)


@given(st.sets(st.integers(0, 31)))
def test_what_is_needed_stays_and_nothing_else(needed: set[int]) -> None:
    runs = Runs(lambda case: needed <= {int(fault.target) for fault in case.script})
    short = minimised(CASE, runs)
    assert {int(fault.target) for fault in short.script} == needed
    assert all(fault.seconds == 0.12 for fault in short.script)
    assert max(needed, default=0) < short.length_s <= max(2.0 * max(needed, default=0), 1.0) + 0.5
    assert runs.count < 32 * 32


@pytest.mark.parametrize("needed", [0, 13, 31])
def test_a_single_cause_is_found_in_few_runs(needed: int) -> None:
    runs = Runs(lambda case: any(fault.target == str(needed) for fault in case.script))
    assert [fault.target for fault in minimised(CASE, runs).script] == [str(needed)]
    assert runs.count < 40


def test_one_of_several_causes_is_enough() -> None:
    runs = Runs(lambda case: len([fault for fault in case.script if int(fault.target) % 7 == 3]) >= 2)
    assert len(minimised(CASE, runs).script) == 2


def test_what_needs_no_fault_is_left_without_any_and_as_short_as_it_can_be() -> None:
    runs = Runs(lambda case: case.length_s > 5)
    assert minimised(CASE, runs) == Case((), 8.0)


def test_a_fault_is_as_short_as_shows_it() -> None:
    runs = Runs(lambda case: any(fault.target == "5" and fault.seconds >= 1.5 for fault in case.script))
    (left,) = minimised(CASE, runs).script
    assert (left.target, left.seconds) == ("5", 2.0)
