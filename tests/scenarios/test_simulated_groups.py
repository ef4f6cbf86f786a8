"""Groups in a simulated cluster: their members come and go, and in the end each group has caught up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strandline.testkit.simulation.driver import Report, simulate
from strandline.testkit.simulation.options import draw_options
from strandline.testkit.simulation.workloads import groups


def without_faults(length_s: float) -> Report:
    options = draw_options(5, (), (), length_s=length_s)
    return simulate(replace(options, workloads=("groups",)))


def test_members_leave_vanish_and_are_late_and_all_is_well() -> None:
    report = without_faults(40.0)
    assert report.findings == []
    assert all(report.sometimes[f"member: {doing}"] for doing in (*groups.DOINGS, *groups.ENDS))


def test_a_group_that_is_not_stable_or_has_not_caught_up_in_time_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "CAUGHT_UP_WITHIN_S", 0.0)
    (finding,) = without_faults(3.0).findings
    assert "group" in finding and finding.endswith("0 s after the last fault")
